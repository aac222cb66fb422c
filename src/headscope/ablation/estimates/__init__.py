"""Estimates of head importance that cost less than exact ablation: one per file, found by itself.

A file defines

estimate(inputs)  the scores of all heads, an `Estimate`
DEFINITIONS       the statistics that it adds to heads.csv, by name
COST              passes over the examples that it takes, for the budget of a search

The name of the file is the name of the estimate, for `importance --by` and `prune --by`; `config/names` lists the files
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
    units  heads that are pruned together: signed terms are added up within a unit before any absolute value
    terms  gradients that were computed already, for a sequential test
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
        """The rows of a statistic of attention; all statistics among the estimates share one pass."""
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

    heads        the columns of the importances
    importances  by statistic, larger means more important; the first is the one that pruning knows by the estimate's
                 name. Empty if the estimate is not defined for the model
    """

    heads: tuple[Head, ...]
    rows: list[Row] = field(default_factory=list)
    importances: dict[str, Importance] = field(default_factory=dict)
    tables: dict[str, list[TableRow]] = field(default_factory=dict)

    def importances_of(self, heads: tuple[Head, ...]) -> dict[str, Importance]:
        """The importances with these heads as columns: exact ablation with fixed patterns has no cross-attention."""
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
