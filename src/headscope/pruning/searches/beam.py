"""Beam search with a greedy path inside the beam, and swaps.

Candidates are the heads with the least predicted change of loss at the set, and those with the least cost when last
evaluated. A swap restores one head and removes another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from headscope.config.search import EXPANSION, SWAPS, WIDTH, SearchConfig
from headscope.pruning.subset_evaluator import Removed, SubsetEvaluator, SubsetState


def paths(
    selection: SubsetEvaluator, config: SearchConfig, seed: int
) -> list[Iterator[SubsetState]]:
    return [beam(selection, config.beam_width, config.expansion, config.swaps)]


def beam(
    selection: SubsetEvaluator, width: int = WIDTH, expansion: int = EXPANSION, swaps: int = SWAPS
) -> Iterator[SubsetState]:
    """The best `width` sets of each size, grown from those of the size before, and swaps of the best of them.

    A greedy path is always among the expanded sets: the best child of its own last set, whatever else the beam
    contains. It evaluates every head at the first step, afterwards the `expansion` heads with the least prediction and
    about half as many with the least cost when last evaluated, all on all examples. So it is the same path for every
    width and number of swaps: that of a beam of width 1 without swaps, and that of `greedy` if `expansion` is at least
    the number of heads. The yielded sets are never worse.

    The other sets are expanded with fewer candidates, the first with `expansion` and the n-th with an n-th of that.
    """
    path = SubsetState(frozenset(), selection.intact)
    states = [path]
    # Of each unit, when last evaluated on the greedy path
    costs: dict[int, tuple[float, float]] = {}
    while True:
        children = _path_children(selection, path, costs, expansion)
        grown = {child.removed: child for child in children}
        for i, state in enumerate(states):
            if state.removed == path.removed:
                continue
            most = max(1, expansion // (i + 1))
            promising = _promising(selection, state.removed, costs)[:most]
            new = [unit for unit in promising if state.removed | {unit} not in grown]
            for child in selection.children(state.removed, new, keep=width):
                grown[child.removed] = child
        if not grown:
            return
        path = children[0] if children else path
        states = _best(selection, grown.values(), width)
        better = _best_swap(selection, states[0], swaps)
        if better is not None:
            states = _best(selection, [better, *states], width)
        yield states[0]


def _path_children(
    selection: SubsetEvaluator,
    path: SubsetState,
    costs: dict[int, tuple[float, float]],
    expansion: int,
) -> list[SubsetState]:
    """The children of the greedy path, best first, all evaluated on all examples; their costs are stored."""
    candidates = selection.candidates(path.removed)
    if path.removed and expansion < len(candidates):
        predicted = _by_prediction(selection, path.removed)[:expansion]
        candidates = sorted({*predicted, *_promising(selection, path.removed, costs)[:expansion]})
    children = selection.children(path.removed, candidates)
    before = selection.cost(path.outcome)
    # Any defined metric is better than an undefined one
    before = before if np.isfinite(before) else 0.0
    for child in children:
        (unit,) = child.removed - path.removed
        loss = child.outcome.loss - path.outcome.loss  # breaks ties of the metric
        costs[unit] = selection.cost(child.outcome) - before, loss
    return children


def _by_prediction(selection: SubsetEvaluator, removed: Removed) -> list[int]:
    """The candidates at a set, by predicted change of loss."""
    changes = selection.predict_changes(removed)
    return sorted(selection.candidates(removed), key=lambda unit: (changes[unit], unit))


def _promising(
    selection: SubsetEvaluator, removed: Removed, costs: dict[int, tuple[float, float]]
) -> list[int]:
    """The candidates at a set, alternately by their last measured cost and by the prediction at the set.

    Predictions take the set into account, but they are of the loss even if the objective is the metric, and they
    misjudge important heads. Measured costs are exact, but for a smaller set.
    """
    predicted = _by_prediction(selection, removed)
    measured = sorted(predicted, key=lambda unit: (costs[unit], unit))
    pairs = zip(measured, predicted, strict=True)
    return list(dict.fromkeys(unit for pair in pairs for unit in pair))


def _best(
    selection: SubsetEvaluator, states: Iterable[SubsetState], width: int
) -> list[SubsetState]:
    """The best sets among those evaluated on all examples."""
    whole = [state for state in states if state.outcome.examples == selection.count]
    return sorted(whole, key=lambda state: (selection.cost(state.outcome), sorted(state.removed)))[
        :width
    ]


def _best_swap(selection: SubsetEvaluator, state: SubsetState, swaps: int) -> SubsetState | None:
    """The best set with one head restored and another removed, if it is better than this one."""
    if swaps < 1 or len(state.removed) < 2:
        return None
    changes = selection.predict_changes(state.removed)

    def rank(unit: int) -> tuple[float, int]:
        return changes[unit], unit

    best: SubsetState | None = None
    for restored in sorted(state.removed, key=rank)[:swaps]:
        fewer = state.removed - {restored}
        new = [
            unit
            for unit in selection.candidates(fewer)
            if unit != restored and fewer | {unit} not in selection.tried
        ]
        for child in selection.children(fewer, sorted(new, key=rank)[:swaps], keep=1)[:1]:
            if selection.cost(child.outcome) < selection.cost((best or state).outcome):
                best = child
    return best
