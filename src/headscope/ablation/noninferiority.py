"""Non-inferiority test: whether a pruned model is as good as the unpruned one, up to a margin.

A change that is not significant does not show that a set of heads can be removed: with few examples no change is
significant. The margin is the part of the metric that may be lost. A set is recommended only if the 95 % interval of
its change shows that no more than the margin is lost, which is a one-sided test at 2.5 %. If the interval lies beyond
the margin, more is lost. If it contains the margin, there are too few examples to tell.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

SHARE = 0.01  # default allowed loss, as a share of the unpruned model's metric
Z_INTERVAL, Z_POWER = 1.96, 0.8416  # quantiles for the 95 % interval and a power of 80 %
RULE_OF_THREE = (
    3.0  # if none of n examples changed, at most 3 / n of all examples change (95 % confidence)
)

Kind = Literal["kept", "lost", "unclear"]


@dataclass(frozen=True)
class Margin:
    """The allowed loss of a metric.

    intact  the unpruned model's metric
    share   the share of it that may be lost
    """

    intact: float
    share: float = SHARE

    @staticmethod
    def of(intact: float, keep_metric: float | None = None) -> Margin:
        """keep_metric: the share of the metric to keep, if given."""
        return Margin(intact, SHARE if keep_metric is None else max(1 - keep_metric, 0.0))

    @property
    def allowed(self) -> float:
        return self.share * abs(self.intact) if math.isfinite(self.intact) else 0.0

    def __str__(self) -> str:
        return f"{self.allowed:.4f} ({100 * self.share:.3g} % of {self.intact:.4f})"


@dataclass(frozen=True)
class Verdict:
    """Whether the metric is kept within the allowed loss, judged by the 95 % interval of the change.

    kind      kept: no point of the interval loses more than allowed; lost: every point does; unclear: neither
    sentence  the same in words
    """

    kind: Kind
    sentence: str


def verdict_of(
    value: float, low: float, high: float, margin: Margin, count: int | None = None
) -> Verdict:
    """Whether a change of a metric is within the margin. count: number of examples."""
    needed = examples_needed(low, high, margin, count)
    if not math.isfinite(high - low):
        sentence = (
            f"without an interval, whether it is within the allowed loss of {margin} is unknown"
        )
        return Verdict("unclear", sentence)
    if count and high == low:
        low, high = low - RULE_OF_THREE / count, high + RULE_OF_THREE / count
    if low >= -margin.allowed:
        return Verdict("kept", f"within the allowed loss of {margin}")
    if high < -margin.allowed:
        return Verdict("lost", f"more than the allowed loss of {margin}")
    examples = "too few examples" if count is None else f"{count} examples are too few"
    sentence = f"{examples} to tell whether that is within the allowed loss of {margin}"
    if needed is not None and count is not None and needed <= count:
        sentence = f"too close to the allowed loss of {margin} to tell on {count} examples"
    elif needed is not None:
        step = 10 ** max(len(str(needed)) - 2, 0)  # two significant figures, rounded up
        sentence += f"; about {-(-needed // step) * step:,} would do"
    return Verdict("unclear", sentence)


def examples_needed(low: float, high: float, margin: Margin, count: int | None) -> int | None:
    """Number of examples that would show that no more than the margin is lost; None if unknown or no loss is allowed.

    Assumes that the true change is 0, and that the standard error is proportional to 1 / √(number of examples).
    With this number of examples, 80 of 100 samples would show it (a power of 80 %).
    """
    if count is None or not margin.allowed > 0 or not math.isfinite(high - low):
        return None
    if high == low:
        return math.ceil(RULE_OF_THREE / margin.allowed)
    error = (high - low) / (2 * Z_INTERVAL)
    return math.ceil(count * ((Z_INTERVAL + Z_POWER) * error / margin.allowed) ** 2)


def largest_kept(
    rows: Iterable[Mapping[Any, Any]], margin: Margin, count: int | None
) -> Mapping[Any, Any] | None:
    """The row of front.csv with the most heads removed, among those within the margin; None if there is none.

    Each set is tested separately, without correction for multiple testing.
    """
    within = [
        row for row in rows if row["removed"] and verdict_in(row, margin, count).kind == "kept"
    ]
    return max(within, key=lambda row: int(row["removed"]), default=None)


def verdict_in(row: Mapping[Any, Any], margin: Margin, count: int | None) -> Verdict:
    """The verdict on a row of front.csv, or of another table with its columns."""
    return verdict_of(row["metric_change"], row["change_low"], row["change_high"], margin, count)


def advice_of(rows: Sequence[Mapping[Any, Any]], margin: Margin, count: int, split: str) -> str:
    """Which of the sets in front.csv can be recommended, as a sentence. split: name of the report split.

    Unless the recommended set is the one that the search chose, it is selected here, on the report split. The sentence
    then says that it should be judged on a third split.
    """
    reported = [row for row in rows if row["removed"]]
    best = largest_kept(reported, margin, count)
    if best is not None:
        third = "" if best["is_chosen"] else f"; {selection_warning(split)}"
        return f"recommended: {_sentence(best, margin, count, split)}{third}"
    unclear = [row for row in reported if verdict_in(row, margin, count).kind == "unclear"]
    if not unclear:
        return (
            f"no set is recommended: each loses more than the allowed loss of {margin} on {split}"
        )

    def rank(row: Mapping[Any, Any]) -> tuple[bool, float]:
        """The chosen set first, so that this sentence and the verdict on it agree; then the narrowest interval."""
        width = float(row["change_high"] - row["change_low"])
        return not row["is_chosen"], width if math.isfinite(width) else math.inf

    return f"no set is recommended: {_sentence(min(unclear, key=rank), margin, count, split)}"


def selection_warning(split: str) -> str:
    """Warning for a set that was selected on the split that it is reported on."""
    return f"this set was picked on {split}, so judge it on a third split"


def _sentence(row: Mapping[Any, Any], margin: Margin, count: int, split: str) -> str:
    """A set's change and the verdict on it."""
    removed = f"{row['removed']} head{'s' if row['removed'] > 1 else ''}"
    repair = f", repaired by {row['repair']}," if row["repair"] else ""
    change = f"{row['metric_change']:+.4f} [{row['change_low']:+.4f}, {row['change_high']:+.4f}]"
    sentence = verdict_in(row, margin, count).sentence
    return f"removing {removed}{repair} changes the metric on {split} by {change}: {sentence}"
