"""What a statistic is: a question asked of every head, answered in one pass, mergeable.

A statistic is `update(attention)`, `merge(other)`, `table()`. Its state is picklable and its sums are float64, so
that batch size, order, restarts and spreading over processes do not change the answer (beyond 1e-6).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import torch
from torch import Tensor

from headscope.heads import Site
from headscope.model.attention import Attention
from headscope.model.lenses import ROWS, SIGN
from headscope.tables import Moments, Row, TableRow, rows_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

ANY: frozenset[str] = frozenset()  # sums of weights: they make sense of any map
SUMS = frozenset({ROWS})
SHARES = frozenset({ROWS, SIGN})


@dataclass(frozen=True)
class Definition:
    """What a name in the `statistic` column means: its unit, its title in figures, a sentence, and its lenses."""

    unit: Literal["share", "nats", "tokens", "offset", "points", "length", "number", "correlation"]
    title: str
    sentence: str
    asks: frozenset[str] | None = (
        None  # what a lens' maps must have (ROWS, SIGN) for it to make sense; None: raw alone
    )
    is_signed: bool = False  # a share less another one, which can be negative

    @property
    def is_proportion(self) -> bool:
        """Whether its values lie between 0 and 1, so that its interval does too."""
        return self.unit == "share" and not self.is_signed


class Statistic(ABC):
    """One question, or a few that are answered by the same sums. `names` are those asked for."""

    definitions: ClassVar[dict[str, Definition]]
    needs: ClassVar[str | None] = None  # the data it is asked of beside texts, such as "treebank"
    of_raw: ClassVar[bool] = True  # False: it compares a lens' map with raw attention
    lens: ClassVar[str | None] = (
        None  # the one lens it is asked through, where it is asked through no other
    )

    def __init__(self, names: tuple[str, ...] | None = None) -> None:
        self.names = tuple(self.definitions) if names is None else names

    @abstractmethod
    def update(self, attention: Attention) -> None:
        """Take in one site call; keeps no reference to it."""

    @abstractmethod
    def merge(self, other: Self) -> Self:
        """Add what another pass over other data found; returns self."""

    @abstractmethod
    def table(self) -> list[Row]:
        """One row for each head and name."""

    def maps(self) -> dict[str, NDArray[Any]]:
        """Small aggregate maps for figures, by the name they have in maps.npz."""
        return {}

    def tables(self) -> dict[str, list[TableRow]]:
        """Tables that are not one row a head and name (relations, clusters): rows by the table's name."""
        return {}


class PerSequence(Statistic):
    """A statistic with one number for each sequence, head and name: averaged over sequences, with an interval."""

    def __init__(self, names: tuple[str, ...] | None = None) -> None:
        super().__init__(names)
        self._moments: dict[Site, Moments] = {}
        self._pending: dict[Site, list[Tensor]] = {}

    @abstractmethod
    def measure(self, attention: Attention) -> Tensor | None:
        """[sequence, head, name], names in the order of `definitions`; NaN where a sequence has no answer.

        None if the question makes no sense at this site.
        """

    def update(self, attention: Attention) -> None:
        values = self.measure(attention)
        if values is None:
            return
        pending = self._pending.setdefault(attention.site, [])
        pending.append(values)
        if (
            len(pending) >= 64
        ):  # one float64 addition for many chunks: it costs more than the arithmetic
            self._settle(attention.site)

    def _settle(self, site: Site) -> None:
        values = torch.cat(self._pending.pop(site)).double().cpu().numpy()
        if site not in self._moments:
            self._moments[site] = Moments(values.shape[1:])
        self._moments[site].add(values)

    def _settled(self) -> dict[Site, Moments]:
        for site in list(self._pending):
            self._settle(site)
        return self._moments

    def merge(self, other: Self) -> Self:
        mine = self._settled()
        for site, moments in other._settled().items():
            mine.setdefault(site, Moments(moments.total.shape)).merge(moments)
        return self

    def table(self) -> list[Row]:
        rows = []
        for site, moments in sorted(self._settled().items()):
            heads = site.heads(moments.total.shape[0])
            for i, (name, definition) in enumerate(self.definitions.items()):
                if name in self.names:
                    rows += rows_of(
                        heads, name, moments.column(i), is_share=definition.is_proportion
                    )
        return rows

    def __getstate__(self) -> dict[str, Any]:
        self._settled()
        return self.__dict__.copy()
