"""Former names of commands, options and public functions, with the present ones, for error messages."""

from __future__ import annotations

COMMANDS = {
    "film": "analyze --checkpoints",
    "fix": "fixed-patterns",
    "fronts": "report",
    "knock-out": "ablate-edges",
    "learn-mask": "masks learn",
}

FUNCTIONS = {
    "film": "headscope.analyze(trained, checkpoints=True, …)",
    "fix": "headscope.fixed_patterns",
    "fronts": 'headscope.join(studies).tables["fronts"]',
    "knock_out": "headscope.ablate_edges",
    "FilmConfig": "headscope.AnalyzeConfig(checkpoints=True)",
    "FixConfig": "headscope.FixedPatternsConfig",
    "FixResult": "headscope.FixedPatternsResult",
    "FrontsConfig": "headscope.join",
    "KnockOutConfig": "headscope.AblateEdgesConfig",
}

OPTIONS = {  # as in Python; a flag has dashes
    "among": "candidates",
    "at_least": "min_heads_per_layer",
    "fields": "column",
    "frozen": "freeze_weights",
    "labels_free": "self_labels",
    "long": "long_texts",
    "pool": "word_pooling",
    "race": "sequential_test",
    "rules": "relevance_rules",
    "teacher": "distil",
    "width": "beam_width",
}


def present_flag(flag: str) -> str | None:
    """The present name of a former flag: `--race` is now `--sequential-test`."""
    name = OPTIONS.get(flag.removeprefix("--").replace("-", "_"))
    return None if name is None else f"--{name.replace('_', '-')}"
