"""Where the numbers of a figure are, so that the page can hand them out as a csv file."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Source(NamedTuple):
    """`heads`: rows of these statistics (none: of all); `table`: the table of this name; `map`, `offset`: a stack's."""

    kind: Literal["heads", "table", "map", "offset"]
    names: tuple[str, ...] = ()


def table(name: str) -> Source:
    return Source("table", (name,))
