"""Read access to a study for figures and page: stacks, statistics, layers x heads grids, record entries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from headscope.report.text import plain
from headscope.study.local_paths import local_name
from headscope.tables import STACKS

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from headscope.study.study import Study

Column = Literal["value", "low", "high", "count"]

MOST = 1000  # layers or heads: a record with more is not trusted


def stacks_of(study: Study) -> list[str]:
    """The stacks that have rows, in the order in which stacks are listed everywhere."""
    return sorted(map(str, study.heads["stack"].unique()), key=stack_order)


def stack_order(name: str) -> tuple[int, str]:
    """Sort key for names of stacks: ours in their usual order, then others."""
    return STACKS.index(name) if name in STACKS else len(STACKS), name


def statistics_of(study: Study) -> list[str]:
    """The statistics that have rows, in the order of the table."""
    return [str(name) for name in study.heads["statistic"].unique()]


def shape_of(study: Study, stack: str) -> tuple[int, int]:
    """(layers, heads) of a stack: those of the model, and at least the extent of the rows of all statistics."""
    rows = study.heads[study.heads["stack"] == stack]
    sizes = [entry_of(study.record, "model", side, stack) for side in ("layers", "heads")]
    layers, heads = (size if isinstance(size, int) and size < MOST else 0 for size in sizes)
    return max(layers, int(rows["layer"].max()) + 1), max(heads, int(rows["head"].max()) + 1)


def grid_of(
    study: Study, statistic: str, stack: str, column: Column = "value"
) -> NDArray[np.float64]:
    """One column of one statistic as [layer, head]; NaN for a head without a row."""
    grid = np.full(shape_of(study, stack), np.nan)
    rows = rows_for(study, statistic, stack)
    grid[rows["layer"].to_numpy(), rows["head"].to_numpy()] = rows[column].to_numpy(dtype=float)
    return grid


def rows_for(study: Study, statistic: str, stack: str | None = None) -> pd.DataFrame:
    """The rows of a statistic in heads.csv, of one stack or of all."""
    rows = study.heads[study.heads["statistic"] == statistic]
    return rows if stack is None else rows[rows["stack"] == stack]


def values_for(study: Study, statistic: str, stack: str | None = None) -> pd.DataFrame:
    """The rows of a statistic that have a value."""
    return rows_for(study, statistic, stack).dropna(subset="value")


def uniform_shares(study: Study, statistic: str, stack: str) -> dict[int, float]:
    """By layer, the value that uniform attention would have; empty if that is not known."""
    return {
        int(row["layer"]): float(row["value"])
        for row in records_of(study, "uniform")
        if row["stack"] == stack and row["statistic"] == statistic
    }


def stacks_with(study: Study, statistic: str) -> list[str]:
    """The stacks in which a statistic has at least one value."""
    present = {str(name) for name in values_for(study, statistic)["stack"]}
    return [stack for stack in stacks_of(study) if stack in present]


def maps_of(study: Study, kind: Literal["map", "offset"], axes: int) -> dict[str, NDArray[Any]]:
    """The maps of a kind by stack, in order; arrays of another shape or without a number are left out."""
    prefix = f"{kind}/"
    stacks = [key.removeprefix(prefix) for key in study.maps if key.startswith(prefix)]
    maps = {stack: study.maps[prefix + stack] for stack in sorted(stacks, key=stack_order) if stack}
    return {s: m for s, m in maps.items() if m.ndim == axes and np.isfinite(m).any()}


def mean_over(values: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
    """The mean of the finite values along an axis of a matrix; NaN if there is none."""
    counts = np.isfinite(values).sum(axis=axis)
    means: NDArray[np.float64] = np.full(counts.shape, np.nan)
    np.divide(np.nansum(values, axis=axis), counts, out=means, where=counts > 0)
    return means


def records_of(study: Study, name: str) -> list[dict[Any, Any]]:
    """The rows of a table; none if the study does not have it."""
    return study.tables[name].to_dict("records") if name in study.tables else []


def threshold_of(study: Study, name: str, default: float) -> float:
    """The threshold of a role in this study."""
    return float(study.record.get("options", {}).get("thresholds", {}).get(name, default))


def entry_of(record: Mapping[str, Any], *keys: str) -> Any:
    """record[key][key]…, or None if a step is missing: every key of a run record is optional."""
    value: Any = record
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def model_name(study: Study) -> str:
    """The model's name as recorded, for a path its last part; "model" if it is not known."""
    name = entry_of(study.record, "model", "name") or entry_of(study.record, "model", "path")
    return plain(local_name(str(name)), 80) if name else "model"
