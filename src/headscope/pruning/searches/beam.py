"""Several sets at once, a greedy path among them.

Candidates are the heads that the gradient at the set calls cheapest, and the heads that were cheapest when last
measured. Then swaps: a head comes back and another goes instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from headscope.config.search import EXPANSION, SWAPS, WIDTH, SearchConfig
from headscope.pruning.subset_evaluator import Removed, Selection, SubsetState


def paths(selection: Selection, config: SearchConfig, seed: int) -> list[Iterator[SubsetState]]:
    return [beam(selection, config.width, config.expansion, config.swaps)]


def beam(
    selection: Selection, width: int = WIDTH, expansion: int = EXPANSION, swaps: int = SWAPS
) -> Iterator[SubsetState]:
    """The best `width` sets of each size, grown from those of the size before, and swaps of the best of them.

    A greedy path is always among the sets that are grown: the best child of its own last set, whatever else the beam
    finds. It tries every head at the first step, afterwards the `expansion` heads that the gradient calls cheapest and
    about half as many that were cheapest when it last tried them, all on all examples. So it is the same path for
    every width and number of swaps: that of a beam of width 1 without swaps, and that of `greedy` if `expansion` is at
    least the number of heads. What is yielded is never worse.

    The other sets try fewer candidates, the first `expansion` and the n-th a n-th of that: they have less to win.
    """
    path = SubsetState(frozenset(), selection.intact)
    states = [path]
    gains: dict[int, tuple[float, float]] = {}  # of each unit, when the greedy path last tried it
    while True:
        children = _path_children(selection, path, gains, expansion)
        found = {child.removed: child for child in children}
        for place, state in enumerate(states):
            if state.removed == path.removed:
                continue
            promising = _promising(selection, state.removed, gains)[
                : max(1, expansion // (place + 1))
            ]
            wanted = [unit for unit in promising if state.removed | {unit} not in found]
            for child in selection.children(state.removed, wanted, keep=width):
                found[child.removed] = child
        if not found:
            return
        path = children[0] if children else path
        states = _best(selection, found.values(), width)
        better = _swapped(selection, states[0], swaps)
        if better is not None:
            states = _best(selection, [better, *states], width)
        yield states[0]


def _path_children(
    selection: Selection, path: SubsetState, gains: dict[int, tuple[float, float]], expansion: int
) -> list[SubsetState]:
    """The candidates of the greedy path, best first, all tried on all examples; their gains are noted."""
    candidates = selection.candidates(path.removed)
    if path.removed and expansion < len(candidates):
        predicted = _by_slope(selection, path.removed)[:expansion]
        candidates = sorted({*predicted, *_promising(selection, path.removed, gains)[:expansion]})
    children = selection.children(path.removed, candidates)
    before = selection.goodness(path.outcome)
    before = (
        before if np.isfinite(before) else 0.0
    )  # an undefined metric: whatever is defined is better
    for child in children:
        (unit,) = child.removed - path.removed
        # Equal metrics are told apart by the loss.
        gains[unit] = (
            selection.goodness(child.outcome) - before,
            child.outcome.loss - path.outcome.loss,
        )
    return children


def _by_slope(selection: Selection, removed: Removed) -> list[int]:
    """The candidates at a set, those first that the gradient there calls cheapest."""
    slopes = selection.slopes(removed)
    return sorted(selection.candidates(removed), key=lambda unit: (slopes[unit], unit))


def _promising(
    selection: Selection, removed: Removed, gains: dict[int, tuple[float, float]]
) -> list[int]:
    """The candidates at a set, in turns by what was last measured and by the gradient at the set.

    The gradient knows what the set has changed, but it is that of the loss, where the search may go by the metric, and
    it misjudges heads that matter much. What was measured at a smaller set is exact there.
    """
    predicted = _by_slope(selection, removed)
    measured = sorted(predicted, key=lambda unit: (gains[unit], unit))
    return list(
        dict.fromkeys(unit for pair in zip(measured, predicted, strict=True) for unit in pair)
    )


def _best(selection: Selection, states: Iterable[SubsetState], width: int) -> list[SubsetState]:
    """The best sets; only those tried on all examples, as there always are some."""
    whole = [state for state in states if state.outcome.examples == selection.count]
    return sorted(
        whole, key=lambda state: (selection.goodness(state.outcome), sorted(state.removed))
    )[:width]


def _swapped(selection: Selection, state: SubsetState, swaps: int) -> SubsetState | None:
    """The best set that differs by one head that came back and one that went, if it is better than this one."""
    if swaps < 1 or len(state.removed) < 2:
        return None
    slopes = selection.slopes(state.removed)
    back = sorted(state.removed, key=lambda unit: (slopes[unit], unit))[:swaps]
    best: SubsetState | None = None
    for returned in back:
        fewer = state.removed - {returned}
        going = [
            unit
            for unit in selection.candidates(fewer)
            if unit != returned and fewer | {unit} not in selection.tried
        ]
        wanted = sorted(going, key=lambda unit: (slopes[unit], unit))[:swaps]
        for child in selection.children(fewer, wanted, keep=1)[:1]:
            if selection.goodness(child.outcome) < selection.goodness((best or state).outcome):
                best = child
    return best
