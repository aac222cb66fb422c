"""Base classes of statistics, which are computed for every head in one pass over the data and can be merged.

A statistic implements `update(attention)`, `merge(other)` and `table()`. Its state is picklable and its sums are
float64. Therefore batch size, order, restarts and distribution over processes do not change results beyond 1e-6.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import torch
from torch import Tensor

from headscope.heads import Head, Site
from headscope.model.attention import Attention
from headscope.model.lenses import ROWS, SIGN
from headscope.model.row_sums import RowSums, Wanted
from headscope.tables import STACKS, Moments, Row, TableRow, rows_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

Quantities = Attention | RowSums  # argument of `update` if a statistic declares `quantities`

# What a definition requires of the maps of a lens: nothing, as sums of weights are defined for any map; ROWS, that rows
# sum to 1; SIGN, that no weight is negative.
ANY: frozenset[str] = frozenset()
SUMS = frozenset({ROWS})
SHARES = frozenset({ROWS, SIGN})


@dataclass(frozen=True)
class Definition:
    """The meaning of a name in the `statistic` column: unit, title in figures, a sentence, requirements on a lens.

    requires   properties that the maps of a lens must have (ROWS, SIGN); None: defined for raw attention only
    is_signed  whether it is a difference of shares, which can be negative
    """

    unit: Literal["share", "nats", "tokens", "offset", "points", "length", "number", "correlation"]
    title: str
    sentence: str
    requires: frozenset[str] | None = None
    is_signed: bool = False

    @property
    def is_proportion(self) -> bool:
        """Whether values and intervals lie between 0 and 1."""
        return self.unit == "share" and not self.is_signed


def mass_on(short: str, long: str) -> Definition:
    """The definition of a share of attention: the mass on some keys, named in the title and in the sentence."""
    sentence = f"Share of attention to {long}, averaged over queries."
    return Definition("share", f"Attention to {short}", sentence, ANY)


class Statistic(ABC):
    """One statistic, or several that are computed from the same sums.

    names       the names to compute, a subset of `definitions`
    needs       data that it needs in addition to texts, such as "treebank"
    of_raw      False if it compares the map of a lens with raw attention, so that it is not defined for raw attention
    lens        the lens that it is computed through, if there is only one
    quantities  the attributes of `RowSums` that it is computed from. `update` then gets an `Attention` or a `RowSums`,
                in which sequences may differ in length. None: it needs entire maps
    """

    definitions: ClassVar[dict[str, Definition]]
    needs: ClassVar[str | None] = None
    of_raw: ClassVar[bool] = True
    lens: ClassVar[str | None] = None
    quantities: ClassVar[frozenset[str] | None] = None

    def __init__(self, names: tuple[str, ...] | None = None) -> None:
        self.names = tuple(self.definitions) if names is None else names

    def wanted(self, examples: Sequence[int]) -> Wanted:
        """The sums that it needs for a batch with these example indices; only for statistics with `quantities`."""
        return Wanted(self.quantities or frozenset())

    @abstractmethod
    def update(self, attention: Any) -> None:
        """Add one call of a site: `Attention`, or `RowSums` if `quantities` are declared. Must not keep a reference."""

    @abstractmethod
    def merge(self, other: Self) -> Self:
        """Add the sums of a pass over other data, and return self."""

    def table(self) -> list[Row]:
        """One row per head and name; empty if all results are in `maps` or `tables`."""
        return []

    def maps(self) -> dict[str, NDArray[Any]]:
        """Aggregated maps for figures, by their name in maps.npz."""
        return {}

    def tables(self) -> dict[str, list[TableRow]]:
        """Rows of tables other than heads.csv (relations, sinks), by the name of the table."""
        return {}


class Buffered(Statistic):
    """A statistic that collects values of several batches before it adds them to its float64 sums, by site or stack."""

    def __init__(self, names: tuple[str, ...] | None = None) -> None:
        super().__init__(names)
        self._sums: dict[Any, Any] = {}
        self._pending: dict[Any, Any] = {}

    @abstractmethod
    def _settle(self, key: Any) -> None:
        """Add the pending values of this site or stack to the sums."""

    def _settle_all(self) -> dict[Any, Any]:
        """Add all pending values, and return the sums."""
        for key in list(self._pending):
            self._settle(key)
        return self._sums

    def __getstate__(self) -> dict[str, Any]:
        self._settle_all()
        return self.__dict__.copy()


class PerSequence(Buffered):
    """A statistic that has one number per sequence, head and name; its value is the mean over sequences."""

    @abstractmethod
    def measure(self, attention: Any) -> Tensor | None:
        """[sequence, head, name], with names in the order of `definitions`; NaN if a sequence has no value.

        None if the statistic is not defined at this site.
        """

    def update(self, attention: Any) -> None:
        values = self.measure(attention)
        if values is None:
            return
        pending = self._pending.setdefault(attention.site, [])
        pending.append(values)
        # Add many chunks at once: the addition in float64 costs more than the arithmetic before it.
        if len(pending) >= 64:
            self._settle(attention.site)

    def _settle(self, site: Site) -> None:
        values = torch.cat(self._pending.pop(site)).double().cpu().numpy()
        self._sums.setdefault(site, Moments(values.shape[1:])).add(values)

    def merge(self, other: Self) -> Self:
        sums = self._settle_all()
        for site, moments in other._settle_all().items():
            sums.setdefault(site, Moments(moments.total.shape)).merge(moments)
        return self

    def table(self) -> list[Row]:
        rows = []
        for site, moments in sorted(self._settle_all().items()):
            heads = site.heads(moments.total.shape[0])
            for i, (name, definition) in enumerate(self.definitions.items()):
                if name in self.names:
                    is_share = definition.is_proportion
                    rows += rows_of(heads, name, moments.column(i), is_share=is_share)
        return rows


class ByLayer(Statistic):
    """A statistic of layers through one lens. It has moments over sequences by key (site, …) and is shown as tables."""

    definitions = {}

    def __init__(self, names: tuple[str, ...] | None = None) -> None:
        super().__init__(names)
        self._sums: dict[tuple[Any, ...], Moments] = {}

    def add(self, key: tuple[Any, ...], values: Tensor) -> None:
        """Add values [sequence, …]; NaN if a sequence has no value."""
        array = values.double().cpu().numpy()
        self._sums.setdefault(key, Moments(array.shape[1:])).add(array)

    def merge(self, other: Self) -> Self:
        for key, moments in other._sums.items():
            self._sums.setdefault(key, Moments(moments.total.shape)).merge(moments)
        return self

    def layers(self) -> Iterator[tuple[TableRow, tuple[Any, ...], Moments]]:
        """(table columns of the layer, rest of the key, moments), sorted by stack and layer."""
        for site, *rest in sorted(self._sums, key=lambda key: (*stack_order(key[0]), *key[1:])):
            columns: TableRow = {"stack": site.stack, "layer": site.layer}
            yield columns, tuple(rest), self._sums[site, *rest]


def stack_order(site: Site | Head) -> tuple[int, ...]:
    """Sort key: by stack in the order of tables, then by layer, then by head."""
    return STACKS.index(site.stack), site.layer, *([site.head] if isinstance(site, Head) else [])
