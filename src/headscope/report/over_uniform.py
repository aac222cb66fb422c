"""Shares of attention as multiples of what uniform attention would give on the same texts (uniform.csv)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headscope.study.study import Study


def uniform_shares(study: Study, statistic: str, stack: str) -> dict[int, float]:
    """By layer, the value that uniform attention would have; empty where that is not known."""
    table = study.tables.get("uniform")
    if table is None:
        return {}
    rows = table[(table["stack"] == stack) & (table["statistic"] == statistic)]
    return {int(row["layer"]): float(row["value"]) for row in rows.to_dict("records")}


def times_text(value: float, uniform: float) -> str:
    """`74 times uniform`, `1.3 times uniform`; empty where uniform is not known or 0."""
    if not (math.isfinite(value) and math.isfinite(uniform) and uniform > 0):
        return ""
    times = value / uniform
    return f"{times:.0f} times uniform" if times >= 9.95 else f"{times:.1f} times uniform"
