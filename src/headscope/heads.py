"""How a head is addressed: `encoder.3.2`, or `3.2` where the model has one stack; sets `3.2,4.*,cross.5.0-3`.

Layers and heads are counted from 0, always. Head numbers are those of the original model for ever.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from numbers import Integral
from typing import Any

from headscope.errors import HeadscopeError

FORM = "heads as LAYER.HEAD counted from 0, with a stack in front where there are several: 3.2  4.*  cross.5.0-3"
_ITEM = re.compile(
    r"(?:(?P<stack>[a-z]+)\.)?(?P<layer>\d+|\*)\.(?P<first>\d+|\*)(?:-(?P<last>\d+))?"
)


@dataclass(frozen=True, order=True)
class Site:
    """One call of an attention module in a forward pass.

    numbers  the heads it has, in the order of its tensors; None where the site is only an address. After a cut these
             are some of the original model's. They are no part of the address: two sites are the same without them.
    """

    stack: str
    layer: int
    numbers: tuple[int, ...] | None = field(default=None, compare=False, repr=False)

    def heads(self, width: int) -> list[Head]:
        """The heads that the rows of a tensor with `width` of them are of."""
        numbers = range(width) if self.numbers is None else self.numbers
        assert len(numbers) == width, f"{self} has {len(numbers)} heads, not {width}"
        return [Head(self.stack, self.layer, number) for number in numbers]

    def index_of(self, head: int) -> int:
        """Where in this site's tensors the head of this number stands."""
        return head if self.numbers is None else self.numbers.index(head)

    def __str__(self) -> str:
        return f"{self.stack}.{self.layer}"


@dataclass(frozen=True, order=True)
class Head:
    """One head of one site."""

    stack: str
    layer: int
    head: int

    @classmethod
    def of_row(cls, row: Mapping[Any, Any]) -> Head:
        """The head that a row of a table is about."""
        return cls(str(row["stack"]), int(row["layer"]), int(row["head"]))

    @property
    def site(self) -> Site:
        return Site(self.stack, self.layer)

    def __str__(self) -> str:
        return f"{self.stack}.{self.layer}.{self.head}"


HeadName = str | Head | tuple[int, int] | tuple[str, int, int]
Heads = HeadName | Iterable[HeadName]  # whatever a user may name heads by


def head_names(heads: Heads) -> list[str | Head]:
    """Heads as text ("3.2", "4.*") or `Head`: (3, 2) becomes "3.2", ("cross", 3, 2) becomes "cross.3.2"."""
    if isinstance(heads, str | Head):
        return [heads]
    if isinstance(heads, tuple) and (address := _address(heads)) is not None:
        return [address]
    wrong: object = heads
    if isinstance(heads, Iterable):
        items = list(heads)
        texts = [one if isinstance(one, str | Head) else _address(one) for one in items]
        if None not in texts:
            return [one for one in texts if one is not None]
        wrong = items[texts.index(None)]
    raise HeadscopeError(
        f"{wrong!r} names no head",
        where="heads",
        expected=f"{FORM}; or (LAYER, HEAD)",
        fix=f'Write "{wrong}"' if isinstance(wrong, float) else None,
    )


def format_heads(heads: Heads) -> str:
    """The same as one text: [(3, 2), "4.*"] becomes "3.2,4.*"."""
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
    """Some of a model's heads, read from text or given one by one; iterates in order, prints itself back."""

    def __init__(self, heads: Heads, *, among: Iterable[Head]) -> None:
        """`among` is every head there is (`model.heads`): it gives stars their width and catches typing errors."""
        self.among = tuple(among)
        parsed = ([n] if isinstance(n, Head) else self._parse(n) for n in head_names(heads))
        self._heads = frozenset(chain.from_iterable(parsed))
        strangers = sorted(self._heads - set(self.among))
        if strangers:
            what = f"{strangers[0]} is not a head of this model"
            raise HeadscopeError(what, expected=self._extent())

    def _parse(self, text: str) -> list[Head]:
        return [head for item in text.split(",") for head in self._read(item.strip(), text)]

    def _read(self, item: str, whole: str) -> list[Head]:
        where = f'heads "{whole}"'
        match = _match(item, where)
        stacks = sorted({head.stack for head in self.among})
        stack = match["stack"]
        if stack is None and len(stacks) > 1:
            raise HeadscopeError(
                f'"{item}" could be in {" or ".join(stacks)}',
                where=where,
                fix=f'Write "{stacks[0]}.{item}"',
            )
        first, last = match["first"], match["last"] or match["first"]
        found = [
            head
            for head in self.among
            if head.stack == (stack or stacks[0])
            and match["layer"] in ("*", str(head.layer))
            and (first == "*" or int(first) <= head.head <= int(last))
        ]
        largest = max(
            (head.head for head in self.among if head.stack == (stack or stacks[0])), default=-1
        )
        if first != "*" and int(last) > largest:
            found = []
        asked = 1 if first == "*" else int(last) - int(first) + 1
        if len(found) < max(asked, 1):
            raise HeadscopeError(
                f'"{item}" is not in this model',
                where=where,
                expected=f"{FORM}; this model has {self._extent()}",
            )
        return found

    def _extent(self) -> str:
        """What there is, for messages: `encoder layers 0 to 5 with heads 0 to 11`."""
        parts = []
        for stack in sorted({head.stack for head in self.among}):
            here = [head for head in self.among if head.stack == stack]
            parts.append(
                f"{stack} layers 0 to {max(head.layer for head in here)} with heads 0 to {max(h.head for h in here)}"
            )
        return ", ".join(parts) or "no heads"

    def by_site(self) -> dict[Site, list[int]]:
        """The head numbers at each site, in order."""
        found: defaultdict[Site, list[int]] = defaultdict(list)
        for head in self:
            found[head.site].append(head.head)
        return dict(found)

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
        widths: defaultdict[Site, int] = defaultdict(int)
        for head in self.among:
            widths[head.site] += 1
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
    """Refuse what is not written as heads are, before it is known which heads there are."""
    for item in heads.split(","):
        _match(item.strip(), f'heads "{heads}"')


def _match(item: str, where: str) -> re.Match[str]:
    match = _ITEM.fullmatch(item)
    if match is None:
        raise HeadscopeError(f'"{item}" names no head', where=where, expected=FORM)
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
