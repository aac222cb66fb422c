"""The mask that a model wore, from what its run record says of it."""

from __future__ import annotations

import ast
from pathlib import Path

from headscope.atomic_dir import read_record

TRAINING = "training.json"


def read_worn(edit: str) -> tuple[str, bool] | None:
    """The mask's name and whether special tokens were open, from the edit as it is printed; None: it is no mask."""
    try:
        call = ast.parse(edit, mode="eval").body
    except (SyntaxError, ValueError):
        return None
    if not (
        isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Masked"
    ):
        return None
    if len(call.args) != 1 or not isinstance(call.args[0], ast.Constant):
        return None
    return str(call.args[0].value), any(option.arg == "open_special" for option in call.keywords)


def mask_of_training(trained: str | Path) -> tuple[str, bool] | None:
    """The mask that a model in this directory was trained under, as `read_worn` gives it; None if there was none."""
    edits = read_record(Path(trained), TRAINING).get("model", {}).get("edits") or []
    return next((mask for edit in edits if (mask := read_worn(str(edit))) is not None), None)
