"""Results of a sweep: changes of loss and metric by each ablation, and their tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from headscope.ablation.ablation_targets import Variant
from headscope.ablation.significance import (
    ALPHA,
    Delta,
    delta_of_losses,
    delta_of_metric,
    holm,
    metric_on,
    resamples,
)
from headscope.ablation.sweep import INTACT, Unit
from headscope.tables import Row, TableRow
from headscope.tasks.base import Task

if TYPE_CHECKING:
    from numpy.typing import NDArray

LOSS, METRIC = "ablation-loss", "ablation-metric"
FIRST_LOOK = 32  # smallest number of examples for which the verdicts of `settled_at` are computed


@dataclass
class Deltas:
    """Losses [item] and scores [item, column] of the intact model and of every variant.

    Items that a variant was not run on are NaN: a sequential test does not run all heads on all examples.
    """

    task: Task
    count: int
    seed: int = 0
    losses: dict[Variant, NDArray[np.float64]] = field(default_factory=dict)
    scores: dict[Variant, NDArray[np.float64]] = field(default_factory=dict)
    _metric_deltas: dict[tuple[Variant, bytes], Delta] = field(default_factory=dict, repr=False)
    _intact: dict[bytes, tuple[NDArray[np.int64], NDArray[np.float64]]] = field(
        default_factory=dict, repr=False
    )

    def add(self, unit: Unit) -> None:
        """Add the losses and scores of a finished unit."""
        items = list(unit.items)
        for i, variant in enumerate(unit.variants):
            losses = self.losses.setdefault(variant, np.full(self.count, np.nan))
            shape = (self.count, unit.scores.shape[-1])
            scores = self.scores.setdefault(variant, np.full(shape, np.nan))
            losses[items], scores[items] = unit.losses[i], unit.scores[i]

    @property
    def order(self) -> list[int]:
        """The items that the intact model was run on, in random order."""
        is_run = np.isfinite(self.losses[INTACT])
        order = np.random.default_rng(self.seed).permutation(self.count)
        return [int(i) for i in order if is_run[i]]

    def variants(self, kind: str) -> list[Variant]:
        """The variants of a kind that were run on some items."""
        return [variant for variant in self.losses if variant.kind == kind and variant != INTACT]

    def changes(self, variant: Variant) -> NDArray[np.float64]:
        """[item]: the change of loss; NaN for items that the variant was not run on."""
        return self.losses[variant] - self.losses[INTACT]

    def of_loss(self, variant: Variant, items: NDArray[np.int64] | None = None) -> Delta:
        """The mean change of loss on these items, by default on all items that the variant was run on."""
        items = self._items_run(variant, items)
        return delta_of_losses(self.losses[INTACT][items], self.losses[variant][items])

    def of_metric(self, variant: Variant, items: NDArray[np.int64] | None = None) -> Delta:
        """The change of the metric on these items, by default on all items that the variant was run on."""
        items = self._items_run(variant, items)
        key = (variant, items.tobytes())
        if key not in self._metric_deltas:
            before, after = self.scores[INTACT][items], self.scores[variant][items]
            draws, intact = None, None
            if self.task.mean_column is None:
                draws, intact = self._resample_intact(items)
            self._metric_deltas[key] = delta_of_metric(self.task, before, after, draws, intact)
        return self._metric_deltas[key]

    def _resample_intact(
        self, items: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Resamples of these items, and the intact model's metric on each; computed once for all heads."""
        key = items.tobytes()
        if key not in self._intact:
            draws = resamples(len(items), self.seed)
            self._intact[key] = draws, metric_on(self.task, self.scores[INTACT][items], draws)
        return self._intact[key]

    def _items_run(self, variant: Variant, items: NDArray[np.int64] | None) -> NDArray[np.int64]:
        """The items that a variant was run on, among `items` or all."""
        is_run = np.isfinite(self.losses[variant])
        return np.flatnonzero(is_run) if items is None else items[is_run[items]]

    # Tables

    def rows(self) -> list[Row]:
        """ablation-loss and ablation-metric of every head, for heads.csv: ablated minus intact."""
        rows = []
        for name, measure in ((LOSS, self.of_loss), (METRIC, self.of_metric)):
            for variant in sorted(self.variants("head"), key=lambda variant: variant.heads[0]):
                delta = measure(variant)
                values = delta.value, delta.low, delta.high, delta.count
                rows.append(Row.of(variant.heads[0], name, *values))
        return rows

    def significance(self) -> list[TableRow]:
        """Rows of significance.csv: a paired test for each head, adjusted by Holm's rule over all heads."""
        variants = sorted(self.variants("head"), key=lambda variant: variant.heads[0])
        settled_at = self._examples_to_settle(variants)
        rows: list[TableRow] = []
        for name, measure in ((LOSS, self.of_loss), (METRIC, self.of_metric)):
            for variant, columns in zip(variants, _columns(variants, measure), strict=True):
                row: TableRow = {**asdict(variant.heads[0]), "statistic": name, **columns}
                rows.append(row | {"settled_at": settled_at[variant] if name == LOSS else None})
        return rows

    def _examples_to_settle(self, variants: list[Variant]) -> dict[Variant, int]:
        """For each variant, the number of examples from which on the verdict on its loss stays the same."""
        order = self.order
        sizes = [FIRST_LOOK * 2**k for k in range(30) if FIRST_LOOK * 2**k < len(order)]
        sizes.append(len(order))
        verdicts = []
        for size in sizes:
            items = np.array(order[:size])
            p_values = np.array([self.of_loss(variant, items).p for variant in variants])
            verdicts.append(holm(p_values) < ALPHA)
        table = np.array(verdicts)  # [size, head]
        result = {}
        for i, variant in enumerate(variants):
            differs = np.flatnonzero(table[:, i] != table[-1, i])
            result[variant] = sizes[0 if not len(differs) else int(differs[-1]) + 1]
        return result

    def ablations(self, kinds: Iterable[str]) -> list[TableRow]:
        """Rows of ablations.csv: ablations other than of a single head."""
        rows: list[TableRow] = []
        for kind in kinds:
            variants = self.variants(kind)
            losses = _columns(variants, self.of_loss, "loss_")
            metrics = _columns(variants, self.of_metric, "metric_")
            for variant, loss, metric in zip(variants, losses, metrics, strict=True):
                row = {"kind": kind, "named": variant.named, "removed": len(variant.heads)}
                rows.append(row | loss | metric)
        return rows

    def all_but_one(self) -> list[TableRow]:
        """Rows of all_but_one.csv: for each site, the best head to keep if all others are removed.

        The head is selected on one half of the examples and reported on the other. In the columns same_data_… it is
        selected and reported on all examples, as Michel et al. do.
        """
        sites: dict[str, list[Variant]] = {}
        for variant in self.variants("only"):
            sites.setdefault(str(variant.heads[0].site), []).append(variant)
        halves = np.array_split(np.array(self.order), 2)
        rows: list[TableRow] = []
        for site, variants in sites.items():
            best = min(variants, key=lambda variant: self.of_loss(variant, halves[0]).value)
            loss, metric = self.of_loss(best, halves[1]), self.of_metric(best, halves[1])
            same = max(variants, key=lambda variant: self.of_metric(variant).value)
            row: TableRow = {"site": site, "left": best.named}
            row |= {"loss": loss.value, "loss_low": loss.low, "loss_high": loss.high}
            row |= {"metric": metric.value, "metric_low": metric.low, "metric_high": metric.high}
            row |= {"p": metric.p, "same_data_left": same.named}
            row |= {"same_data_metric": self.of_metric(same).value, "count": metric.count}
            rows.append(row)
        for row, p in zip(rows, holm(np.array([row["p"] for row in rows])), strict=True):
            row["p_adjusted"] = float(p)
        return rows


def _columns(
    variants: list[Variant], measure: Callable[[Variant], Delta], prefix: str = ""
) -> list[TableRow]:
    """For each variant, the columns of its change; p-values are adjusted over all variants."""
    deltas = [measure(variant) for variant in variants]
    rows: list[TableRow] = []
    for delta, p in zip(deltas, holm(np.array([delta.p for delta in deltas])), strict=True):
        interval = {"value": delta.value, "low": delta.low, "high": delta.high}
        test = {"test": delta.test, "p": delta.p, "p_adjusted": float(p)}
        verdict = {"is_significant": bool(p < ALPHA), "count": delta.count}
        rows.append({f"{prefix}{name}": v for name, v in (interval | test | verdict).items()})
    return rows
