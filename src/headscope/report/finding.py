"""Findings: sentences derived from the tables of a study, with the heads they name and the evidence."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from headscope.ablation.agreement import LEAST_CEILING, examples_for
from headscope.report.study_access import stacks_of
from headscope.report.table_cells import DECIMALS
from headscope.report.text import plain

if TYPE_CHECKING:
    from headscope.study.study import Study

MOST_NAMED = 6  # heads named in one sentence; the rest are counted
# In order of priority on the page: what heads do, then which of them matter, what can be removed, and so on.
KINDS = (
    "warning",
    "training",
    "roles",
    "relations",
    "importance",
    "cut",
    "separators",
    "lenses",
    "learned",
    "models",
    "attention",
)


class Evidence(TypedDict):
    """How an estimate compares with chance, as fields of a finding."""

    is_clear: bool
    strength: float


class HeadEstimate(NamedTuple):
    """A value with its interval, and the head it belongs to.

    uniform  the value that uniform attention would have; NaN if unknown
    """

    head: str
    value: float
    low: float
    high: float
    decimals: int = DECIMALS
    uniform: float = math.nan

    def text(self, *, sign: bool = False) -> str:
        """`0.98 [0.97, 0.99]`, the value alone without an interval, or nothing without a value.

        sign  write a plus before values that are not negative
        """
        if math.isnan(self.value):
            return ""
        value, low, high = (short_number(end, self.decimals, sign=sign) for end in self[1:4])
        has_interval = math.isfinite(self.low) and math.isfinite(self.high)
        text = value + (f" [{low}, {high}]" if has_interval else "")
        times = self.times_uniform()
        return f"{text}, {times}" if times else text

    def times_uniform(self) -> str:
        """`69 times uniform`; empty if the value under uniform attention is not known."""
        times = self.value / self.uniform if self.uniform > 0 else math.nan
        return (
            f"{times:.{0 if times >= 9.95 else 1}f} times uniform" if math.isfinite(times) else ""
        )

    def strength(self, chance: float) -> float:
        """Distance between the value and chance in half-widths of the interval; 0 if one of them is unknown."""
        half = (self.high - self.low) / 2
        distance = abs(self.value - chance)
        is_known = math.isfinite(distance) and math.isfinite(half) and half > 0
        return distance / half if is_known else 0.0

    def excludes(self, chance: float) -> bool:
        """Whether the whole interval is on one side of chance."""
        return self.low > chance or self.high < chance

    def evidence(self, chance: float) -> Evidence:
        """Certainty and strength of a finding that compares the value with chance."""
        return {"is_clear": self.excludes(chance), "strength": self.strength(chance)}


@dataclass(frozen=True)
class Headline:
    """A finding as one short sentence with one number.

    head    address of the head that the sentence begins with; empty if it begins with `before`
    before  words before the number
    number  the number, with its unit
    after   words after the number, without the final stop
    detail  the interval, the baseline and other context of the number
    """

    before: str
    number: str
    after: str = ""
    detail: str = ""
    head: str = ""

    @property
    def head_name(self) -> str:
        return name_head(self.head) if self.head else ""

    @property
    def sentence(self) -> str:
        """The sentence without its final stop."""
        words = " ".join(filter(None, (self.head_name, self.before, self.number)))
        return f"{words}{'' if self.after[:1] in (',', ':') else ' '}{self.after}".rstrip()

    def __str__(self) -> str:
        return f"{self.sentence}."


@dataclass(frozen=True)
class Finding:
    """A sentence, and a line with its evidence: the heads, their numbers and `after`.

    sentence  a complete sentence without its final stop
    heads     heads to list with their values and intervals, the most important one first
    more      number of further heads, which are only counted
    after     text behind the heads, which begins with its own punctuation; without heads, the entire line
    headline  the same in one short sentence, for the first screen
    is_null   whether the finding is negative ("No head ..."); such findings come last
    kind      one of KINDS
    topic     subject within the kind: findings of the same topic are not shown together first if there are others
    is_clear  the interval excludes chance, or the sentence states that there is no evidence
    strength  distance between the value and chance in half-widths of the interval; 0 without a chance level
    chapter   number of the model on the page; None if the finding is about several models
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
    headline: Headline | None = None
    is_null: bool = False

    @property
    def first_head(self) -> tuple[int | None, str] | None:
        """The chapter and the head that is named first; None if no head is named."""
        return (self.chapter, self.heads[0].head) if self.heads else None

    def __str__(self) -> str:
        heads = [
            f"{head.head}: {text}" if (text := head.text()) else head.head for head in self.heads
        ]
        more = f" and {self.more} more" if self.more else ""
        evidence = f"{'; '.join(heads)}{more}{self.after}"
        if not heads:
            evidence = evidence[:1].upper() + evidence[1:]
        return f"{self.sentence}. {evidence}." if evidence else f"{self.sentence}."


