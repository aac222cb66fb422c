"""Statistics through lenses other than raw attention."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from headscope.analysis.label_free_losses import Loss, loss_of
from headscope.errors import HeadscopeError
from headscope.model.attention_model import AttentionModel
from headscope.model.lenses import LENSES, Lens
from headscope.statistics import Statistic, select_statistics
from headscope.statistics.stream import Losses
from headscope.study.schema.names import through_lens
from headscope.study.schema.record import Section
from headscope.tables import Row, TableRow

RAW = "raw"


def check_lenses(lenses: Iterable[str], statistics: list[str] | None) -> None:
    """Raise an error if none of the named statistics is defined for one of the lenses."""
    others = [name for name in lenses if name != RAW]
    for name in others or [RAW]:
        kind = None if name == RAW else LENSES[name]
        if not any(statistic.names for statistic in select_statistics(statistics, kind)):
            defined = [n for statistic in select_statistics(None, kind) for n in statistic.names]
            what = f"{', '.join(statistics or [])} is not defined for the lens {name}"
            expected = f"some of {', '.join(defined)}"
            raise HeadscopeError(what, where="`statistics`", expected=expected)


class LensStatistics:
    """The lenses of one analysis, except raw, and their statistics.

    through  {lens: the statistics that are computed from its maps}
    loss     the loss that lenses with gradients differentiate; None if there are no such lenses
    """

    def __init__(
        self,
        model: AttentionModel,
        names: tuple[str, ...],
        statistics: list[str] | None,
        *,
        pairs: bool,
        seed: int,
    ) -> None:
        self.names = names
        others = [name for name in names if name != RAW]
        self.through: dict[Lens, list[Statistic]] = {
            LENSES[name](model): select_statistics(statistics, LENSES[name]) for name in others
        }
        needs_loss = any(lens.needs_gradient for lens in self.through)
        self.loss: Loss | None = loss_of(model, pairs=pairs, seed=seed) if needs_loss else None

    @property
    def losses(self) -> Losses | None:
        return None if self.loss is None else self.loss.of

    def rows(self) -> Iterator[Row]:
        """Rows of heads.csv; statistics are named STATISTIC@LENS."""
        for lens, statistics in self.through.items():
            for row in (row for statistic in statistics for row in statistic.table()):
                yield replace(row, statistic=through_lens(row.statistic, lens.name))

    def tables(self) -> dict[str, list[TableRow]]:
        """Rows of further tables of these statistics, by name of the table."""
        statistics = [statistic for of_lens in self.through.values() for statistic in of_lens]
        items = [item for statistic in statistics for item in statistic.tables().items()]
        return {name: rows for name, rows in items if rows}

    def describe(self) -> Section:
        """Section of run.json: the loss that is differentiated, and what each lens records."""
        described: Section = (
            {} if self.loss is None else {"loss": self.loss.name, "loss_means": self.loss.sentence}
        )
        for lens in self.through:
            if counts := lens.record():
                described[lens.name] = counts
        return described
