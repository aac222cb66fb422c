"""The names of ways to pool, apart from their computation, so that options are checked without torch."""

from __future__ import annotations

from headscope.errors import HeadscopeError

POOLINGS = ("mean", "first", "last", "max", "mean_sqrt_len", "weightedmean")
ALIASES = {"cls": "first", "lasttoken": "last", "mean_sqrt_len_tokens": "mean_sqrt_len"}


def parse_pooling(name: str | None) -> str | None:
    """Our name of a pooling, or a refusal with the list of those there are; None for none."""
    if name is None:
        return None
    pooling = ALIASES.get(name, name)
    if pooling not in POOLINGS:
        raise HeadscopeError(
            f'must be one of {", ".join(POOLINGS)}, got "{name}"', where="`pooling`"
        )
    return pooling
