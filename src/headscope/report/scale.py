"""How the values of a statistic are coloured and printed: one scale for figures, page and notebook."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from headscope.ablation.glossary import DEFINITIONS
from headscope.statistics import glossary
from headscope.statistics.base import Definition

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
GATE, MASK_OPEN = "gate-", "mask-open-"
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
            return signed(value)
        span = max(abs(self.low), abs(self.high))
        is_coarse = self.kind in ("nats", "tokens") and not self.is_diverging
        decimals = 1 if is_coarse else min(max(1 - math.floor(math.log10(span) + 1e-9), 0), 9)
        text = f"{abs(value):.{2 if self.kind == 'share' else decimals}f}"
        bare = text.removeprefix("0") if span <= 1 and not is_coarse and "." in text else text
        return f"−{bare}" if value < 0 and float(text) != 0 else bare


def bare_name(statistic: str) -> str:
    """Without the study that stands behind it in brackets where two that were joined differ: `cut (small)`."""
    return statistic.partition(" (")[0]


def group_of(statistic: str) -> str:
    """Among what it is listed: importance, attention, patterns, or the lens it was seen through."""
    name = bare_name(statistic)
    if lens := name.partition("@")[2]:
        return f"lens {lens}"
    if name in DEFINITIONS or name == "cut" or name.startswith(GATE):
        return "importance"
    return "patterns" if name.startswith(("js-", "pattern-", "block-")) else "attention"


def definition_of(statistic: str) -> Definition | None:
    """What a name in heads.csv means; None for a name that is not ours."""
    name = bare_name(statistic).partition("@")[0]
    known = glossary().get(name) or DEFINITIONS.get(name)
    for beginning, of_aim in LEARNED.items():
        if known is None and name.startswith(beginning):
            known = replace(of_aim, title=f"{of_aim.title}, {name.removeprefix(beginning)}")
    return known


def scale_of(statistic: str, values: NDArray[Any]) -> Scale:
    """The scale for a statistic, given all its values (NaN allowed) over all stacks that are compared."""
    known = definition_of(statistic)
    kind: Kind = known.unit if known else "other"
    finite = values[np.isfinite(values)]
    least, most = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    if bare_name(statistic).startswith(GATE):
        return Scale("switch", 0.0, 1.0)
    if kind == "share" and least >= 0 and most <= 1:
        return Scale(kind, 0.0, 1.0)
    if kind == "offset":
        # One head that looks 20 tokens away must not wash out the difference between -1 and +1.
        reach = max(abs(least), abs(most), 1.0)
        return Scale(kind, -min(reach, 5.0), min(reach, 5.0), is_diverging=True, clips=reach > 5)
    if least < 0 < most or bare_name(statistic) in SIGNED:
        reach = max(-least, most) or 1.0
        return Scale(
            kind, -reach, reach, is_diverging=True, is_reversed=bare_name(statistic) in WORSE_ABOVE
        )
    if kind != "other" or 0 <= least < most / 2:
        return Scale(kind, min(0.0, least), _rounded_up(most))
    return Scale(kind, least, most if most > least else least + 1.0)


def title_of(statistic: str) -> str:
    """What to call it in figures; a statistic that is not in the glossary has only its name."""
    known = definition_of(statistic)
    lens, study = (
        bare_name(statistic).partition("@")[2],
        statistic.removeprefix(bare_name(statistic)),
    )
    return statistic if known is None else f"{known.title}{f', lens {lens}' if lens else ''}{study}"


def sentence_of(statistic: str) -> str:
    known = definition_of(statistic)
    return known.sentence if known else ""


def signed(value: float) -> str:
    """An offset with its sign: −1, 0, +2."""
    text = f"{abs(value):g}"
    return text if value == 0 else f"{'+' if value > 0 else '−'}{text}"


def _rounded_up(value: float) -> float:
    """The next round number: 4.37 → 4.5, 37 → 40."""
    if value <= 0:
        return 1.0
    step = 10.0 ** math.floor(math.log10(value)) / 2
    return math.ceil(value / step - 1e-9) * step
