"""What a statistic is: a question asked of every head, answered in one pass, mergeable.

A statistic is `update(attention)`, `merge(other)`, `table()`. Its state is picklable and its sums are float64, so
that batch size, order, restarts and spreading over processes do not change the answer (beyond 1e-6).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import torch
from torch import Tensor

from headscope.heads import Head, Site
from headscope.model.attention import Attention
from headscope.model.lenses import ROWS, SIGN
from headscope.tables import STACKS, Moments, Row, TableRow, rows_of

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
    # What a lens' maps must have (ROWS, SIGN) for it to make sense; None: raw alone
    asks: frozenset[str] | None = None
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
    # The one lens it is asked through, where it is asked through no other
    lens: ClassVar[str | None] = None

    def __init__(self, names: tuple[str, ...] | None = None) -> None:
        self.names = tuple(self.definitions) if names is None else names

    @abstractmethod
    def update(self, attention: Attention) -> None:
        """Take in one site call; keeps no reference to it."""

    @abstractmethod
    def merge(self, other: Self) -> Self:
        """Add what another pass over other data found; returns self."""

    def table(self) -> list[Row]:
        """One row for each head and name; none if the results are maps or tables only."""
        return []

    def maps(self) -> dict[str, NDArray[Any]]:
        """Small aggregate maps for figures, by the name they have in maps.npz."""
        return {}

    def tables(self) -> dict[str, list[TableRow]]:
        """Tables that are not one row a head and name (relations, clusters): rows by the table's name."""
        return {}


class Buffered(Statistic):
    """A statistic that collects a few batches before it adds them to its float64 sums, both by site or stack."""

    def __init__(self, names: tuple[str, ...] | None = None) -> None:
        super().__init__(names)
        self._sums: dict[Any, Any] = {}
        self._pending: dict[Any, Any] = {}

    @abstractmethod
    def _settle(self, key: Any) -> None:
        """Move what is pending under this key to the sums."""

    def _settled(self) -> dict[Any, Any]:
        """The sums with nothing pending."""
        for key in list(self._pending):
            self._settle(key)
        return self._sums

    def __getstate__(self) -> dict[str, Any]:
        self._settled()
        return self.__dict__.copy()


class PerSequence(Buffered):
    """A statistic with one number for each sequence, head and name: averaged over sequences, with an interval."""

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
        # One float64 addition for many chunks: it costs more than the arithmetic
        if len(pending) >= 64:
            self._settle(attention.site)

    def _settle(self, site: Site) -> None:
        values = torch.cat(self._pending.pop(site)).double().cpu().numpy()
        self._sums.setdefault(site, Moments(values.shape[1:])).add(values)

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


class ByLayer(Statistic):
    """A statistic of layers, asked through one lens: moments over sequences by (site, …), shown as tables."""

    definitions = {}

    def __init__(self, names: tuple[str, ...] | None = None) -> None:
        super().__init__(names)
        self._sums: dict[tuple[Any, ...], Moments] = {}

    def add(self, key: tuple[Any, ...], values: Tensor) -> None:
        """values [sequence, …]; NaN where a sequence has none."""
        array = values.double().cpu().numpy()
        self._sums.setdefault(key, Moments(array.shape[1:])).add(array)

    def merge(self, other: Self) -> Self:
        for key, moments in other._sums.items():
            self._sums.setdefault(key, Moments(moments.total.shape)).merge(moments)
        return self

    def layers(self) -> Iterator[tuple[TableRow, tuple[Any, ...], Moments]]:
        """(columns of the layer, rest of the key, moments), in the order of stacks and layers."""
        for site, *rest in sorted(self._sums, key=lambda key: (*stack_order(key[0]), *key[1:])):
            columns: TableRow = {"stack": site.stack, "layer": site.layer}
            yield columns, tuple(rest), self._sums[site, *rest]


def stack_order(site: Site | Head) -> tuple[int, ...]:
    """Sorting key: stacks as they are listed in tables, then layers and heads."""
    return STACKS.index(site.stack), site.layer, *([site.head] if isinstance(site, Head) else [])
