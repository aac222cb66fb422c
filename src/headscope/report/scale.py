"""How the values of a statistic are coloured and printed: one scale for figures, page and notebook."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from headscope.ablation.glossary import DEFINITIONS
from headscope.statistics import glossary
from headscope.statistics.base import Definition
from headscope.study.schema.names import CUT, GATE, MASK_OPEN, StatisticName

if TYPE_CHECKING:
    from numpy.typing import NDArray

Kind = Literal[
    "share",
    "nats",
    "tokens",
    "offset",
    "points",
    "length",
    "number",
    "correlation",
    "switch",
    "other",
]

UNITS: dict[Kind, str] = {
    "share": "share, 0 to 1",
    "nats": "nats",
    "tokens": "tokens",
    "offset": "tokens, negative is to the left",
    "points": "change of the metric",
    "length": "norm",
    "number": "",
    "correlation": "correlation, −1 to 1",
    "switch": "open or closed",
    "other": "",
}
# 0 in the middle, whatever the values
SIGNED = ("ablation-loss", "ablation-metric", "gradient", "gradient-second", "relevance-signed")
# Changes of the loss, exact or predicted: above 0 is worse. Of a metric, below 0 is worse.
WORSE_ABOVE = ("ablation-loss", "gradient", "gradient-second")
# What gate and learn-mask add, with an aim behind the name
LEARNED = {
    GATE: Definition(
        "share",
        "Gates",
        "1 where the head's learned gate is open in the end, 0 where it is closed.",
    ),
    MASK_OPEN: Definition(
        "share",
        "Open share of the mask",
        "The share of attention in the texts learned from that the head's mask leaves open.",
    ),
}


@dataclass(frozen=True)
class Scale:
    """Colour limits and number format of one statistic.

    low, high     values at the two ends of the colours; beyond them the end colours are used (`clips`)
    is_diverging  two colours from a pale middle at 0
    is_reversed   the colours run from high to low: a high value is worse, and worse has the same colour everywhere
    """

    kind: Kind
    low: float
    high: float
    is_diverging: bool = False
    clips: bool = False
    is_reversed: bool = False

    @property
    def unit(self) -> str:
        return UNITS[self.kind]

    def cell(self, value: float) -> str:
        """A value in as few characters as a cell has room for: `.37`, `3.9`, `12.0`, `+1`."""
        if not math.isfinite(value) or self.kind == "switch":
            return ""
        if self.kind == "offset":
            return format_offset(value)
        span = max(abs(self.low), abs(self.high))
        is_coarse = self.kind in ("nats", "tokens") and not self.is_diverging
        decimals = 1 if is_coarse else min(max(1 - math.floor(math.log10(span) + 1e-9), 0), 9)
        text = f"{abs(value):.{2 if self.kind == 'share' else decimals}f}"
        bare = text.removeprefix("0") if span <= 1 and not is_coarse and "." in text else text
        return f"−{bare}" if value < 0 and float(text) != 0 else bare


def group_of(statistic: str) -> str:
    """Among what it is listed: importance, attention, patterns, or the lens it was seen through."""
    name = StatisticName.parse(statistic)
    if name.lens:
        return f"lens {name.lens}"
    if name.unqualified in DEFINITIONS or name.unqualified == CUT or name.is_gate:
        return "importance"
    return "patterns" if name.base.startswith(("js-", "pattern-", "block-")) else "attention"


def definition_of(statistic: str) -> Definition | None:
    """What a name in heads.csv means; None for a name that is not ours."""
    name = StatisticName.parse(statistic)
    known = glossary().get(name.of_raw) or DEFINITIONS.get(name.of_raw)
    if known is None and name.aim:
        learned = LEARNED[name.base]
        return replace(learned, title=f"{learned.title}, {name.aim}")
    return known


def scale_of(statistic: str, values: NDArray[Any]) -> Scale:
    """The scale for a statistic, given all its values (NaN allowed) over all stacks that are compared."""
    known = definition_of(statistic)
    kind: Kind = known.unit if known else "other"
    finite = values[np.isfinite(values)]
    least, most = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    name = StatisticName.parse(statistic)
    if name.is_gate:
        return Scale("switch", 0.0, 1.0)
    if kind == "share" and least >= 0 and most <= 1:
        return Scale(kind, 0.0, 1.0)
    if kind == "offset":
        # One head that looks 20 tokens away must not wash out the difference between -1 and +1.
        reach = max(abs(least), abs(most), 1.0)
        return Scale(kind, -min(reach, 5.0), min(reach, 5.0), is_diverging=True, clips=reach > 5)
    if least < 0 < most or name.unqualified in SIGNED:
        reach = max(-least, most) or 1.0
        return Scale(
            kind, -reach, reach, is_diverging=True, is_reversed=name.unqualified in WORSE_ABOVE
        )
    if kind != "other" or 0 <= least < most / 2:
        return Scale(kind, min(0.0, least), _rounded_up(most))
    return Scale(kind, least, most if most > least else least + 1.0)


def title_of(statistic: str) -> str:
    """What to call it in figures; a statistic that is not in the glossary has only its name."""
    known = definition_of(statistic)
    if known is None:
        return statistic
    name = StatisticName.parse(statistic)
    lens = f", lens {name.lens}" if name.lens else ""
    return f"{known.title}{lens}{f' ({name.study})' if name.study else ''}"


def sentence_of(statistic: str) -> str:
    known = definition_of(statistic)
    return known.sentence if known else ""


def format_offset(value: float) -> str:
    """An offset with its sign: −1, 0, +2."""
    text = f"{abs(value):g}"
    return text if value == 0 else f"{'+' if value > 0 else '−'}{text}"


def _rounded_up(value: float) -> float:
    """The next round number: 4.37 → 4.5, 37 → 40."""
    if value <= 0:
        return 1.0
    step = 10.0 ** math.floor(math.log10(value)) / 2
    return math.ceil(value / step - 1e-9) * step
