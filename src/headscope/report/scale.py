"""The colour scale and number format of a statistic, shared by figures, page and notebook."""

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

UNITS: dict[Kind, str] = {  # of kinds that have one
    "share": "share, 0 to 1",
    "nats": "nats",
    "tokens": "tokens",
    "offset": "tokens, negative is to the left",
    "points": "change of the metric",
    "length": "norm",
    "correlation": "correlation, −1 to 1",
    "switch": "open or closed",
}
# Changes of the loss, exact or predicted: above 0 is worse. Of a metric, below 0 is worse.
WORSE_ABOVE = ("ablation-loss", "gradient", "gradient-second")
# 0 is in the middle of the scale, whatever the values
SIGNED = (*WORSE_ABOVE, "ablation-metric", "relevance-signed")
# Statistics of gate and masks learn, whose names end with the aim of the training
_GATE = "1 if the head's learned gate is open after training, 0 if it is closed."
_MASK = "Fraction of attention in the training texts that the head's mask leaves open."
LEARNED = {
    GATE: Definition("share", "Gates", _GATE),
    MASK_OPEN: Definition("share", "Open share of the mask", _MASK),
}


@dataclass(frozen=True)
class Scale:
    """Colour limits and number format of one statistic.

    low, high     values at the two ends of the colours; with `clips`, values beyond them have the end colours
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
        return UNITS.get(self.kind, "")

    def cell(self, value: float) -> str:
        """A value in few characters, to fit into a cell: `.37`, `3.9`, `12.0`, `+1`."""
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
    """The group in which a statistic is listed: importance, attention, patterns, its lens, or another study's."""
    name = StatisticName.parse(statistic)
    if name.lens:
        group = f"lens {name.lens}"
    elif name.unqualified in DEFINITIONS or name.unqualified == CUT or name.is_gate:
        group = "importance"
    else:
        is_pattern = name.base.startswith(("js-", "pattern-", "block-"))
        group = "patterns" if is_pattern else "attention"
    return f"{group} ({name.study})" if name.study else group


def definition_of(statistic: str) -> Definition | None:
    """The definition of a name in heads.csv; None if it is not a statistic of ours."""
    name = StatisticName.parse(statistic)
    definition = glossary().get(name.of_raw) or DEFINITIONS.get(name.of_raw)
    if definition is None and name.aim:
        learned = LEARNED[name.base]
        return replace(learned, title=f"{learned.title}, {name.aim}")
    return definition


def scale_of(statistic: str, values: NDArray[Any]) -> Scale:
    """The scale for a statistic, from all its values (NaN allowed) over all stacks that are compared."""
    definition = definition_of(statistic)
    kind: Kind = definition.unit if definition else "other"
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
        is_reversed = name.unqualified in WORSE_ABOVE
        return Scale(kind, -reach, reach, is_diverging=True, is_reversed=is_reversed)
    if kind != "other" or 0 <= least < most / 2:
        return Scale(kind, min(0.0, least), _round_up(most))
    return Scale(kind, least, most if most > least else least + 1.0)


def title_of(statistic: str) -> str:
    """The title in figures; a statistic that is not in the glossary has only its name."""
    definition = definition_of(statistic)
    if definition is None:
        return statistic
    name = StatisticName.parse(statistic)
    lens = f", lens {name.lens}" if name.lens else ""
    return f"{definition.title}{lens}{f' ({name.study})' if name.study else ''}"


def sentence_of(statistic: str) -> str:
    definition = definition_of(statistic)
    return definition.sentence if definition else ""


def format_offset(value: float) -> str:
    """An offset with its sign: −1, 0, +2."""
    text = f"{abs(value):g}"
    return text if value == 0 else f"{'+' if value > 0 else '−'}{text}"


def _round_up(value: float) -> float:
    """The next round number: 4.37 → 4.5, 37 → 40."""
    if value <= 0:
        return 1.0
    step = 10.0 ** math.floor(math.log10(value)) / 2
    return math.ceil(value / step - 1e-9) * step
