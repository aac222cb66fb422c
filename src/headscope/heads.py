"""Addresses of heads: `encoder.3.2`, or `3.2` if the model has one stack. Sets: `3.2,4.*,cross.5.0-3`.

Layers and heads are counted from 0. After pruning heads keep the numbers of the original model.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from numbers import Integral
from typing import Any

from headscope.errors import HeadscopeError

FORM = "heads as LAYER.HEAD, both counted from 0, such as 3.2, 4.* or 4.0-3; with several stacks cross.5.2"
_ITEM = re.compile(
    r"(?:(?P<stack>[a-z]+)\.)?(?P<layer>\d+|\*)\.(?P<first>\d+|\*)(?:-(?P<last>\d+))?"
)


@dataclass(frozen=True, order=True)
class Site:
    """One call of an attention module in a forward pass.

    Parameters
    ----------
    stack
        `encoder`, `decoder` or `cross`.
    layer
        Counted from 0.
    numbers
        Head numbers in the order of the site's tensors; None if the site is only an address. After pruning they are a
        subset of the original model's. They are not compared: sites are equal by stack and layer.

    Examples
    --------
    >>> str(headscope.Site("encoder", 3))
    'encoder.3'
    """

    stack: str
    layer: int
    numbers: tuple[int, ...] | None = field(default=None, compare=False, repr=False)

    def heads(self, width: int) -> list[Head]:
        """The heads along an axis of length `width` of the site's tensors."""
        numbers = range(width) if self.numbers is None else self.numbers
        assert len(numbers) == width, f"{self} has {len(numbers)} heads, not {width}"
        return [Head(self.stack, self.layer, number) for number in numbers]

    def index_of(self, head: int) -> int:
        """Index of a head number along the head axis of the site's tensors."""
        return head if self.numbers is None else self.numbers.index(head)

    def __str__(self) -> str:
        return f"{self.stack}.{self.layer}"


@dataclass(frozen=True, order=True)
class Head:
    """The address of a head; layers and heads are counted from 0.

    Parameters
    ----------
    stack
        `encoder`, `decoder` or `cross`.
    layer, head
        The layer, and the number of the head in it.

    Examples
    --------
    >>> head = headscope.Head("encoder", 3, 2)
    >>> str(head), head.site
    ('encoder.3.2', Site(stack='encoder', layer=3))
    """

    stack: str
    layer: int
    head: int

    @classmethod
    def of_row(cls, row: Mapping[Any, Any]) -> Head:
        """The head of a row with the columns stack, layer and head."""
        return cls(str(row["stack"]), int(row["layer"]), int(row["head"]))

    @property
    def site(self) -> Site:
        return Site(self.stack, self.layer)

    def __str__(self) -> str:
        return f"{self.stack}.{self.layer}.{self.head}"


HeadName = str | Head | tuple[int, int] | tuple[str, int, int]
Heads = HeadName | Iterable[HeadName]  # every form in which a user may name heads


def head_names(heads: Heads) -> list[str | Head]:
    """A list of heads, each as text or `Head`: (3, 2) becomes "3.2", ("cross", 3, 2) becomes "cross.3.2"."""
    if isinstance(heads, str | Head):
        return [heads]
    if (address := _address(heads)) is not None:
        return [address]
    names: list[str | Head] = []
    for item in heads if isinstance(heads, Iterable) else [heads]:
        name = item if isinstance(item, str | Head) else _address(item)
        if name is None:
            raise HeadscopeError(
                f"{item!r} does not name a head",
                where="heads",
                expected=f"{FORM}; or (LAYER, HEAD)",
                fix=f'Write "{item}"' if isinstance(item, float) else None,
            )
        names.append(name)
    return names


def format_heads(heads: Heads) -> str:
    """Heads as one text: [(3, 2), "4.*"] becomes "3.2,4.*"."""
    return ",".join(map(str, head_names(heads)))


def _address(head: object) -> str | None:
    """(3, 2) as "3.2", ("cross", 3, 2) as "cross.3.2"; None for anything else."""
    if not isinstance(head, tuple) or len(head) not in (2, 3):
        return None
    *stack, layer, number = head
    are_numbers = all(isinstance(i, Integral) and not isinstance(i, bool) for i in (layer, number))
    is_address = are_numbers and all(isinstance(name, str) for name in stack)
    return ".".join(map(str, head)) if is_address else None


