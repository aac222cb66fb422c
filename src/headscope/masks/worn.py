"""The mask that a model wore, from what its run record says of it."""

from __future__ import annotations

import ast


def read_worn(edit: str) -> tuple[str, bool] | None:
    """The mask's name and whether special tokens were open, from the edit as it is printed; None: it is no mask."""
    try:
        call = ast.parse(edit, mode="eval").body
    except (SyntaxError, ValueError):
        return None
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Masked"):
        return None
    if len(call.args) != 1 or not isinstance(call.args[0], ast.Constant):
        return None
    return str(call.args[0].value), any(option.arg == "open_special" for option in call.keywords)
