"""The slow, obvious twin of the distances between heads: the textbook's two terms, pair by pair, row by row.

Nothing here is shared with `headscope.statistics`: rows come from the library's own attentions, and every sum is a
Python loop.
"""

from __future__ import annotations

import math

Row = list[float]


def divergence(p: Row, q: Row) -> float:
    """Jensen-Shannon: half of KL(p || m) and half of KL(q || m), m in the middle; nats."""
    middle = [(a + b) / 2 for a, b in zip(p, q, strict=True)]
    return (_kullback_leibler(p, middle) + _kullback_leibler(q, middle)) / 2


def _kullback_leibler(p: Row, m: Row) -> float:
    return sum(a * math.log(a / b) for a, b in zip(p, m, strict=True) if a > 0)


def mean_divergence(
    first: list[list[Row]], other: list[list[Row]], chosen: list[list[int]]
) -> float | None:
    """Of two heads, given as rows of sequences: over the chosen rows of a sequence first, over sequences second."""
    means = []
    for mine, theirs, rows in zip(first, other, chosen, strict=True):
        if rows:
            means.append(sum(divergence(mine[i], theirs[i]) for i in rows) / len(rows))
    return sum(means) / len(means) if means else None


def mean_content_divergence(
    first: list[list[Row]],
    other: list[list[Row]],
    chosen: list[list[int]],
    special_queries: list[list[bool]],
    special_keys: list[list[bool]],
) -> float | None:
    """The same over content keys, in rows of content tokens in which both heads have 1 % or more left."""
    means = []
    for mine, theirs, rows, looking, keys in zip(
        first, other, chosen, special_queries, special_keys, strict=True
    ):
        values = []
        for i in rows:
            p, q = (_content(head[i], keys) for head in (mine, theirs))
            if not looking[i] and p is not None and q is not None:
                values.append(divergence(p, q))
        if values:
            means.append(sum(values) / len(values))
    return sum(means) / len(means) if means else None


def _content(row: Row, special: list[bool]) -> Row | None:
    left = [weight for weight, is_special in zip(row, special, strict=True) if not is_special]
    mass = sum(left)
    return [weight / mass for weight in left] if mass >= 0.01 else None


def rows_with_enough_keys(stack: str, length: int) -> list[int]:
    """All rows; in a decoder, where row i has i + 1 keys, those with eight or more."""
    return [i for i in range(length) if stack != "decoder" or i + 1 >= 8]
