"""Options that have an effect only together with others. To state an option without effect is an error.

RULES lists them for each command. An option counts as stated if it was typed in the shell or passed as a keyword, or
if its value differs from its default.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headscope.config.edit_record import mask_of_training
from headscope.config.names import (
    CORPUS_TASKS,
    GRADIENT_LENSES,
    IMPORTANCES,
    NEW_MODEL_SIZES,
    POOLED_LENSES,
    POOLED_TASKS,
    SCORES,
    SEARCHES_BY,
    TARGETED_LENSES,
)
from headscope.errors import HeadscopeError

Values = Mapping[str, Any]
BY_CHANCE = ("random", "bigbird")  # masks that are drawn at random
# The searches that take an importance (`by`), in words: `search="rank"` or iterative
SEARCH_BY = " or ".join((f'`search="{SEARCHES_BY[0]}"`', *SEARCHES_BY[1:]))


@dataclass(frozen=True)
class Rule:
    """A condition on which options have an effect.

    options   their names
    requires  the condition in words, after "requires" in the error
    holds     whether the values of all options satisfy the condition
    """

    options: tuple[str, ...]
    requires: str
    holds: Callable[[Values], bool]


def check_effects(command: str, values: Values, stated: Collection[str]) -> None:
    """Refuse options without effect. stated: names of the options that the caller stated."""
    for rule in RULES.get(command, ()):
        for name in rule.options:
            if name in stated and not rule.holds(values):
                raise without_effect(name, rule.requires)


def without_effect(name: str, requires: str) -> HeadscopeError:
    """The error for an option without effect."""
    return HeadscopeError(f"`{name}` requires {requires}", fix="It has no effect otherwise")


def _has_value(value: Any) -> bool:
    """Whether a value is neither None, False nor empty. Arrays and table columns have a length but no truth value."""
    return len(value) > 0 if hasattr(value, "__len__") else bool(value)


def split_names(value: Any, every: Collection[str] = ()) -> set[str]:
    """The names in a text with commas or in a collection; the name `all` stands for all of `every`."""
    names = (
        {name.strip() for name in value.split(",")} if isinstance(value, str) else set(value or ())
    )
    return names | set(every) if "all" in names and every else names


def _by(values: Values) -> set[str]:
    return split_names(values.get("by"), IMPORTANCES)


def _kinds(values: Values) -> set[str]:
    return split_names(values.get("kind"))


def _has(*names: str) -> Callable[[Values], bool]:
    """A condition: one of these options has a value."""
    return lambda values: any(_has_value(values.get(name)) for name in names)


def _has_texts(values: Values) -> bool:
    """Whether there is a corpus. Also true without any input, which has an error of its own."""
    return _has("corpus", "texts")(values) or not _has("treebank", "sentences", "coreference")(
        values
    )


def chooses_on_data(values: Values) -> bool:
    """Whether prune uses the selection split: for a search, or for repairs and training."""
    return _searches(values) or _has("repair", "recover")(values)


def _searches(values: Values) -> bool:
    """Whether prune searches for heads. Also true without any target, which has an error of its own."""
    return values.get("heads") is None and values.get("plan") is None


def _has_splits(values: Values) -> bool:
    """Whether the data has splits. A single file of texts has none: the command divides it itself."""
    task = values.get("task")
    # In Python a task may be a `Task` instead of a name.
    is_of_texts = getattr(task, "name", task) in CORPUS_TASKS
    data = values.get("corpus") or (values.get("data") if is_of_texts else None)
    return data is None or not Path(str(data)).is_file()


def _has_split(option: str) -> Callable[[Values], bool]:
    """A condition: the data has the split of this option.

    Directories and data sets have splits. A single file is used for every split; it counts as `dev`, and as `train` or
    `test` if that is in its name.
    """

    def holds(values: Values) -> bool:
        data, split = str(values.get("data") or ""), str(values.get(option) or "").partition(":")[0]
        files = (
            [Path(data)]
            if Path(data).exists()
            else [Path(name.strip()) for name in data.split(",", 1)]
        )
        if split not in ("train", "test") or not all(file.is_file() for file in files):
            return True
        return all(split in file.name.lower() for file in files)

    return holds


def _threshold(name: str) -> Callable[[Values], bool]:
    return lambda values: any(name in word for word in values.get("thresholds") or ())


def _is(option: str, *names: str) -> Callable[[Values], bool]:
    return lambda values: values.get(option) in names


def _lacks(name: str) -> Callable[[Values], bool]:
    """A condition: this option has no value."""
    return lambda values: not values.get(name)


def _pools(values: Values) -> bool:
    """Whether the task compares vectors of texts."""
    task = values.get("task")
    return task in POOLED_TASKS if isinstance(task, str) else getattr(task, "pools", False)


def _analyze_has_mask(values: Values) -> bool:
    """Whether analyze applies a mask. For checkpoints that is `mask`, else the mask of their training."""
    mask, model = values.get("mask"), values.get("model")
    if not values.get("checkpoints"):
        return bool(mask)
    if mask is not None or model is None:
        return mask != "dense"
    return mask_of_training(model) is not None


MASK = Rule(("open_special",), "`mask=NAME`", _has("mask"))
ANALYZE_MASK = Rule(
    ("open_special",), "`mask=NAME`, or checkpoints of a training with a mask", _analyze_has_mask
)
SCRATCH = Rule(
    (*NEW_MODEL_SIZES, "vocabulary"),
    "`from_scratch=True`",
    _has("from_scratch"),
)
TRAINED_WEIGHTS = Rule(
    ("learning_rate", "settle"),
    "weights that are trained: leave `freeze_weights` out",
    _lacks("freeze_weights"),
)
SPLITS = Rule(
    ("select_on", "report_on"),
    "a directory with train and dev files",
    _has_splits,
)
POOLED = Rule(
    ("pooling", "prompt"),
    "a task that compares vectors of texts: stsb or retrieval",
    _pools,
)
RELATION = Rule(
    ("thresholds",),
    "`treebank=FILE` for the threshold relation",
    lambda v: not _threshold("relation")(v) or _has("treebank", "sentences")(v),
)
ONE_FILE = "`data=DIRECTORY` with train, dev and test files; a single file is used for every split"
SPLIT = Rule(("split",), ONE_FILE, _has_split("split"))
SELECT_ON = Rule(("select_on",), ONE_FILE, _has_split("select_on"))
REPORT_ON = Rule(("report_on",), ONE_FILE, _has_split("report_on"))
WRITTEN = Rule(("resume", "overwrite", "checkpoints"), "`out=DIR`", _has("out"))
TO_RESUME = Rule(("resume", "overwrite"), "`out=DIR`", _has("out"))
OF_TEXTS = ("pairs", "column")

RULES: dict[str, tuple[Rule, ...]] = {
    "analyze": (
        ANALYZE_MASK,
        Rule(("resume",), "`checkpoints=True`", _has("checkpoints")),
        Rule(
            ("revision",),
            "that `checkpoints` is left out: they are local files",
            _lacks("checkpoints"),
        ),
        Rule(("control",), "`treebank=FILE`", _has("treebank", "sentences")),
        Rule(
            ("lenient",),
            "`treebank=FILE` or `coreference=FILE`",
            _has("treebank", "coreference"),
        ),
        Rule(
            ("word_pooling",),
            "`treebank`, `coreference` or `frequency`",
            _has("treebank", "sentences", "coreference", "frequency"),
        ),
        Rule(("pairs", "column", "long_texts"), "`corpus=FILE`", _has_texts),
        Rule(
            ("frequency",),
            "`corpus=FILE` or `treebank=FILE`",
            lambda v: _has_texts(v) or _has("treebank", "sentences")(v),
        ),
        Rule(
            ("all_rows",),
            "`statistics` with twin-distance, or all statistics",
            lambda v: v["statistics"] is None or "twin-distance" in split_names(v["statistics"]),
        ),
        Rule(("thresholds",), RELATION.requires, RELATION.holds),
        Rule(
            ("thresholds",),
            "`frequency=SOURCE` for the threshold rare",
            lambda v: not _threshold("rare")(v) or v["frequency"] is not None,
        ),
        Rule(
            ("pooling",),
            f"`lens` with {' or '.join(GRADIENT_LENSES)}",
            lambda v: bool(split_names(v.get("lens")) & set(GRADIENT_LENSES)),
        ),
    ),
    "compare": (
        Rule(("corpus", "texts"), "`models=[A, B]`", _has("models")),
        Rule(
            ("pairs", "column", "limit", "max_length", "batch_size"),
            "`models=[A, B]` and `corpus=FILE`",
            _has("models"),
        ),
        Rule(("models",), "`corpus=FILE`", _has("corpus", "texts")),
    ),
    "evaluate": (MASK, POOLED, SPLIT),
    "finetune": (MASK, SCRATCH, POOLED, WRITTEN),
    "fixed-patterns": (
        Rule(("heads",), "that `patterns` is left out: they name heads", _lacks("patterns")),
        POOLED,
        SELECT_ON,
        REPORT_ON,
    ),
    "gate": (
        SCRATCH,
        TRAINED_WEIGHTS,
        Rule(
            ("freeze_weights",), "trained weights: leave `from_scratch` out", _lacks("from_scratch")
        ),
        SPLITS,
        POOLED,
        TO_RESUME,
    ),
    "importance": (
        MASK,
        SPLIT,
        Rule(
            ("kind", "mode", "heads", "sequential_test"),
            '`by="ablation"` (or all)',
            lambda v: "ablation" in _by(v),
        ),
        Rule(("sequential_test",), '`kind="head"`', lambda v: "head" in _kinds(v)),
        Rule(("heads",), '`kind="head"` or pair', lambda v: bool(_kinds(v) & {"head", "pair"})),
        Rule(("normalized",), '`by="gradient"` (or all)', lambda v: "gradient" in _by(v)),
        Rule(("relevance_rules",), '`by="relevance"` (or all)', lambda v: "relevance" in _by(v)),
        Rule(("patterns",), '`mode="fixed"`', _is("mode", "fixed")),
        POOLED,
    ),
    "ablate-edges": (MASK,),
    "masks learn": (
        TRAINED_WEIGHTS,
        Rule(("settle",), "a mask that becomes 0 or 1: leave `soft` out", _lacks("soft")),
        SPLITS,
        POOLED,
        Rule(
            ("objective", "corpus"),
            "that `task` and `data` are left out",
            lambda v: v["data"] is None or str(v["data"]) == str(v["corpus"]),
        ),
        TO_RESUME,
    ),
    "look": (
        MASK,
        Rule(
            ("target",),
            f"`lens` with one that takes gradients: {', '.join(TARGETED_LENSES)}",
            lambda v: bool(split_names(v["lens"]) & set(TARGETED_LENSES)),
        ),
        Rule(
            ("pooling",),
            f"`lens` with {' or '.join(POOLED_LENSES)}",
            lambda v: bool(split_names(v.get("lens")) & set(POOLED_LENSES)),
        ),
    ),
    "masks compare": (
        Rule(("report_on",), ONE_FILE, _has_split("report_on")),
        Rule(("epochs",), "`start=MODEL`", _has("start")),
        Rule(
            ("learning_rate", "batch_size", "limit"),
            "`repair=N` or `start=MODEL`",
            _has("repair", "start"),
        ),
        Rule(
            ("seeds",),
            "`repair`, `start` or a mask that is drawn by chance",
            lambda v: (
                _has("repair", "start")(v)
                or not v["mask"]
                or any(name in mask for mask in v["mask"] for name in BY_CHANCE)
            ),
        ),
        POOLED,
        TO_RESUME,
    ),
    "pretrain": (
        MASK,
        Rule(("epochs",), "that `steps` is left out", _lacks("steps")),
        WRITTEN,
    ),
    "prune": (
        SELECT_ON,
        REPORT_ON,
        Rule(
            (
                "search",
                "by",
                "relevance_rules",
                "objective",
                "min_heads_per_layer",
                "candidates",
                "step",
                "beam_width",
                "expansion",
                "draws",
                "limit",
                "sizes",
                "try_repairs",
                "swaps",
            ),
            "a search (`remove=N`, `sparsity`, `keep_metric` or `speedup`); here `heads` or `plan` names the heads",
            _searches,
        ),
        Rule(
            ("by",),
            SEARCH_BY,
            _is("search", *SEARCHES_BY),
        ),
        Rule(
            ("relevance_rules",),
            f'{SEARCH_BY} with `by="relevance"`',
            lambda v: v["search"] in SEARCHES_BY and SCORES.get(v["by"]) == "relevance",
        ),
        Rule(("step",), '`search="iterative"`', _is("search", "iterative")),
        Rule(("beam_width", "expansion", "swaps"), '`search="beam"`', _is("search", "beam")),
        Rule(("draws",), '`search="random"`', _is("search", "random")),
        Rule(
            ("learning_rate", "distil"),
            "`recover=N`, as in `recover=1`",
            _has("recover"),
        ),
        Rule(
            ("report_on", "batch_size", "report_limit", "columns", "labels", "max_length"),
            "`task=NAME` and `data=PATH`",
            _has("task"),
        ),
        Rule(
            ("select_on",),
            "a search, `repair` or `recover`",
            chooses_on_data,
        ),
        Rule(("seed",), "a search or `recover`", lambda v: _searches(v) or _has("recover")(v)),
        Rule(
            ("resume", "overwrite"),
            "`out=DIR`: `dry_run=True` writes nothing",
            _lacks("dry_run"),
        ),
        Rule(("repair", "recover"), "that `dry_run` is left out", _lacks("dry_run")),
    ),
    "serve": (MASK,),
    "speed": (
        Rule(("against",), "that `mask` is left out", _lacks("mask")),
        Rule(("out",), "`mask=NAME`", _has("mask")),
    ),
}
