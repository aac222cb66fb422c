"""Checks of option values that configs do not make: they need the model, or hold in the shell only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headscope.config.checks import check_length
from headscope.config.masks import check_mask
from headscope.errors import HeadscopeError, errors_at
from headscope.heads import HeadSet, check_heads
from headscope.model.declared_shape import read_shape
from headscope.model.resolve_spec import read_spec
from headscope.pruning.target import check_reachable

Values = Mapping[str, Any]


def check_command(command: str, values: Values) -> None:
    """The checks of single commands in `CHECKS`."""
    if command in CHECKS:
        CHECKS[command](values)


def check_models(command: str, values: Values) -> None:
    """Refuse models that are neither a name, nor a directory, nor written as an id of the Hugging Face hub."""
    if values.get("model") is not None and values.get("checkpoints") is not True:
        read_spec(values["model"], values.get("revision"))
    for model in values.get("models") or ():
        read_spec(model)
    names = ["against", "start", "distil", "tokenizer", "architecture"]
    for name in [*names, "compare"] if command == "serve" else names:
        model = values.get(name)
        if isinstance(model, str) and not (name == "architecture" and model.endswith(".json")):
            read_spec(model)


def _check_prune(values: Values) -> None:
    if (values["out"] is None) == (not values["dry_run"]):
        is_missing = values["out"] is None
        raise HeadscopeError(
            "prune requires `out`, or `dry_run=True` to write nothing"
            if is_missing
            else "`dry_run` cannot be combined with `out`: it writes nothing"
        )


def _check_look(values: Values) -> None:
    if values["text"] == "" and values["second"] is None:
        raise HeadscopeError("there are no tokens in it", where='text ""', expected="some text")


def _check_head(values: Values) -> None:
    with errors_at("HEAD"):
        check_heads(values["name"])


def check_fit(values: Mapping[str, Any]) -> None:
    """Refuse heads that the model does not have and lengths above its limit, if its files are on this machine."""
    is_new = values.get("from_scratch") or values.get("checkpoints") is True
    if not isinstance(values.get("model"), str) or is_new:
        return
    shape = read_shape(values["model"], values.get("revision"))
    if shape is None:
        return
    if values.get("max_length") is not None:
        check_length(values["max_length"], shape.longest, values["model"])
    named: dict[str, HeadSet] = {}
    for option in ("heads", "candidates"):
        if values.get(option) is not None:
            with errors_at(f"`{option}`"):
                named[option] = HeadSet(values[option], among=shape.heads)
    if values.get("remove") is not None:
        removable = len(named.get("candidates", shape.heads))
        check_reachable(values["remove"], removable, removable, "`remove`")


CHECKS: dict[str, Callable[[Values], object]] = {
    "head": _check_head,
    "look": _check_look,
    "masks show": lambda values: check_mask(values["mask"], "MASK"),
    "prune": _check_prune,
}
