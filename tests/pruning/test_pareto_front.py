"""Which of several cut models is worth a look: the front, told from what another one beats in everything."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from headscope.pruning.pareto_front import on_front


def row(left: int, metric: float, low: float = 1.0, high: float = 1.0) -> dict[str, float]:
    return {
        "left": left,
        "parameters": 100 * left,
        "metric": metric,
        "time_low": low,
        "time_high": high,
    }


def test_what_another_row_beats_in_everything_is_not_on_the_front() -> None:
    rows = {
        "the whole model": row(8, 0.90),
        "smaller and better": row(7, 0.92, 0.90, 0.95),
        "smaller still": row(6, 0.85, 0.80, 0.90),
        "as small, worse, as fast": row(6, 0.84, 0.82, 0.92),
        "as small, worse, measurably faster": row(6, 0.84, 0.60, 0.70),
        "undefined": row(5, float("nan"), 0.5, 0.5),
        "smaller, as good, measurably slower": row(5, 0.85, 0.95, 0.99),
    }
    result = dict(zip(rows, on_front(list(rows.values())), strict=True))
    assert [name for name, is_front in result.items() if not is_front] == [
        "the whole model",
        "as small, worse, as fast",
        "undefined",
    ]


def test_of_two_that_are_the_same_both_are_on_it() -> None:
    assert on_front([row(6, 0.8, 0.7, 0.9), row(6, 0.8, 0.7, 0.9)]) == [True, True]


@settings(deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 5)), min_size=1, max_size=12))
def test_where_nothing_is_timed_the_front_is_what_a_walk_from_the_smallest_finds(
    points: list[tuple[int, int]],
) -> None:
    """From the fewest heads up, a point is on the front if its metric is above all that came before, or tied with one
    of the same size that is."""
    best_before, wanted = -1, set()
    for left in sorted({size for size, _ in points}):
        best = max(metric for size, metric in points if size == left)
        if best > best_before:
            wanted.add((left, best))
        best_before = max(best_before, best)
    result = on_front([row(left, metric / 5) for left, metric in points])
    assert [point in wanted for point in points] == result