class HeadSet(Collection[Head]):
    """A subset of a model's heads; iterates in order, and `str` gives the text that names it.

    Parameters
    ----------
    heads
        `"3.2,4.*"`, `[(3, 2), (4, 0)]` or `Head` objects.
    among
        All heads of the model (`model.heads`). They resolve `*`.

    Raises
    ------
    HeadscopeError
        If a head is not among those of the model.

    Examples
    --------
    >>> every = [headscope.Head("encoder", layer, head) for layer in range(2) for head in range(3)]
    >>> heads = headscope.HeadSet("0.1,1.*", among=every)
    >>> len(heads), str(heads)
    (4, '0.1,1.*')
    """

    def __init__(self, heads: Heads, *, among: Iterable[Head]) -> None:
        self.among = tuple(among)
        parsed = ([n] if isinstance(n, Head) else self._parse(n) for n in head_names(heads))
        self._heads = frozenset(chain.from_iterable(parsed))
        unknown = sorted(self._heads - set(self.among))
        if unknown:
            what = f"{unknown[0]} is not a head of this model"
            raise HeadscopeError(what, expected=self._extent())

    def _parse(self, text: str) -> list[Head]:
        return [head for item in text.split(",") for head in self._select(item.strip(), text)]

    def _select(self, item: str, text: str) -> list[Head]:
        """The heads of one item, such as `4.*`. text: the text with all items, for errors."""
        where = f'heads "{text}"'
        match = _match(item, where)
        stacks = sorted({head.stack for head in self.among})
        if match["stack"] is None and len(stacks) > 1:
            what, fix = f'"{item}" could be in {" or ".join(stacks)}', f'Write "{stacks[0]}.{item}"'
            raise HeadscopeError(what, where=where, fix=fix)
        of_stack = [head for head in self.among if head.stack == (match["stack"] or stacks[0])]
        layer, first, last = match["layer"], match["first"], match["last"] or match["first"]
        selected = [head for head in of_stack if layer in ("*", str(head.layer))]
        count = 1
        if first != "*":
            selected = [head for head in selected if int(first) <= head.head <= int(last)]
            count = max(int(last) - int(first) + 1, 1)
            if int(last) > max((head.head for head in of_stack), default=-1):
                selected = []
        if len(selected) < count:
            raise HeadscopeError(
                f'"{item}" is not in this model', where=where, expected=self._extent()
            )
        return selected

    def _extent(self) -> str:
        """The model's layers and heads, for messages: `encoder layers 0 to 5 with heads 0 to 11`."""
        parts = []
        for stack in sorted({head.stack for head in self.among}):
            heads = [head for head in self.among if head.stack == stack]
            layer, number = max(head.layer for head in heads), max(head.head for head in heads)
            parts.append(f"{stack} layers 0 to {layer} with heads 0 to {number}")
        return ", ".join(parts) or "no heads"

    def by_site(self) -> dict[Site, list[int]]:
        """The head numbers at each site, in order."""
        numbers: defaultdict[Site, list[int]] = defaultdict(list)
        for head in self:
            numbers[head.site].append(head.head)
        return dict(numbers)

    def __contains__(self, head: object) -> bool:
        return head in self._heads

    def __iter__(self) -> Iterator[Head]:
        return iter(sorted(self._heads))

    def __len__(self) -> int:
        return len(self._heads)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HeadSet) and self._heads == other._heads

    def __hash__(self) -> int:
        return hash(self._heads)

    def __str__(self) -> str:
        one_stack = len({head.stack for head in self.among}) == 1
        widths = Counter(head.site for head in self.among)
        items = []
        for site, numbers in self.by_site().items():
            address = str(site.layer) if one_stack else str(site)
            if len(numbers) == widths[site]:
                items.append(f"{address}.*")
            else:
                items += [f"{address}.{run}" for run in _runs(numbers)]
        return ",".join(items)

    def __repr__(self) -> str:
        return f"HeadSet({str(self)!r})"


def check_heads(heads: str) -> None:
    """Refuse text that does not have the form of heads. Whether the model has them is checked by `HeadSet`."""
    for item in heads.split(","):
        _match(item.strip(), f'heads "{heads}"')


def _match(item: str, where: str) -> re.Match[str]:
    match = _ITEM.fullmatch(item)
    if match is None:
        raise HeadscopeError(f'"{item}" does not name a head', where=where, expected=FORM)
    return match


def _runs(numbers: list[int]) -> list[str]:
    """[0, 1, 2, 3, 7] as ["0-3", "7"]."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
