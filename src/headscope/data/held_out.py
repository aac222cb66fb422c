"""Selects held-out texts of a corpus that has no splits: blocks of consecutive texts, evenly spread over it."""

from __future__ import annotations

import math

from headscope.errors import HeadscopeError

BLOCK = 20  # consecutive texts are held out together, because they often come from one article
MOST = 0.5  # largest share of the texts that can be held out


def is_held_out(number: int, share: float) -> bool:
    """Whether the text with this number (from 0) is held out. The first block always is."""
    block = number // BLOCK
    before, after = (math.ceil(round(count * share, 9)) for count in (block, block + 1))
    return after > before


def check_share(share: float) -> None:
    if not 0 < share <= MOST:  # nor is NaN
        expected = f"more than 0, at most {MOST}"
        raise HeadscopeError(f"{share} is not a valid share", where="`held_out`", expected=expected)


def check_held_out(share: float, texts: int, where: str) -> None:
    """Raise an error for an invalid share, and for a corpus of only one block, which leaves no text to train on."""
    check_share(share)
    if texts <= BLOCK:
        raise HeadscopeError(
            f"{texts} texts are too few to hold {BLOCK} out",
            where=where,
            expected=f"more than {BLOCK}, each on a line of its own",
        )
