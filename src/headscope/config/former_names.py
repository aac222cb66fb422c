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

OPTIONS = {  # names in Python; flags have hyphens instead of underscores
    "among": "candidates",
    "at_least": "min_heads_per_layer",
    "fields": "column",
    "frozen": "freeze_weights",
    "heads": "heads_per_layer",  # of a new model
    "labels_free": "self_labels",
    "long": "long_texts",
    "pool": "word_pooling",
    "race": "sequential_test",
    "rules": "relevance_rules",
    "teacher": "distil",
    "width": "beam_width",
}


REMOVED_FLAGS = {  # what to do instead
    "headscope report --roles": "Give the study with roles as a further STUDY",
}


def present_flag(flag: str) -> str | None:
    """The present name of a former flag: --sequential-test for --race. None for any other flag."""
    name = OPTIONS.get(flag.removeprefix("--").replace("-", "_"))
    return None if name is None else f"--{name.replace('_', '-')}"