def read_estimate(
    row: Mapping[Any, Any], names: tuple[str, str, str], decimals: int = DECIMALS, head: str = ""
) -> HeadEstimate:
    """The estimate in a row. names: the columns of the value and of the ends of its interval."""
    value, low, high = (finite(row[name]) for name in names)
    return HeadEstimate(head, value, low, high, decimals)


def head_estimate(
    study: Study,
    row: dict[Any, Any],
    value: str,
    decimals: int = DECIMALS,
    ends: tuple[str, str] = ("low", "high"),
) -> HeadEstimate:
    """The estimate in a row of a table that names a head."""
    return read_estimate(row, (value, *ends), decimals, address_of(study, row))


def ceiling_of(row: Mapping[Any, Any]) -> float:
    """The highest correlation that an importance can reach; NaN if the exact changes are noise only."""
    ceiling = finite(row["ceiling"])
    return ceiling if ceiling > 0 else math.nan  # older studies have 0


def noise_warning(row: Mapping[Any, Any]) -> str:
    """Why ablation is too noisy to rank heads, and how many examples are needed; empty if it is not."""
    ceiling, count = ceiling_of(row), row.get("count")
    if ceiling >= LEAST_CEILING:
        return ""
    examples = int(count) if isinstance(count, int | float) else None
    data = "in these data" if examples is None else f"with {examples} examples"
    if math.isnan(ceiling):
        return f"{data} the changes by ablation are only noise and do not show which heads matter"
    return (
        f"{data}, even the true importance scores would correlate with ablation at only {short_number(ceiling, 2)} "
        f"(noise ceiling). It must be at least {LEAST_CEILING:g} to rank heads: {advise_examples(ceiling, examples)}"
    )


def advise_examples(ceiling: float, count: Any) -> str:
    """The number of examples that would raise this ceiling enough to rank heads, if it can be computed."""
    is_known = isinstance(count, int) and not math.isnan(ceiling)
    needed = examples_for(ceiling, count) if is_known else None
    return "use more examples" if needed is None else f"about {needed:,} examples are needed"


def finite(value: Any) -> float:
    """The value as a number; NaN for None."""
    return math.nan if value is None else float(value)


def address_of(study: Study, row: dict[Any, Any]) -> str:
    """The address of the head of a row: `3.2`, or `encoder.3.2` if the study has several stacks."""
    address = f"{int(row['layer'])}.{int(row['head'])}"
    return address if len(stacks_of(study)) == 1 else f"{plain(row['stack'])}.{address}"


def name_head(address: str) -> str:
    """An address in words: `0.2` is "Head 2 of layer 0", `cross.0.2` is "Head 2 of cross layer 0"."""
    *stack, layer, head = address.split(".")
    return f"Head {head} of {' '.join([*stack, 'layer'])} {layer}"


def percent(value: float) -> str:
    """A share as a percentage with one decimal: `98.7 %`."""
    return f"{100 * value:.1f}\u00a0%"


def percent_interval(low: float, high: float) -> str:
    """`95 % interval 98.6 to 98.7 %`; empty without an interval."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return ""
    return f"95\u00a0% interval {100 * low:.1f} to {percent(high)}"


def join_details(*details: str) -> str:
    """The details that are not empty, as the grey line below a headline."""
    return "; ".join(filter(None, details))


def short_number(value: float, decimals: int = DECIMALS, *, sign: bool = False) -> str:
    """A number with `decimals` decimals and a proper minus sign. sign: write a plus before other numbers."""
    return f"{value:{'+' if sign else ''}.{decimals}f}".replace("-", "−")
