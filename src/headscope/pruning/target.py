"""The target of a search: when the search stops, and which set of its path is chosen."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from headscope.config.search import SearchConfig
from headscope.errors import HeadscopeError

if TYPE_CHECKING:
    from headscope.config.shared import Run
    from headscope.model.latency import LayerTimes
    from headscope.pruning.subset_evaluator import SubsetEvaluator, SubsetState

FEWER = 256  # number of examples that the log suggests if a search will take long
PATIENCE = 3  # a search stops after this number of sizes in a row that are below the metric to keep


def heads_to_remove(config: SearchConfig, selection: SubsetEvaluator) -> int | None:
    """The number of heads to remove, from `remove` or `sparsity`; None if the target is another one."""
    removable = selection.size(range(len(selection.units)))
    wanted: int | None = (
        config.remove if config.sparsity is None else max(1, round(config.sparsity * removable))
    )
    if wanted is None:
        return None
    option = "`remove`" if config.sparsity is None else "`sparsity`"
    check_reachable(wanted, removable, _reachable(selection), option, selection.at_least)
    smallest = min(len(unit) for unit in selection.units)
    if wanted < smallest:
        expected = f"{smallest} or more: heads that share weights are removed together"
        raise HeadscopeError(f"{wanted} cannot be removed alone", where=option, expected=expected)
    return wanted


def check_reachable(
    wanted: int, count: int, reachable: int, option: str, at_least: int = 0
) -> None:
    """Raise an error if more heads are to be removed than a search can reach.

    count     number of heads that may be removed
    at_least  minimum number of heads per layer, for the message
    """
    if wanted > reachable:
        what = f"cannot remove {wanted} of {count} heads"
        kept = f", since {at_least} are kept in each layer" if at_least else ""
        raise HeadscopeError(what, where=option, expected=f"at most {reachable}{kept}")


def _reachable(selection: SubsetEvaluator) -> int:
    """The largest number of heads that a search can remove."""
    removed: frozenset[int] = frozenset()
    while candidates := selection.candidates(removed):
        removed |= {candidates[0]}
    return selection.size(removed)


def estimate(seconds: float, steps: int, examples: int) -> str:
    """The longest that a search can take, in words; empty if less than two minutes. seconds: of its first step."""
    minutes = seconds * steps / 60
    if minutes < 2:
        return ""
    fewer = ""
    if examples > 2 * FEWER:
        fewer = f"; `limit={FEWER}` makes it {max(minutes * FEWER / examples, 1):.0f}"
    return f"about {minutes:.0f} min at most for {steps} steps{fewer}"


class StoppingRule:
    """Follows the path of a search until its target is reached, and chooses a state of it.

    most    number of heads to remove, if that is the target
    layers  measured times of layers with fewer heads, if the target is a speedup
    """

    def __init__(self, selection: SubsetEvaluator, target: SearchConfig, run: Run) -> None:
        self.selection, self.target, self.run = selection, target, run
        name, intact = selection.task.metrics[0], selection.intact.metric
        if target.keep_metric is not None and not intact > 0:
            raise HeadscopeError(
                f"{name} of the unpruned model is {intact:.4f}: no share of it can be kept",
                where="`keep_metric`",
                expected="a model that can do the task, or `remove=N`",
            )
        self.most = heads_to_remove(target, selection)
        self.layers: LayerTimes | None = None
        if target.speedup is not None:
            from headscope.model import latency as speed

            model = selection.model
            size, length = speed.TIMED[0], speed.longest_input(model, speed.TIMED[1])

            def measure() -> dict[str, Any]:
                return asdict(
                    speed.measure_layers(model, batch_size=size, length=length, repeats=6)
                )

            # a resumed run uses the same times
            times = selection.memory.compute_once("layers", measure)
            self.layers = speed.LayerTimes(tuple(times["share"]), tuple(times["time"]))
            if target.speedup > self.layers.bound:
                raise HeadscopeError(
                    f"{target.speedup:g} times is more than head pruning can give here",
                    where="`speedup`",
                    expected=f"at most {self.layers.bound:.2f}, the speedup without any attention head",
                )
        self.reachable = self.most or _reachable(selection)

    def follow(self, path: Iterator[SubsetState]) -> list[SubsetState]:
        """The states of a search, from the intact model to the target."""
        from headscope.pruning.subset_evaluator import SubsetState

        states = [SubsetState(frozenset(), self.selection.intact)]
        metric, log = self.selection.task.metrics[0], self.run.log
        below, size, started = 0, 0, time.monotonic()
        for state in path:
            reached, size = size, self.selection.size(state.removed)
            if self.most is not None and size > self.most:
                log(
                    f"note: {reached} heads instead of {self.most}: the next ones share weights and can only be "
                    "removed together"
                )
                break
            states.append(state)
            outcome, spent = state.outcome, f"{self.selection.spent:.0f} evaluations"
            log(f"{size} removed: loss {outcome.loss:.4f}, {metric} {outcome.metric:.4f} ({spent})")
            if len(states) == 2:
                seconds = time.monotonic() - started
                if line := estimate(seconds, self.reachable, self.selection.count):
                    log(line)
            self.run.progress(min(size, self.reachable), self.reachable)
            below = 0 if self._keeps(state) else below + 1
            if size == self.most or below >= PATIENCE or self._is_fast(state):
                break
        return states

    def _keeps(self, state: SubsetState) -> bool:
        """Whether the state keeps the target share of the metric; True if that is not the target."""
        share = self.target.keep_metric
        return share is None or state.outcome.metric >= share * self.selection.intact.metric

    def _is_fast(self, state: SubsetState) -> bool:
        """Whether the state reaches the target speedup; False if that is not the target."""
        if self.layers is None or self.target.speedup is None:
            return False
        return 1 / self.predict_time(state) >= self.target.speedup

    def predict_time(self, state: SubsetState) -> float:
        """Predicted share of the intact model's time, from measured times of layers."""
        assert self.layers is not None
        heads = len(self.selection.model.heads)
        return self.layers.at((heads - self.selection.size(state.removed)) / heads)

    def choose(self, path: list[SubsetState]) -> SubsetState:
        """The last state of the path that meets the target."""
        if len(path) == 1:
            raise HeadscopeError(
                "no head may be removed", where="prune", expected="a smaller `min_heads_per_layer`"
            )
        if self.target.keep_metric is not None:
            good = [state for state in path[1:] if self._keeps(state)]
            if not good:
                best = max(path[1:], key=lambda state: state.outcome.metric)
                share = best.outcome.metric / self.selection.intact.metric
                raise HeadscopeError(
                    f"no set keeps {self.target.keep_metric:g} of the metric",
                    where="`keep_metric`",
                    expected=f"at most {share:.4f}, which is without {self.selection.heads(best.removed)}",
                )
            return max(good, key=lambda state: self.selection.size(state.removed))
        if self.target.speedup is not None and not self._is_fast(path[-1]):
            raise HeadscopeError(
                f"{self.target.speedup:g} times cannot be reached",
                where="`speedup`",
                expected=f"at most {1 / self.predict_time(path[-1]):.2f}",
            )
        return path[-1]
