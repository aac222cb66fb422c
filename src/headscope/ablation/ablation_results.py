"""The units of a sweep put together: what each removal changed, example by example, and what that amounts to."""

from __future__ import annotations

from collections.abc import Iterable
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
FIRST_LOOK = 32  # examples


@dataclass
class Deltas:
    """Losses [item] and scores [item, column] of the intact model and of every variant; NaN where one was not run."""

    task: Task
    count: int
    seed: int = 0
    losses: dict[Variant, NDArray[np.float64]] = field(default_factory=dict)
    scores: dict[Variant, NDArray[np.float64]] = field(default_factory=dict)
    _found: dict[tuple[Variant, bytes], Delta] = field(default_factory=dict, repr=False)
    _intact: dict[bytes, tuple[NDArray[np.int64], NDArray[np.float64]]] = field(
        default_factory=dict, repr=False
    )

    def add(self, unit: Unit) -> None:
        items = list(unit.items)
        for i, variant in enumerate(unit.variants):
            losses = self.losses.setdefault(variant, np.full(self.count, np.nan))
            shape = (self.count, unit.scores.shape[-1])
            scores = self.scores.setdefault(variant, np.full(shape, np.nan))
            losses[items], scores[items] = unit.losses[i], unit.scores[i]

    @property
    def order(self) -> list[int]:
        """The items that were run, in random order, however they were met."""
        there = np.isfinite(self.losses[INTACT])
        order = np.random.default_rng(self.seed).permutation(self.count)
        return [int(i) for i in order if there[i]]

    def variants(self, kind: str) -> list[Variant]:
        return [variant for variant in self.losses if variant.kind == kind and variant != INTACT]

    def changes(self, variant: Variant) -> NDArray[np.float64]:
        """[item]: the change of loss, NaN where it was not run."""
        return self.losses[variant] - self.losses[INTACT]

    def of_loss(self, variant: Variant, items: NDArray[np.int64] | None = None) -> Delta:
        chosen = self._run(variant, items)
        return delta_of_losses(self.losses[INTACT][chosen], self.losses[variant][chosen])

    def of_metric(self, variant: Variant, items: NDArray[np.int64] | None = None) -> Delta:
        chosen = self._run(variant, items)
        key = (variant, chosen.tobytes())
        if key not in self._found:
            before, after = self.scores[INTACT][chosen], self.scores[variant][chosen]
            draws, intact = (
                (None, None) if self.task.mean_column is not None else self._resampled(chosen)
            )
            self._found[key] = delta_of_metric(self.task, before, after, draws, intact)
        return self._found[key]

    def _resampled(
        self, chosen: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Resamples of these items, and the intact model's metric on them: the same for all heads."""
        key = chosen.tobytes()
        if key not in self._intact:
            draws = resamples(len(chosen), self.seed)
            self._intact[key] = draws, metric_on(self.task, self.scores[INTACT][chosen], draws)
        return self._intact[key]

    def _run(self, variant: Variant, items: NDArray[np.int64] | None) -> NDArray[np.int64]:
        there = np.isfinite(self.losses[variant])
        return np.flatnonzero(there) if items is None else items[there[items]]

    # Tables

    def rows(self) -> list[Row]:
        """ablation-loss and ablation-metric of every head, for heads.csv: ablated minus intact."""
        found = []
        for name, delta in ((LOSS, self.of_loss), (METRIC, self.of_metric)):
            for variant in sorted(self.variants("head"), key=lambda one: one.heads[0]):
                head, one = variant.heads[0], delta(variant)
                found.append(Row.of(head, name, one.value, one.low, one.high, one.count))
        return found

    def significance(self) -> list[TableRow]:
        """The rows of significance.csv: a paired test for each head, adjusted by Holm over all heads."""
        variants = sorted(self.variants("head"), key=lambda one: one.heads[0])
        settled = self._settled(variants)
        found: list[TableRow] = []
        for name, delta in ((LOSS, self.of_loss), (METRIC, self.of_metric)):
            deltas = [delta(variant) for variant in variants]
            adjusted = holm(np.array([one.p for one in deltas]))
            for variant, one, p in zip(variants, deltas, adjusted, strict=True):
                row = {**asdict(variant.heads[0]), "statistic": name, **_columns(one, float(p))}
                found.append(row | {"settled_at": settled[variant] if name == LOSS else None})
        return found

    def _settled(self, variants: list[Variant]) -> dict[Variant, int]:
        """The number of examples after which the verdict on the loss never changed again."""
        order = self.order
        sizes = [FIRST_LOOK * 2**k for k in range(30) if FIRST_LOOK * 2**k < len(order)]
        sizes.append(len(order))
        verdicts = []
        for size in sizes:
            seen = np.array(order[:size])
            p_values = np.array([self.of_loss(variant, seen).p for variant in variants])
            verdicts.append(holm(p_values) < ALPHA)
        table = np.array(verdicts)
        found = {}
        for i, variant in enumerate(variants):
            differs = np.flatnonzero(table[:, i] != table[-1, i])
            found[variant] = sizes[0 if not len(differs) else int(differs[-1]) + 1]
        return found

    def ablations(self, kinds: Iterable[str]) -> list[TableRow]:
        """The rows of ablations.csv: what is not the removal of a single head."""
        found: list[TableRow] = []
        for kind in kinds:
            variants = self.variants(kind)
            rows: list[TableRow] = [
                {"kind": kind, "named": variant.named, "removed": len(variant.heads)}
                for variant in variants
            ]
            for prefix, measure in (("loss_", self.of_loss), ("metric_", self.of_metric)):
                deltas = [measure(variant) for variant in variants]
                adjusted = holm(np.array([delta.p for delta in deltas]))
                for row, delta, p in zip(rows, deltas, adjusted, strict=True):
                    row |= _columns(delta, float(p), prefix)
            found += rows
        return found

    def all_but_one(self) -> list[TableRow]:
        """For each site the best head to be left alone: chosen on one half of the examples, reported on the other.

        same_data_…: chosen and reported on all of them, as Michel did.
        """
        sites: dict[str, list[Variant]] = {}
        for variant in self.variants("only"):
            sites.setdefault(str(variant.heads[0].site), []).append(variant)
        halves = np.array_split(np.array(self.order), 2)
        found: list[TableRow] = []
        for site, variants in sites.items():
            best = min(variants, key=lambda one: self.of_loss(one, halves[0]).value)
            loss, metric = self.of_loss(best, halves[1]), self.of_metric(best, halves[1])
            same = max(variants, key=lambda one: self.of_metric(one).value)
            found.append(
                {
                    "site": site,
                    "left": best.named,
                    "loss": loss.value,
                    "loss_low": loss.low,
                    "loss_high": loss.high,
                    "metric": metric.value,
                    "metric_low": metric.low,
                    "metric_high": metric.high,
                    "p": metric.p,
                    "same_data_left": same.named,
                    "same_data_metric": self.of_metric(same).value,
                    "count": metric.count,
                }
            )
        for row, p in zip(found, holm(np.array([row["p"] for row in found])), strict=True):
            row["p_adjusted"] = float(p)
        return found


def _columns(delta: Delta, adjusted: float, prefix: str = "") -> TableRow:
    """Columns of a change, with the adjusted p-value."""
    columns = {
        "value": delta.value,
        "low": delta.low,
        "high": delta.high,
        "test": delta.test,
        "p": delta.p,
        "p_adjusted": adjusted,
        "is_significant": bool(adjusted < ALPHA),
        "count": delta.count,
    }
    return {f"{prefix}{name}": value for name, value in columns.items()}
