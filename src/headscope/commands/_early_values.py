"""Checks of options that no config makes: of commands without one, and of what the shell alone requires."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headscope.config.checks import check_length
from headscope.config.masks import check_mask
from headscope.errors import HeadscopeError
from headscope.heads import HeadSet
from headscope.model.declared_shape import read_shape
from headscope.model.resolve_spec import read_spec
from headscope.pruning.target import check_reachable

Values = Mapping[str, Any]


def check_command(command: str, values: Values) -> None:
    """Options of a command that must be right in the shell."""
    if command in CHECKS:
        CHECKS[command](values)


def check_models(command: str, values: Values) -> None:
    """Refuse what is neither a named model, a directory nor written as a hub id."""
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
        raise HeadscopeError("prune requires `out`" if is_missing else "`dry_run` writes no `out`")


def _check_look(values: Values) -> None:
    if values["text"] == "" and values["second"] is None:
        raise HeadscopeError("there are no tokens in it", where='text ""', expected="some text")


def check_fit(values: Mapping[str, Any]) -> None:
    """Refuse heads and lengths that the model does not have. A model that is not on this machine is not checked."""
    is_new = values.get("from_scratch") or values.get("checkpoints") is True
    if not isinstance(values.get("model"), str) or is_new:
        return
    shape = read_shape(values["model"], values.get("revision"))
    if shape is None:
        return
    if values.get("max_length") is not None:
        check_length(values["max_length"], shape.longest, values["model"])
    heads, candidates = values.get("heads"), values.get("candidates")
    allowed = list(shape.heads if candidates is None else HeadSet(candidates, among=shape.heads))
    if values.get("remove") is not None:
        check_reachable(values["remove"], len(allowed), len(allowed), "`remove`")
    if isinstance(heads, str):
        HeadSet(heads, among=shape.heads)


CHECKS: dict[str, Callable[[Values], object]] = {
    "look": _check_look,
    "masks show": lambda values: check_mask(values["mask"], "MASK"),
    "prune": _check_prune,
}
