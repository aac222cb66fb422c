"""Mean length of a study's texts, and a note if compared studies differ in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

FAR_APART = 1.2  # the longest mean length over the shortest


def mean_length(record: Mapping[str, Any]) -> float | None:
    """Mean number of tokens per sequence from the run record; None if unknown."""
    data = record.get("data")
    if not isinstance(data, Mapping):
        return None
    mean, tokens, sequences = (data.get(key) for key in ("mean_length", "tokens", "sequences"))
    if isinstance(mean, int | float) and mean > 0:
        return float(mean)
    if isinstance(tokens, int | float) and isinstance(sequences, int) and sequences > 0:
        return tokens / sequences  # a study made before the mean was recorded
    return None


def length_note(named: Sequence[tuple[str, Mapping[str, Any]]], ratio: float = FAR_APART) -> str:
    """A sentence for readers if the longest mean length is above `ratio` times the shortest; else empty.

    named  the studies' names and run records
    """
    lengths = [
        (name, length) for name, record in named if (length := mean_length(record)) is not None
    ]
    if not lengths or max(n for _, n in lengths) <= ratio * min(n for _, n in lengths):
        return ""
    means = ", ".join(f"{name} {length:.0f}" for name, length in lengths)
    return (
        f"The texts differ in length (tokens on average: {means}). As texts grow, entropy and distance grow, "
        "and shares of attention fall while their multiples of uniform attention rise: count heads above a threshold "
        "only on texts of similar length."
    )
