"""Are means and intervals those of the textbook, and do parts add up to the whole?"""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from headscope.heads import Head
from headscope.tables import COLUMNS, Moments, Row, rows_of, to_frame
from reference import intervals

FEW = settings(max_examples=30, deadline=None, derandomize=True, database=None)
VALUES = st.lists(st.floats(-100, 100), min_size=2, max_size=20)


def moments(values: list[float]) -> Moments:
    result = Moments((1,))
    result.add(np.array(values, dtype=np.float64)[:, None])
    return result


@given(values=VALUES)
@FEW
def test_mean_and_interval_are_the_textbooks(values: list[float]) -> None:
    result = moments(values)
    half = 1.96 * statistics.stdev(values) / math.sqrt(len(values))
    low, high = result.interval()
    assert result.mean()[0] == pytest.approx(statistics.fmean(values), abs=1e-9)
    assert low[0] == pytest.approx(statistics.fmean(values) - half, abs=1e-4)
    assert high[0] == pytest.approx(statistics.fmean(values) + half, abs=1e-4)


@given(values=VALUES, data=st.data())
@FEW
def test_parts_merge_into_the_whole(values: list[float], data: st.DataObject) -> None:
    where = data.draw(st.integers(0, len(values)))
    part = moments(values[:where])
    part.merge(moments(values[where:]))
    whole = moments(values)
    assert part.count[0] == whole.count[0] == len(values)
    np.testing.assert_allclose(part.mean(), whole.mean(), atol=1e-9)
    np.testing.assert_allclose(part.interval(), whole.interval(), atol=1e-4)


SHARES = st.lists(
    st.sampled_from([0.0, 1.0]) | st.floats(0, 1).map(lambda x: round(x, 3)),
    min_size=2,
    max_size=20,
)


@given(values=SHARES, data=st.data())
@FEW
def test_the_interval_of_shares_is_that_of_the_slow_reference_whole_or_in_parts(
    values: list[float], data: st.DataObject
) -> None:
    where = data.draw(st.integers(0, len(values)))
    result = moments(values[:where])
    result.merge(moments(values[where:]))
    low, high = result.interval(is_share=True)
    assert (low[0], high[0]) == pytest.approx(intervals.of_shares(values), abs=1e-6)
    assert 0 <= low[0] <= result.mean()[0] + 1e-12
    assert result.mean()[0] - 1e-12 <= high[0] <= 1
    assert high[0] - low[0] > 0.001, "a few texts are never certain"


@pytest.mark.parametrize(("right", "count"), [(0, 40), (1, 40), (20, 40), (40, 40), (2, 3)])
def test_zeros_and_ones_have_wilson_s_interval(right: int, count: int) -> None:
    low, high = moments([1.0] * right + [0.0] * (count - right)).interval(is_share=True)
    wilson = stats.binomtest(right, count).proportion_ci(0.95, "wilson")
    assert (low[0], high[0]) == pytest.approx((wilson.low, wilson.high), abs=1e-4)


def test_shares_that_vary_little_have_the_interval_of_a_mean() -> None:
    values = [0.98 + 0.0001 * (i % 7) for i in range(500)]
    np.testing.assert_allclose(
        moments(values).interval(is_share=True), moments(values).interval(), atol=1e-7
    )


def test_negative_weights_have_the_interval_of_a_mean() -> None:
    """A lens can have them, though the statistic is called a share."""
    values = [-0.2, 0.1, -0.3, 0.05]
    np.testing.assert_array_equal(
        moments(values).interval(is_share=True), moments(values).interval()
    )


def test_nan_means_not_counted() -> None:
    result = moments([1.0, math.nan, 3.0])
    assert (result.count[0], result.mean()[0]) == (2, 2.0)


def test_one_sequence_has_no_interval_and_equal_ones_a_narrow_one() -> None:
    assert np.isnan(moments([5.0]).interval()).all()
    low, high = moments([0.1] * 7).interval()
    assert low[0] == pytest.approx(0.1, abs=1e-7)
    assert high[0] == pytest.approx(0.1, abs=1e-7)


def test_a_head_with_no_answer_has_no_row() -> None:
    result = Moments((2,))
    result.add(np.array([[1.0, math.nan], [2.0, math.nan]]))
    rows = rows_of([Head("encoder", 0, 0), Head("encoder", 0, 1)], "entropy", result)
    assert [(row.head, row.value, row.count) for row in rows] == [(0, 1.5, 2)]


def test_a_column_of_moments_is_that_column() -> None:
    result = Moments((1, 2))
    result.add(np.array([[[1.0, 10.0]], [[3.0, 30.0]]]))
    assert result.column(0).mean()[0] == 2.0
    assert result.column(1).mean()[0] == 20.0


def test_a_frame_has_exactly_the_columns_in_order_of_stack_statistic_layer_and_head() -> None:
    rows = [
        Row(stack, layer, head, name, 0.5, math.nan, math.nan, 1)
        for stack in ("cross", "encoder")
        for name in ("self", "entropy")
        for layer in (10, 2)
        for head in (1, 0)
    ]
    frame = to_frame(rows)
    assert tuple(frame.columns) == COLUMNS
    keys = list(zip(frame["stack"], frame["statistic"], frame["layer"], frame["head"], strict=True))
    assert keys[:3] == [
        ("encoder", "self", 2, 0),
        ("encoder", "self", 2, 1),
        ("encoder", "self", 10, 0),
    ]
    assert keys[4] == ("encoder", "entropy", 2, 0)
    assert keys[8][0] == "cross"
    assert list(frame.index) == list(range(16))
    assert [str(frame[name].dtype) for name in ("layer", "head", "count", "value", "low")] == [
        "int64"
    ] * 3 + ["float64"] * 2


def test_an_empty_frame_has_the_columns_too() -> None:
    assert tuple(to_frame([]).columns) == COLUMNS
