"""The trade-off between size and performance: metric on the report split, parameters and time of every reported set.

A set is on the Pareto front if no other set is at least as good in every respect and better in one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, TypedDict, cast

import numpy as np

from headscope.ablation.chance import chance_note
from headscope.ablation.significance import (
    delta_of_losses,
    delta_of_metric,
    metrics_of,
    resamples_for,
)
from headscope.model import latency as speed
from headscope.model.attention_model import AttentionModel
from headscope.model.latency import Speed
from headscope.model.pruning_record import SpeedRecord
from headscope.model.surgery import prune
from headscope.pruning.repair import repair_inplace
from headscope.pruning.subset_evaluator import Memory, Removed, SubsetEvaluator, SubsetState
from headscope.tasks import Judged, Prepared, Task
from headscope.tasks.inference import evaluate

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Changes(TypedDict):
    """Loss and metric of a changed model, and their changes with intervals: columns of many tables."""

    # The values of type Any are numbers, or None if undefined.
    loss: Any
    loss_change: float
    loss_low: float
    loss_high: float
    metric: Any
    metric_low: Any
    metric_high: Any
    metric_change: float
    change_low: float
    change_high: float
    p: float


class TimeColumns(TypedDict):
    """Time of a forward pass of the pruned model, divided by that of the unpruned one, and its interval."""

    time: float
    time_low: float
    time_high: float


class SelectionColumns(TypedDict):
    """Mean loss and metric on the selection split."""

    selection_loss: float
    selection_metric: float


class FrontRow(Changes, TimeColumns, SelectionColumns):
    """A row of the table `front`: one set of removed heads."""

    removed: int
    left: int
    repair: str
    parameters: int
    is_chosen: bool
    draw: int
    heads: str
    is_front: bool


class FrontMeasures(TimeColumns):
    """The columns that decide which rows are on the front; rows of several tables have them."""

    left: int
    parameters: int
    metric: Any


class FixingRow(Changes, TimeColumns, SelectionColumns):
    """A row of the table `fixing`: one set of heads with fixed patterns."""

    kind: str
    named: str
    fixed: int
    learned: int
    parameters: int
    heads: str
    is_front: bool
    is_chosen: bool


# The columns of the unpruned model: its time divided by its own time
UNTIMED: TimeColumns = {"time": 1.0, "time_low": 1.0, "time_high": 1.0}


def changes(task: Task, before: Judged, after: Judged, draws: NDArray[np.int64] | None) -> Changes:
    """Loss and metric of a changed model (`after`), and their paired changes from the model `before`."""
    metrics = metrics_of(task, after)
    name = task.metrics[0]
    loss = delta_of_losses(before.losses, after.losses)
    metric = delta_of_metric(task, before.scores, after.scores, draws)
    if after is before:  # the change of a model from itself is exactly 0, without an interval
        metric = replace(metric, low=metric.value, high=metric.value)
    return {
        "loss": metrics["loss"]["value"],
        "loss_change": loss.value,
        "loss_low": loss.low,
        "loss_high": loss.high,
        "metric": metrics[name]["value"],
        "metric_low": metrics[name]["low"],
        "metric_high": metrics[name]["high"],
        "metric_change": metric.value,
        "change_low": metric.low,
        "change_high": metric.high,
        "p": metric.p,
    }


def change_text(row: Changes) -> str:
    """The change of the metric with its interval, for log lines."""
    return f"{row['metric_change']:+.4f} [{row['change_low']:+.4f}, {row['change_high']:+.4f}]"


def judge_once(memory: Memory, key: str, judge: Callable[[], list[Judged]]) -> list[Judged]:
    """Losses and scores as `judge` computes them, from the memory if they were computed before."""
    stored = memory.compute_once(
        key, lambda: [{"losses": j.losses.tolist(), "scores": j.scores.tolist()} for j in judge()]
    )
    return [Judged(np.array(each["losses"]), np.array(each["scores"])) for each in stored]


def speeds_of(model: AttentionModel, cut: AttentionModel) -> list[Speed]:
    """Measure the speed of the unpruned model and the pruned model (`cut`), alternating between them."""
    length = speed.longest_input(model, speed.TIMED[1])
    return speed.measure([model, cut], batch_size=speed.TIMED[0], length=length)


def measure_once(
    memory: Memory, key: str, model: AttentionModel, cut: Callable[[], AttentionModel]
) -> list[Speed]:
    """`speeds_of` the model and the pruned model, from the memory if they were measured before."""
    stored = memory.compute_once(key, lambda: [asdict(s) for s in speeds_of(model, cut())])
    return [Speed(**fields) for fields in stored]


def speed_record(measured: Speed, name: str | None = None) -> SpeedRecord:
    """The measurements as JSON. name: replaces the name of the model."""
    return cast("SpeedRecord", asdict(measured) | {"name": name or measured.name})


def timing_setup(model: AttentionModel) -> str:
    """The batch that `speeds_of` measures with, in words."""
    return f"{speed.TIMED[0]} sequences of {speed.longest_input(model, speed.TIMED[1])} tokens"


def time_columns(speeds: Sequence[Speed]) -> TimeColumns:
    """The time columns of front.csv, from the `speeds_of` both models."""
    cut = speeds[1]
    return {"time": cut.ratio, "time_low": cut.low, "time_high": cut.high}


def on_front(rows: Sequence[FrontMeasures]) -> list[bool]:
    """[row]: whether it is on the front: its metric is defined, and no other row dominates it."""
    return [
        bool(np.isfinite(row["metric"]))
        and not any(_dominates(other, row) for other in rows if other is not row)
        for row in rows
    ]


def _dominates(row: FrontMeasures, other: FrontMeasures) -> bool:
    """Whether `row` dominates `other`: at least as good in heads, parameters, metric and time, and better in one.

    Times count as different only if their intervals do not overlap, since they vary from run to run.
    """
    growth = row["left"] - other["left"], row["parameters"] - other["parameters"]
    gain = row["metric"] - other["metric"]
    if max(growth) > 0 or not gain >= 0 or row["time_low"] > other["time_high"]:
        return False
    return bool(min(growth) < 0 or gain > 0 or row["time_high"] < other["time_low"])


class Report:
    """Evaluates sets of removed heads on the report split, and measures their speed.

    repairs      each set is reported without repair, and with each of these
    calibration  the calibration set of the repairs
    build_model  function that returns the model without a set; by default it prunes without training
    """

    def __init__(
        self,
        selection: SubsetEvaluator,
        prepared: Prepared,
        *,
        repairs: Sequence[str] = (),
        calibration: Prepared | None = None,
        build_model: Callable[[Removed], AttentionModel] | None = None,
    ) -> None:
        self.selection, self.prepared, self.calibration = selection, prepared, calibration
        self.build_model = build_model or selection.cut_model
        self.model, self.task = selection.model, selection.task
        self.repairs = repairs
        self.draws = resamples_for(self.task, len(prepared.items))
        self.intact = self._evaluate(lambda: self.model, "report []")
        self.metrics = metrics_of(self.task, self.intact)
        self.chance_note = chance_note(self.model, self.task, prepared, self.metrics)

    def _evaluate(self, model: Callable[[], AttentionModel], key: str) -> Judged:
        """Evaluate a model on the report split, once for each key."""
        memory, size = self.selection.memory, self.selection.batch_size
        (judged,) = judge_once(
            memory, key, lambda: [evaluate(model(), self.task, self.prepared, batch_size=size)]
        )
        return judged

    def front(
        self,
        paths: Sequence[list[SubsetState]],
        best: SubsetState,
        sizes: int | Sequence[int],
        log: Callable[[str], None],
    ) -> list[FrontRow]:
        """Rows of front.csv: one for each set and repair.

        paths  the paths of a search, each from the unpruned model to its last set
        best   the set that the search chose
        sizes  the numbers of removed heads to report, or how many evenly spaced numbers
        """
        rows = []
        for draw, path in enumerate(paths):
            states = self._select_sizes(path, best, sizes)
            log(f"reporting {len(states)} sizes on {len(self.prepared.items)} other examples")
            for state in states:
                for repair in ["", *self.repairs] if state.removed else [""]:
                    is_chosen = state.removed == best.removed and not repair
                    row = self._row(state, draw, repair, is_chosen)
                    rows.append(row)
                    label = f"{row['removed']} removed{', ' + repair if repair else ''}"
                    log(f"{label}: {self.task.metrics[0]} {row['metric']:.4f} on the report split")
        for row, is_front in zip(rows, on_front(rows), strict=True):
            row["is_front"] = is_front
        return rows

    def _repair(self, state: SubsetState, repair: str) -> AttentionModel:
        """The pruned model after a repair, or without one if `repair` is empty."""
        if not repair:
            return self.build_model(state.removed)
        assert self.calibration is not None
        # A repair changes the model in place, so it needs a copy of its own: `build_model` may return a cached model.
        cut = prune(self.model, list(self.selection.heads(state.removed)))
        size = self.selection.batch_size
        for method in repair.split("+"):
            repair_inplace(self.model, cut, method, self.task, self.calibration, batch_size=size)
        return cut

    def _row(self, state: SubsetState, draw: int, repair: str, is_chosen: bool) -> FrontRow:
        """The row of front.csv of one set; changes are paired with the intact model."""
        cut = self.build_model(state.removed)
        judged = self.judge(state, repair)
        return {
            "removed": self.selection.size(state.removed),
            "left": len(cut.heads),
            "repair": repair,
            "parameters": sum(p.numel() for p in cut.model.parameters()),
            **(time_columns(self.speeds(state, cut)) if state.removed else UNTIMED),
            "selection_loss": np.nan if repair else state.outcome.loss,
            "selection_metric": np.nan if repair else state.outcome.metric,
            **changes(self.task, self.intact, judged, self.draws),
            "is_chosen": is_chosen,
            "draw": draw,
            "heads": str(self.selection.heads(state.removed)),
            "is_front": False,  # set by `front`, when all rows are known
        }

    def judge(self, state: SubsetState, repair: str = "") -> Judged:
        """Evaluate the model without this set on the report split; a second call returns the stored result."""
        key = f"report {repair}{sorted(state.removed)}"
        if not state.removed:
            return self.intact
        return self._evaluate(lambda: self._repair(state, repair), key)

    def speeds(self, state: SubsetState, cut: AttentionModel | None = None) -> list[Speed]:
        """Measure the unpruned model and the one without this set, once, so that all tables show the same numbers."""
        key, removed = f"speeds {sorted(state.removed)}", state.removed
        memory = self.selection.memory
        return measure_once(memory, key, self.model, lambda: cut or self.build_model(removed))

    def _select_sizes(
        self, path: list[SubsetState], best: SubsetState, sizes: int | Sequence[int]
    ) -> list[SubsetState]:
        """The states of a path that are reported: those of these sizes, and the first, the last and the best."""
        last = len(path) - 1
        if isinstance(sizes, int):
            if len(path) <= sizes:
                return path
            positions = {round(i * last / max(sizes - 1, 1)) for i in range(sizes)}
        else:
            size = self.selection.size
            positions = {i for i, state in enumerate(path) if size(state.removed) in sizes}
        positions |= {0, last}
        return [s for i, s in enumerate(path) if i in positions or s.removed == best.removed]
