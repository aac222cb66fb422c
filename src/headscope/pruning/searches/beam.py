"""Beam search with a greedy path inside the beam, and swaps.

To expand a set, only promising heads are evaluated: those with the least predicted change of loss for this set, and
those with the least cost when they were last evaluated. A swap restores one removed head and removes another one.
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
    """Yields the best set of each size. The beam has the best `width` sets of a size; their children are the next size.

    In addition to the beam there is a greedy path. Each of its sets is the best child of the set before, whatever the
    beam contains. So the path does not depend on the width or the number of swaps: it is that of a beam of width 1
    without swaps. The yielded sets are never worse than the path.

    - At its first step the greedy path evaluates every head. Later it evaluates the `expansion` heads with the least
      predicted change, and up to `expansion / 2` further heads with the least cost at their last evaluation. All of
      them are evaluated on all examples. If `expansion` is at least the number of heads, the path is that of the
      search `greedy`.
    - The other sets of the beam are expanded with fewer candidates: the best set with `expansion`, the n-th best with
      `expansion / n`. Candidates that fall behind are dropped before all examples are evaluated.
    """
    path = SubsetState(frozenset(), selection.intact)
    states = [path]
    # {unit: (change of cost, change of loss)} when the unit was last evaluated on the greedy path
    costs: dict[int, tuple[float, float]] = {}
    while True:
        children = _path_children(selection, path, costs, expansion)
        grown = {child.removed: child for child in children}
        for i, state in enumerate(states):
            if state.removed == path.removed:
                continue
            count = max(1, expansion // (i + 1))
            promising = _promising(selection, state.removed, costs)[:count]
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
    """The children of the greedy path's last set, best first, evaluated on all examples. Updates `costs`."""
    candidates = selection.candidates(path.removed)
    if path.removed and expansion < len(candidates):
        predicted = _by_prediction(selection, path.removed)[:expansion]
        candidates = sorted({*predicted, *_promising(selection, path.removed, costs)[:expansion]})
    children = selection.children(path.removed, candidates)
    before = selection.cost(path.outcome)
    # The cost of an undefined metric is infinite, and no difference from it is finite.
    before = before if np.isfinite(before) else 0.0
    for child in children:
        (unit,) = child.removed - path.removed
        loss = child.outcome.loss - path.outcome.loss  # breaks ties of the metric
        costs[unit] = selection.cost(child.outcome) - before, loss
    return children


def _by_prediction(selection: SubsetEvaluator, removed: Removed) -> list[int]:
    """The units that may be removed next, those with the least predicted change of loss first."""
    changes = selection.predict_changes(removed)
    return sorted(selection.candidates(removed), key=lambda unit: (changes[unit], unit))


def _promising(
    selection: SubsetEvaluator, removed: Removed, costs: dict[int, tuple[float, float]]
) -> list[int]:
    """The units that may be removed next, most promising first: alternately by last measured cost and by prediction.

    Both are needed. Predictions are for this set, but they predict the loss even if the objective is the metric, and
    they are wrong for important heads. Measured costs are exact, but were measured for a smaller set.
    """
    predicted = _by_prediction(selection, removed)
    measured = sorted(predicted, key=lambda unit: (costs[unit], unit))
    pairs = zip(measured, predicted, strict=True)
    return list(dict.fromkeys(unit for pair in pairs for unit in pair))


def _best(
    selection: SubsetEvaluator, states: Iterable[SubsetState], width: int
) -> list[SubsetState]:
    """The best `width` sets among those evaluated on all examples, best first."""
    complete = [state for state in states if state.outcome.examples == selection.count]
    complete.sort(key=lambda state: (selection.cost(state.outcome), sorted(state.removed)))
    return complete[:width]


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
