"""Texts of a corpus without splits to hold out from training: blocks of neighbours, evenly spread over the corpus."""

from __future__ import annotations

import math

from headscope.errors import HeadscopeError

BLOCK = 20  # neighbouring texts are held out together: they are often of one article
MOST = 0.5


def is_held_out(number: int, share: float) -> bool:
    """Whether the text of this number, from 0, is held out; the first block always is."""
    block = number // BLOCK
    before, after = (math.ceil(round(count * share, 9)) for count in (block, block + 1))
    return after > before


def check_share(share: float) -> None:
    if not 0 < share <= MOST:  # nor is NaN
        expected = f"more than 0, at most {MOST}"
        raise HeadscopeError(f"{share} is not a valid share", where="`held_out`", expected=expected)


def check_held_out(share: float, texts: int, where: str) -> None:
    """Refuse a share that leaves too few texts for training, and a corpus of at most one block."""
    check_share(share)
    if texts <= BLOCK:
        raise HeadscopeError(
            f"{texts} texts are too few to hold {BLOCK} out",
            where=where,
            expected=f"more than {BLOCK}, each on a line of its own",
        )
