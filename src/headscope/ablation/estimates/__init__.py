"""Estimates of head importance that cost less than exact ablation. One per file; files need no registration.

A file defines

estimate(inputs)  the function that scores all heads and returns an `Estimate`
DEFINITIONS       the statistics that it adds to heads.csv, by name
COST              its cost in forward passes over the examples, which a search adds to its evaluations

The name of the file is the name of the estimate in `importance --by` and `prune --by`. `config/names` lists the files
without importing them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from headscope.ablation.agreement import Importance
from headscope.config.importance import ImportanceConfig
from headscope.config.names import ESTIMATES, statistics_of_texts
from headscope.heads import Head
from headscope.model.attention_model import AttentionModel
from headscope.statistics import select_statistics, stream
from headscope.statistics.base import Definition
from headscope.tables import Row, TableRow
from headscope.tasks.base import Task
from headscope.tasks.prepared import Prepared, batch_of, plan_batches

if TYPE_CHECKING:
    from headscope.ablation.estimates.gradient import Terms

FORWARD, BACKWARD = 1.0, 3.0  # costs of one pass over the examples, without and with gradients


@dataclass
class EstimateInputs:
    """Model, examples and options that an estimate is computed from.

    heads  the heads that the task uses
    units  heads that can only be pruned together: their signed terms are summed before absolute values are taken
    terms  gradient terms, if they were computed already for a sequential test
    """

    model: AttentionModel
    task: Task
    prepared: Prepared
    heads: tuple[Head, ...]
    config: ImportanceConfig
    seed: int = 0
    units: Sequence[tuple[Head, ...]] = ()
    log: Callable[[str], None] = lambda line: None
    progress: Callable[[int, int], None] = lambda done, total: None
    terms: Terms | None = None
    _measured: list[Row] | None = field(default=None, init=False)

    def measure(self, name: str) -> list[Row]:
        """Rows of a statistic of attention. The first call measures all statistics in `config.by` in one pass."""
        if self._measured is None:
            names = [name for name in self.config.by if name in statistics_of_texts()]
            self.log(" and ".join(names))
            statistics = select_statistics(names)
            numbers = plan_batches(self.prepared, self.config.batch_size)
            batches = (batch_of(self.model, self.prepared, batch) for batch in numbers)
            for _ in stream(self.model, batches, statistics):
                pass
            self._measured = [row for statistic in statistics for row in statistic.table()]
        return [row for row in self._measured if row.statistic == name]


@dataclass
class Estimate:
    """Scores of heads.

    heads        the heads, in the order of the last axis of the importances
    rows         rows of heads.csv
    importances  by statistic; larger means more important. `prune --by` uses the statistic with the estimate's name, or
                 else the first. Empty if the estimate is not defined for the model
    tables       rows of other tables, by name of the table
    """

    heads: tuple[Head, ...]
    rows: list[Row] = field(default_factory=list)
    importances: dict[str, Importance] = field(default_factory=dict)
    tables: dict[str, list[TableRow]] = field(default_factory=dict)

    def importances_of(self, heads: tuple[Head, ...]) -> dict[str, Importance]:
        """The importances of these heads only: exact ablation may have fewer heads, e.g. no cross-attention."""
        if heads == self.heads:
            return self.importances
        columns = [self.heads.index(head) for head in heads]

        def select(values: Importance) -> Importance:
            return (
                (lambda items: values(items)[columns]) if callable(values) else values[..., columns]
            )

        return {name: select(values) for name, values in self.importances.items()}


def compute_estimate(name: str, inputs: EstimateInputs) -> Estimate:
    result: Estimate = _module(name).estimate(inputs)
    return result


def cost_of(name: str) -> float:
    return float(_module(name).COST)


def definitions() -> dict[str, Definition]:
    """The statistics that estimates add to heads.csv."""
    modules = [_module(name) for name in ESTIMATES]
    return {
        name: definition for module in modules for name, definition in module.DEFINITIONS.items()
    }


def _module(name: str) -> ModuleType:
    return import_module(f"{__name__}.{name.replace('-', '_')}")
