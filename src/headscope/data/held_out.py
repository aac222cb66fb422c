"""Texts of a corpus without splits that are not learned from: blocks of neighbours, evenly spread over all of it."""

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


def check_held_out(share: float, texts: int, where: str) -> None:
    """Refuse a share that leaves too little to learn from, and a corpus that is no more than a block."""
    if not 0 < share <= MOST:
        raise HeadscopeError(f"{share} is no share", where="--held-out", expected=f"more than 0, at most {MOST}")
    if texts <= BLOCK:
        raise HeadscopeError(
            f"{texts} texts are too few to hold {BLOCK} out",
            where=where,
            expected=f"more than {BLOCK}, each on a line of its own",
        )
