"""How to choose which heads go: five ways through the sets of removed heads, from none to many.

Each yields a state for every number of heads it comes to, the best it knows of; whoever asks stops when it is enough.

rank       one order by importance, and its prefixes
iterative  the same, but the order is made anew after every step (Michel et al. 2019)
greedy     every head that is left is tried, the one that costs least goes
beam       several sets at once, their candidates chosen by the gradient at each set, and swaps: a head comes back
           and another goes in its place
random     an order by chance, as a control
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from headscope.config.search import EXPANSION, SWAPS, WIDTH
from headscope.pruning.selection import Removed, Selection, State

if TYPE_CHECKING:
    from numpy.typing import NDArray

Scores = Callable[[Removed], "NDArray[np.float64]"]  # the importance of every unit when these are gone


def rank(selection: Selection, scores: Scores) -> Iterator[State]:
    """The least important first, by one scoring of the whole model."""
    yield from _in_order(selection, _ascending(scores(frozenset())))


def random(selection: Selection, seed: int) -> Iterator[State]:
    yield from _in_order(selection, np.random.default_rng(seed).permutation(len(selection.units)).tolist())


def _in_order(selection: Selection, order: Sequence[int]) -> Iterator[State]:
    removed: Removed = frozenset()
    for unit in order:
        if unit in selection.candidates(removed):
            removed |= {unit}
            yield State(removed, selection.evaluated(removed))


def iterative(selection: Selection, scores: Scores, step: float) -> Iterator[State]:
    """The least important go, and after a share `step` of all those that are left are scored again."""
    each = max(1, round(step * len(selection.units)))
    removed: Removed = frozenset()
    while candidates := selection.candidates(removed):
        known = scores(removed)
        for unit in sorted(candidates, key=lambda one: (known[one], one))[:each]:
            if unit in selection.candidates(removed):
                removed |= {unit}
                yield State(removed, selection.evaluated(removed))


def greedy(selection: Selection) -> Iterator[State]:
    """Exact: all that may go are tried on all examples."""
    removed: Removed = frozenset()
    while candidates := selection.candidates(removed):
        best = selection.children(removed, candidates)[0]
        removed = best.removed
        yield best


def beam(selection: Selection, width: int = WIDTH, expansion: int = EXPANSION, swaps: int = SWAPS) -> Iterator[State]:
    """The best `width` sets of each size, grown from those of the size before, and swaps of the best of them.

    The first of the beam tries `expansion` candidates, those behind it fewer: they have less to win.
    """
    states = [State(frozenset(), selection.intact)]
    while True:
        found: dict[Removed, State] = {}
        for place, state in enumerate(states):
            candidates = selection.candidates(state.removed)
            slopes = selection.slopes(state.removed)
            promising = sorted(candidates, key=lambda unit: (slopes[unit], unit))
            wanted = [
                unit for unit in promising[: max(1, expansion // (place + 1))] if state.removed | {unit} not in found
            ]
            for child in selection.children(state.removed, wanted, keep=width):
                found[child.removed] = child
        if not found:
            return
        states = _best(selection, found.values(), width)
        better = _swapped(selection, states[0], swaps)
        if better is not None:
            states = _best(selection, [better, *states], width)
        yield states[0]


def _best(selection: Selection, states: Iterable[State], width: int) -> list[State]:
    """The best sets; only those tried on all examples, as there always are some."""
    whole = [state for state in states if state.outcome.examples == selection.count]
    return sorted(whole, key=lambda state: (selection.goodness(state.outcome), sorted(state.removed)))[:width]


def _swapped(selection: Selection, state: State, swaps: int) -> State | None:
    """The best set that differs by one head that came back and one that went, if it is better than this one."""
    if swaps < 1 or len(state.removed) < 2:
        return None
    slopes = selection.slopes(state.removed)
    back = sorted(state.removed, key=lambda unit: (slopes[unit], unit))[:swaps]
    best: State | None = None
    for returned in back:
        fewer = state.removed - {returned}
        going = [
            unit for unit in selection.candidates(fewer) if unit != returned and fewer | {unit} not in selection.tried
        ]
        wanted = sorted(going, key=lambda unit: (slopes[unit], unit))[:swaps]
        for child in selection.children(fewer, wanted, keep=1)[:1]:
            if selection.goodness(child.outcome) < selection.goodness((best or state).outcome):
                best = child
    return best


def _ascending(scores: NDArray[np.float64]) -> list[int]:
    return sorted(range(len(scores)), key=lambda unit: (scores[unit], unit))
