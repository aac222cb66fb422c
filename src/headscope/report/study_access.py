"""Read access to a study for figures and page: stacks, statistics, layers x heads grids, record entries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from headscope.report.text import plain
from headscope.study.local_paths import local_name
from headscope.tables import STACKS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headscope.study.study import Study

Column = Literal["value", "low", "high", "count"]


MOST = 1000  # layers or heads that are believed of a record


def stacks_of(study: Study) -> list[str]:
    """The stacks that have rows, in the order in which stacks are listed everywhere."""
    found = dict.fromkeys(str(name) for name in study.heads["stack"])
    return sorted(
        found, key=lambda name: (STACKS.index(name) if name in STACKS else len(STACKS), name)
    )


def statistics_of(study: Study) -> list[str]:
    """The statistics that have rows, in the order of the table."""
    return list(dict.fromkeys(str(name) for name in study.heads["statistic"]))


def shape_of(study: Study, stack: str) -> tuple[int, int]:
    """(layers, heads) of a stack: what the model has, and at least the extent of its rows, whatever the statistic."""
    rows = study.heads[study.heads["stack"] == stack]
    known = [recorded(study.record, "model", side, stack) for side in ("layers", "heads")]
    layers, heads = (one if isinstance(one, int) and one < MOST else 0 for one in known)
    return max(layers, int(rows["layer"].max()) + 1), max(heads, int(rows["head"].max()) + 1)


def grid_of(
    study: Study, statistic: str, stack: str, column: Column = "value"
) -> NDArray[np.float64]:
    """One column of one statistic as [layer, head]; NaN where a head has no row."""
    grid = np.full(shape_of(study, stack), np.nan)
    rows = study.heads[(study.heads["stack"] == stack) & (study.heads["statistic"] == statistic)]
    grid[rows["layer"].to_numpy(), rows["head"].to_numpy()] = rows[column].to_numpy(dtype=float)
    return grid


def stacks_with(study: Study, statistic: str) -> list[str]:
    """The stacks in which a statistic has at least one value."""
    rows = study.heads[(study.heads["statistic"] == statistic) & study.heads["value"].notna()]
    present = {str(name) for name in rows["stack"]}
    return [stack for stack in stacks_of(study) if stack in present]


def maps_of(study: Study, kind: Literal["map", "offset"], axes: int) -> dict[str, NDArray[Any]]:
    """The maps of a kind by stack, in order; arrays of another shape or without a number are left out."""
    found = {}
    for key in sorted(study.maps, key=lambda name: (_rank(name.partition("/")[2]), name)):
        prefix, _, stack = key.partition("/")
        array = study.maps[key]
        if (
            prefix == kind
            and stack
            and array.ndim == axes
            and array.size
            and np.isfinite(array).any()
        ):
            found[stack] = array
    return found


def _rank(stack: str) -> int:
    return STACKS.index(stack) if stack in STACKS else len(STACKS)


def recorded(record: Mapping[str, Any], *keys: str) -> Any:
    """record[key][key]…, or None where a step is missing: every key of a run record is optional."""
    here: Any = record
    for key in keys:
        here = here.get(key) if isinstance(here, Mapping) else None
    return here


def model_name(study: Study) -> str:
    """The model's name as recorded, of a directory its own name; "model" where it is not known."""
    name = recorded(study.record, "model", "name") or recorded(study.record, "model", "path")
    return plain(local_name(str(name)), 80) if name else "model"
