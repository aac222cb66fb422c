"""The long table of heads, one row for each head and statistic, and the sums that its rows are computed from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from headscope.heads import Head, Site

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike, NDArray

TableRow = dict[
    str, object
]  # a row of a table other than heads.csv, by column; dtypes are in study/schema
COLUMNS = ("stack", "layer", "head", "statistic", "value", "low", "high", "count")
STACKS = ("encoder", "decoder", "cross", "query")  # the order in which stacks are listed
Z = 1.96  # quantile of the normal distribution for 95 % intervals
EQUAL = 1e-6  # standard deviation below which values are equal up to the rounding of float32


@dataclass(frozen=True)
class Row:
    """The value of one statistic for one head; low and high are NaN if there is no interval."""

    stack: str
    layer: int
    head: int
    statistic: str
    value: float
    low: float
    high: float
    count: int

    @classmethod
    def of(
        cls, head: Head, statistic: str, value: float, low: float, high: float, count: int
    ) -> Row:
        return cls(head.stack, head.layer, head.head, statistic, value, low, high, count)

    @classmethod
    def without_interval(cls, head: Head, statistic: str, value: float, count: int) -> Row:
        return cls.of(head, statistic, value, np.nan, np.nan, count)


class Moments:
    """Count, sum and sum of squares of one number per sequence, elementwise over an array; mergeable.

    Sums are float64: after a million additions in float32 the relative error is 7e-6, and merged results must agree
    to 1e-6.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.count: NDArray[np.int64] = np.zeros(shape, dtype=np.int64)
        self.total: NDArray[np.float64] = np.zeros(shape)
        self.total_of_squares: NDArray[np.float64] = np.zeros(shape)

    def add(self, values: NDArray[np.float64]) -> None:
        """Add values [sequence, …]. NaN means not defined for this sequence, which is then not counted."""
        is_defined = ~np.isnan(values)
        values = np.where(is_defined, values, 0.0)
        self.count += is_defined.sum(axis=0)
        self.total += values.sum(axis=0)
        self.total_of_squares += np.square(values).sum(axis=0)

    def merge(self, other: Moments) -> None:
        self.count += other.count
        self.total += other.total
        self.total_of_squares += other.total_of_squares

    def column(self, i: int) -> Moments:
        """The moments of the i-th entry of the last axis."""
        part = Moments(self.total.shape[:-1])
        part.count, part.total = self.count[..., i], self.total[..., i]
        part.total_of_squares = self.total_of_squares[..., i]
        return part

    def mean(self) -> NDArray[np.float64]:
        with np.errstate(invalid="ignore"):
            return self.total / self.count

    def summary(self, at: tuple[int, ...] = (), *, is_share: bool = False) -> TableRow:
        """Mean, interval and count of the entry `at`, by column name."""
        low, high = (float(end[at]) for end in self.interval(is_share=is_share))
        count = int(self.count[at])
        return {"value": float(self.mean()[at]), "low": low, "high": high, "count": count}

    def interval(
        self, *, is_share: bool = False
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """95 % interval of the mean: mean ± 1.96·s/√count, s with count − 1; NaN where the count is below 2.

        is_share  the values lie between 0 and 1: use `share_interval`, which never has a width of 0
        """
        mean = self.mean()
        with np.errstate(invalid="ignore", divide="ignore"):
            squares = np.maximum(self.total_of_squares - self.count * mean**2, 0.0)
            variance = squares / (self.count - 1)
            half = np.where(self.count > 1, Z * np.sqrt(variance / self.count), np.nan)
        low, high = mean - half, mean + half
        if not is_share:
            return low, high
        # Some lenses have negative weights. Values between 0 and 1 satisfy Σx² ≤ Σx, with equality if all are 0 or 1.
        excess = self.total - self.total_of_squares
        in_bounds = (self.count > 1) & (excess >= -EQUAL * self.count)
        variance = np.where(excess <= 0, mean * (1 - mean), variance)
        share_low, share_high = share_interval(mean, variance, self.count)
        return np.where(in_bounds, share_low, low), np.where(in_bounds, share_high, high)


def wilson_interval(
    share: ArrayLike, count: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Wilson's 95 % score interval of a share of `count` yes-or-no answers (Wilson 1927)."""
    share, count = np.clip(share, 0.0, 1.0), np.asarray(count, dtype=np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        centre = (share + Z**2 / (2 * count)) / (1 + Z**2 / count)
        half = Z / (1 + Z**2 / count) * np.sqrt(share * (1 - share) / count + Z**2 / (4 * count**2))
    # The share itself is always inside; without this, rounding can leave 1e-17 of 0 or 1 outside.
    low, high = np.minimum(centre - half, share), np.maximum(centre + half, share)
    return np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)


def share_interval(
    mean: NDArray[np.float64], variance: NDArray[np.float64], count: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """95 % interval of the mean of values between 0 and 1: Wilson's, with the effective number of values.

    `count` values with this variance are as informative about their mean as mean·(1 − mean)·count / variance answers
    that are 0 or 1 (the design effect of survey sampling). For 0/1 values this is Wilson's interval; for values that
    vary little it is mean ± 1.96·s/√count.

    Equal values have no variance. After `count` equal ones, up to a share z² / (count + z²) of all texts may
    have another value (Wilson's upper end of 0 of `count`), which may be anything between 0 and 1.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        low, high = wilson_interval(mean, mean * (1 - mean) * count / variance)
    others = Z**2 / (count + Z**2)
    is_equal = variance <= EQUAL**2
    low = np.where(is_equal, mean * (1 - others), low)
    return low, np.where(is_equal, mean + (1 - mean) * others, high)


def to_frame(rows: Iterable[Row]) -> pd.DataFrame:
    """Rows as a DataFrame with exactly COLUMNS, sorted by stack, statistic (in order of appearance), layer and head."""
    import pandas as pd

    frame = pd.DataFrame(list(rows), columns=list(COLUMNS))
    frame = frame.astype({"layer": "int64", "head": "int64", "count": "int64", "value": "float64"})
    frame = frame.astype({"low": "float64", "high": "float64", "stack": str, "statistic": str})
    order = {name: i for i, name in enumerate(dict.fromkeys(frame["statistic"]))}
    stacks = {name: i for i, name in enumerate(STACKS)}
    keys = frame.assign(stack=frame["stack"].map(stacks), statistic=frame["statistic"].map(order))
    order_of_rows = keys.sort_values(["stack", "statistic", "layer", "head"]).index
    return frame.loc[order_of_rows].reset_index(drop=True)


def stack_layers(arrays: Mapping[Site, NDArray[Any]]) -> NDArray[Any]:
    """Stack the arrays [head, …] of one stack's sites to [layer, head, …]; NaN for pruned heads."""
    numbers = {site: [h.head for h in site.heads(len(array))] for site, array in arrays.items()}
    layers = 1 + max(site.layer for site in arrays)
    heads = 1 + max(map(max, numbers.values()))
    result = np.full((layers, heads, *next(iter(arrays.values())).shape[1:]), np.nan)
    for site, of_site in numbers.items():
        result[site.layer, of_site] = arrays[site]
    return result


def rows_of(
    heads: Iterable[Head], statistic: str, moments: Moments, *, is_share: bool = False
) -> list[Row]:
    """Rows from moments [head]; a head without any defined value has no row."""
    low, high = moments.interval(is_share=is_share)
    mean = moments.mean()
    return [
        Row.of(head, statistic, float(mean[i]), float(low[i]), float(high[i]), int(count))
        for i, head in enumerate(heads)
        if (count := moments.count[i]) > 0
    ]
