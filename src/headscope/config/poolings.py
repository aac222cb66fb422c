"""Names of poolings. They are apart from the computation so that options are checked without importing torch."""

from __future__ import annotations

from headscope.errors import HeadscopeError

POOLINGS = ("mean", "first", "last", "max", "mean_sqrt_len", "weightedmean")
ALIASES = {"cls": "first", "lasttoken": "last", "mean_sqrt_len_tokens": "mean_sqrt_len"}


def parse_pooling(name: str | None) -> str | None:
    """The name of a pooling, with aliases replaced; None stays None. An unknown name is an error."""
    if name is None:
        return None
    pooling = ALIASES.get(name, name)
    if pooling not in POOLINGS:
        raise HeadscopeError(
            f'`pooling` must be {", ".join(POOLINGS[:-1])} or {POOLINGS[-1]}, got "{name}"'
        )
    return pooling
