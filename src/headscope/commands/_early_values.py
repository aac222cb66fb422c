"""Single values that are wrong whatever the model is: names, numbers, lists, heads, masks, models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headscope.commands._tasks import numbers_of, pairs_of
from headscope.config import names
from headscope.config.checks import (
    check_choice,
    check_count,
    check_device,
    check_each,
    check_keep_metric,
    check_patterns,
    check_range,
    check_token,
    repair_names,
)
from headscope.config.masks import check_mask, check_sizes
from headscope.config.search import FRONT, Mending, SearchOptions
from headscope.errors import HeadscopeError
from headscope.heads import check_heads
from headscope.model.resolve_spec import read_spec
from headscope.pruning.prune_request import Wanted

Values = Mapping[str, Any]
Check = Callable[[Any], object]


def check_values(command: str, values: Values) -> None:
    """Every option by itself, then those that make up one thing together."""
    for name, value in values.items():
        check = CHECKS.get(f"{command} {name}") or CHECKS.get(name)
        if check is not None and value is not None and value != []:
            check(value)
    if command in TOGETHER:
        TOGETHER[command](values)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _count(name: str) -> Check:
    return lambda value: check_count(value, _flag(name))


def _choice(flag: str, known: tuple[str, ...], what: str) -> Check:
    return lambda value: check_choice(value, known, flag, what)


def _check_task(task: str) -> None:
    check_choice(task, names.TASKS, "--task", "is no task", names.TASKS_MEANT.get(task, ()))


def _check_statistics(given: str) -> None:
    check_each(given, names.STATISTICS, "--statistics", "is not a statistic")


def _check_look_lens(given: str) -> None:
    check_each(given, (*names.LENSES, *names.TOKEN_MAPS), "--lens", "is no lens")


def _check_length(given: int) -> None:
    check_range(given, lambda x: x > 0, "--max-length", "leaves no room for text", "1 or more")


def check_models(command: str, values: Values) -> None:
    """Refuse what is neither a named model, a directory nor written as a hub id."""
    if "model" in values:
        read_spec(values["model"], values.get("revision"))
    for model in values.get("models") or ():
        read_spec(model)
    for name in (
        "against",
        "start",
        "teacher",
        "tokenizer",
        "architecture",
        *(("compare",) if command == "serve" else ()),
    ):
        model = values.get(name)
        if isinstance(model, str) and not (name == "architecture" and model.endswith(".json")):
            read_spec(model)


def _check_prune(values: Values) -> None:
    check_choice(values["form"], names.FORMS, "--form", "is no form")
    if values["heads"] is not None and not values["heads"].isdecimal():
        check_heads(values["heads"])
    wanted = Wanted.of(
        *(values[name] for name in ("heads", "plan", "sparsity", "keep_metric", "speedup")),
        steps=values["recover_steps"],
    )
    same = (
        "how",
        "by",
        "rules",
        "objective",
        "at_least",
        "among",
        "step",
        "width",
        "expansion",
        "draws",
        "limit",
    )
    options = SearchOptions(
        **{name: values[name] for name in same},
        repairs=tuple(values["try_repairs"].split(",")) if values["try_repairs"] else (),
        sizes=numbers_of(values["sizes"], "--sizes") if values["sizes"] else FRONT,
    )
    mending = Mending(
        repair_names(values["repair"]),
        values["recover"],
        values["teacher"],
        values["learning_rate"],
    )
    if (values["task"] is None) != (values["data"] is None):
        raise HeadscopeError(
            "a task and its data belong together", where="--task", expected="--task and --data"
        )
    wanted.check_options(values["task"] is not None, mending, options)
    if (values["out"] is None) == (not values["dry_run"]):
        what = "nowhere to write it" if values["out"] is None else "a dry run writes nothing"
        raise HeadscopeError(what, where="--out")


def _check_look(values: Values) -> None:
    if values["text"] == "" and values["second"] is None:
        raise HeadscopeError("there are no tokens in it", where='text ""', expected="some text")


def _check_speed(values: Values) -> None:
    from headscope.commands.speed import lengths_of

    lengths = lengths_of(values["length"])
    if values["mask"] is not None:
        check_sizes(lengths or [1], values["batch_size"] or 1, values["repeats"])
    elif lengths is not None and len(lengths) > 1:
        raise HeadscopeError("--length requires --mask NAME for several lengths")


CHECKS: dict[str, Check] = {
    "device": check_device,
    "dtype": _choice("--dtype", names.DTYPES, "is not a dtype"),
    "mask": check_mask,
    "masks show mask": lambda mask: check_mask(mask, "MASK"),
    # names
    "task": _check_task,
    "look lens": _check_look_lens,
    "prune objective": _choice("--objective", names.OBJECTIVES, "is no objective"),
    "fix heads": check_heads,
    "prune among": check_heads,
    "patterns": check_patterns("patterns"),
    "token": check_token,
    # lists
    "columns": lambda given: pairs_of(given, "--columns"),
    "labels": lambda given: pairs_of(given, "--labels"),
    "sizes": lambda given: numbers_of(given, "--sizes"),
    # numbers
    **{name: _count(name) for name in ("limit", "report_limit", "batch_size", "repeats", "draws")},
    "masks show length": _count("length"),
    "max_length": _check_length,
    "fix keep_metric": check_keep_metric,
    "target": lambda token: check_range(token, lambda x: x >= 0, "--target", "is no token", "0 or more"),
}  # fmt: skip
TOGETHER: dict[str, Callable[[Values], None]] = {
    "look": _check_look,
    "prune": _check_prune,
    "speed": _check_speed,
}
