"""A finding: a sentence that is true by construction, the heads it is about, and how sure and how strong it is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from headscope.ablation.agreement import LEAST_CEILING, examples_for
from headscope.report.study_access import stacks_of
from headscope.report.table_cells import DECIMALS
from headscope.report.text import plain

if TYPE_CHECKING:
    from headscope.study.study import Study

MOST_NAMED = 6  # heads named in one sentence; the rest are counted
# What comes first on the page: whether heads matter, what can go, what they do, and so on down.
KINDS = (
    "importance",
    "cut",
    "training",
    "roles",
    "relations",
    "separators",
    "lenses",
    "learned",
    "models",
    "attention",
)


class HeadEstimate(NamedTuple):
    """One row of the table, with the address a reader uses. `uniform`: what uniform attention would give, if known."""

    head: str
    value: float
    low: float
    high: float
    decimals: int = DECIMALS
    uniform: float = math.nan

    def text(self, *, sign: bool = False) -> str:
        """`0.98 [0.97, 0.99]`, or the value alone where there is no interval; nothing where the head is only named.

        sign  with a plus before what is not negative
        """
        if math.isnan(self.value):
            return ""
        value, low, high = (short_number(end, self.decimals, sign=sign) for end in self[1:4])
        has_interval = math.isfinite(self.low) and math.isfinite(self.high)
        return value + (f" [{low}, {high}]" if has_interval else "") + self._over_uniform()

    def _over_uniform(self) -> str:
        """`, 74 times uniform`, `, 1.3 times uniform`; empty where uniform is not known or 0."""
        times = self.value / self.uniform if self.uniform > 0 else math.nan
        if not math.isfinite(times):
            return ""
        return f", {times:.{0 if times >= 9.95 else 1}f} times uniform"

    def strength(self, chance: float) -> float:
        """Half-widths of the interval between the value and chance; 0 where one of them is not known."""
        half = (self.high - self.low) / 2
        distance = abs(self.value - chance)
        is_known = math.isfinite(distance) and math.isfinite(half) and half > 0
        return distance / half if is_known else 0.0

    def excludes(self, chance: float) -> bool:
        """Whether the whole interval is on one side of chance."""
        return self.low > chance or self.high < chance

    def evidence(self, chance: float) -> dict[str, Any]:
        """Against chance, as a finding has it: `is_clear` and `strength`."""
        return {"is_clear": self.excludes(chance), "strength": self.strength(chance)}


@dataclass(frozen=True)
class Finding:
    """A sentence, then the heads it is about with their numbers, if any, then how many more there are, and the rest.

    after     what is said behind the heads, with its own sign in front
    kind      one of KINDS
    topic     what it is about within its kind: two of one topic are not both among the first where there are others
    is_clear  the interval excludes chance, or the sentence says that there is no evidence
    strength  how many half-widths of its interval lie between the value and chance; 0 where there is no chance to beat
    chapter   the number of the model on the page; None: of several
    """

    statistic: str
    sentence: str
    heads: tuple[HeadEstimate, ...]
    more: int = 0
    kind: str = "attention"
    is_clear: bool = True
    strength: float = 0.0
    chapter: int | None = 0
    topic: str = ""
    after: str = ""

    @property
    def about(self) -> tuple[str, str]:
        """Its kind and topic."""
        return self.kind, self.topic

    @property
    def leads(self) -> tuple[int | None, str] | None:
        """The head it names first, of its model; None where it names none."""
        return (self.chapter, self.heads[0].head) if self.heads else None

    def __str__(self) -> str:
        named = [f"{one.head}: {one.text()}" if one.text() else one.head for one in self.heads]
        more = f" and {self.more} more" if self.more else ""
        return f"{self.sentence} {'; '.join(named)}".rstrip() + f"{more}{self.after}."


def read_estimate(
    row: Mapping[Any, Any], names: tuple[str, str, str], decimals: int = DECIMALS, head: str = ""
) -> HeadEstimate:
    """The value and the ends of its interval, from these columns of a row."""
    value, low, high = (finite(row[name]) for name in names)
    return HeadEstimate(head, value, low, high, decimals)


def head_estimate(
    study: Study,
    row: dict[Any, Any],
    value: str,
    decimals: int = DECIMALS,
    ends: tuple[str, str] = ("low", "high"),
) -> HeadEstimate:
    """A row of a table that names a head."""
    return read_estimate(row, (value, *ends), decimals, address_of(study, row))


def ceiling_of(row: Mapping[Any, Any]) -> float:
    """What an importance can reach at most; NaN where removal itself is nothing but noise."""
    ceiling = finite(row["ceiling"])
    return ceiling if ceiling > 0 else math.nan  # 0: as studies had it before


def noise_warning(row: Mapping[Any, Any], count: Any = None) -> str:
    """Why heads are not ranked by a row's exact changes: ceiling, and how many examples would do; empty if they are.

    count  the examples, where the row does not have their number
    """
    ceiling, examples = ceiling_of(row), row.get("count", count)
    if ceiling >= LEAST_CEILING:
        return ""
    on = f"with {int(examples)} examples" if isinstance(examples, int | float) else "here"
    if math.isnan(ceiling):
        return f"{on} the changes by removal are nothing but noise: they say nothing of which heads matter"
    needed = examples_for(ceiling, int(examples)) if isinstance(examples, int | float) else None
    more = "take more examples" if needed is None else f"about {needed:,} examples would do"
    return (
        f"{on} even the true importances would reach only {short_number(ceiling, 2)} (the noise ceiling), and heads "
        f"are ranked from {LEAST_CEILING:g}; {more}"
    )


def finite(value: Any) -> float:
    return math.nan if value is None else float(value)


def address_of(study: Study, row: dict[Any, Any]) -> str:
    address = f"{int(row['layer'])}.{int(row['head'])}"
    return address if len(stacks_of(study)) == 1 else f"{plain(row['stack'])}.{address}"


def short_number(value: float, decimals: int = DECIMALS, *, sign: bool = False) -> str:
    """Three decimals, as everywhere on the page, unless all that is compared is small."""
    return f"{value:{'+' if sign else ''}.{decimals}f}".replace("-", "−")
