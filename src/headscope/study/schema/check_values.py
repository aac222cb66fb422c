"""Check what the dtypes of a table leave open: intervals, names and repeated rows; and the arrays of maps.npz."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headscope.errors import HeadscopeError
from headscope.study.schema.names import POSITIONAL
from headscope.study.schema.read_file import CORRECT
from headscope.study.schema.table import rows_by_line

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

HEAD = ["stack", "layer", "head"]
# Tables with one row for each head and value of these columns
KEYS = {
    "heads": [*HEAD, "statistic"],
    "roles": [*HEAD, "role"],
    "significance": [*HEAD, "statistic"],
    "ranks": [*HEAD, "importance"],
    "relation_heads": [*HEAD, "relation", "direction"],
    "coreference_heads": HEAD,
    "clusters": HEAD,
    "sinks": HEAD,
}
FINITE = ("value", "low", "high", "accuracy")
ROUNDING = 1e-9  # by which an interval of equal values may be inverted
# Arrays of maps.npz by kind: [layer, head, query, key], [layer, head, offset], [head, head]
AXES = {"map": 4, "offset": 3, "js": 2, "js-content": 2, "mask": 2}


def address_of(path: Path, row: int) -> str:
    """`FILE:LINE` of a row of a table; a parquet file has no lines."""
    if path.suffix != ".csv":
        return f"{path}, row {row}"
    return f"{path}:{next(line for i, (line, _) in enumerate(rows_by_line(path)) if i == row)}"


def check_values(frame: pd.DataFrame, name: str, path: Path) -> None:
    """Raise an error for the first row of a table with a value that cannot be."""
    for column in set(FINITE) & set(frame.columns):
        is_infinite = np.isinf(frame[column].astype("float64"))
        _refuse(frame, is_infinite, column, "hold a finite number or nothing", path)
    for low in (str(column) for column in frame.columns if str(column).endswith("low")):
        high = f"{low.removesuffix('low')}high"
        if high in frame:
            is_wrong = frame[low] > frame[high] + ROUNDING * (1 + frame[high].abs())
            _refuse(frame, is_wrong, low, f'be at most column "{high}"', path)
    if "statistic" in frame:
        is_wrong = ~frame["statistic"].str.fullmatch(r"[^@]+(@[^@]+)?(.* \(.*\))?")
        _refuse(frame, is_wrong, "statistic", "hold STATISTIC or STATISTIC@LENS", path)
    if "role" in frame:
        is_offset = frame["role"].str.fullmatch(rf"{POSITIONAL} (0|[+-]\d+)")
        is_wrong = frame["role"].str.startswith(f"{POSITIONAL} ") & ~is_offset
        expected = f'hold a role, as "{POSITIONAL} -1"'
        _refuse(frame, is_wrong | (frame["role"] == ""), "role", expected, path)
    keys = KEYS.get(name, [])
    if keys and set(keys) <= set(frame.columns):
        for row in np.flatnonzero(frame.duplicated(keys))[:1]:
            cells = ", ".join(map(str, frame[keys].iloc[row]))
            names = " and ".join(keys)
            what = f"each row must have its own {names}, got a second one ({cells})"
            raise HeadscopeError(what, where=address_of(path, int(row)), fix=CORRECT)


def _refuse(frame: pd.DataFrame, is_wrong: Any, column: str, expected: str, path: Path) -> None:
    """Raise an error for the first row that is wrong."""
    for row in np.flatnonzero(is_wrong)[:1]:
        what = f'column "{column}" must {expected}, got "{frame[column].iloc[row]}"'
        raise HeadscopeError(what, where=address_of(path, int(row)), fix=CORRECT)


def check_maps(
    maps: Mapping[str, NDArray[Any]], model: Mapping[str, Any], heads: pd.DataFrame, path: Path
) -> None:
    """Raise an error if an array of a kind of ours has other axes, values or heads than its kind."""
    for key, array in maps.items():
        kind, _, stack = key.partition("/")
        if kind not in AXES:  # of a statistic of your own
            continue
        must, got = "", f"shape {array.shape}"
        if array.dtype.kind != "f":
            must, got = "hold real numbers", str(array.dtype)
        elif array.ndim != AXES[kind]:
            must = f"have {AXES[kind]} axes"
        elif kind in ("js", "js-content") and array.shape[0] != array.shape[1]:
            must = "have as many rows as columns"
        elif kind == "offset" and array.shape[2] % 2 == 0:
            must = "have an odd number of offsets, from -R to R"
        elif kind != "mask" and stack not in model["layers"]:
            must, got = f"be of a stack of the model ({', '.join(model['layers'])})", f'"{stack}"'
        elif kind in ("map", "offset"):
            rows = heads[heads["stack"] == stack]
            for axis, name in enumerate(("layer", "head")):
                sizes = [model[f"{name}s"].get(stack), *rows[name].agg(["max"]).add(1)]
                if array.shape[axis] not in sizes:
                    must = f"have {sizes[0]} {name}s"
        if must:
            what = f'array "{key}" must {must}, got {got}'
            raise HeadscopeError(what, where=path, fix=CORRECT)
