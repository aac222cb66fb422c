"""What is lost and what is gained, size by size: on examples that nothing was chosen on, and by the clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, TypedDict

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
from headscope.model.surgery import prune
from headscope.pruning.repair import repair_inplace
from headscope.pruning.subset_evaluator import Memory, Removed, Selection, SubsetState
from headscope.tasks import Judged, Prepared, Task
from headscope.tasks.inference import evaluate

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Of the whole model and the cut one, measured in turns: fields of `speed.Speed`.
Speeds = list[dict[str, Any]]


class Changes(TypedDict):
    """Loss and metric of a changed model, and their changes with intervals: columns of many tables."""

    loss: Any  # a number, as are those of the metric; None if it is undefined
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
    """The cut model's time over the whole one's, and its interval."""

    time: float
    time_low: float
    time_high: float


class FrontRow(Changes, TimeColumns):
    """A row of the table `front`: one set of removed heads."""

    removed: int
    left: int
    repair: str
    parameters: int
    selection_loss: float
    selection_metric: float
    is_chosen: bool
    draw: int
    heads: str
    is_front: bool


# The whole model beside itself.
UNTIMED: TimeColumns = {"time": 1.0, "time_low": 1.0, "time_high": 1.0}


def changes(task: Task, before: Judged, after: Judged, draws: NDArray[np.int64] | None) -> Changes:
    """Loss and metric of the one, and their change from the other, paired example by example."""
    metrics = metrics_of(task, after)
    name = task.metrics[0]
    loss = delta_of_losses(before.losses, after.losses)
    metric = delta_of_metric(task, before.scores, after.scores, draws)
    if after is before:  # the whole model itself, whose change from itself is certain
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


def change_text(row: Mapping[str, Any]) -> str:
    """The change of the metric with its interval, for log lines."""
    return f"{row['metric_change']:+.4f} [{row['change_low']:+.4f}, {row['change_high']:+.4f}]"


def judge_once(memory: Memory, key: str, judge: Callable[[], list[Judged]]) -> list[Judged]:
    """Losses and scores of a model, from the memory if they were computed before."""
    stored = memory.compute_once(
        key, lambda: [{"losses": j.losses.tolist(), "scores": j.scores.tolist()} for j in judge()]
    )
    return [Judged(np.array(each["losses"]), np.array(each["scores"])) for each in stored]


def speeds_of(model: AttentionModel, cut: AttentionModel) -> Speeds:
    """Measure a cut model beside the whole one."""
    length = speed.longest_input(model, speed.TIMED[1])
    measured = speed.measure([model, cut], batch_size=speed.TIMED[0], length=length)
    return [asdict(result) for result in measured]


def timed_on(model: AttentionModel) -> str:
    """The batch that `speeds_of` measures with, in words."""
    return f"{speed.TIMED[0]} sequences of {speed.longest_input(model, speed.TIMED[1])} tokens"


def time_columns(speeds: Speeds) -> TimeColumns:
    """The columns of front.csv: the cut model's time over the whole one's, and its interval."""
    cut = speeds[1]
    return {"time": cut["ratio"], "time_low": cut["low"], "time_high": cut["high"]}


def on_front(rows: Sequence[Mapping[str, Any]]) -> list[bool]:
    """Which rows no other one dominates; one whose metric is undefined is on no front."""
    return [
        bool(np.isfinite(row["metric"]))
        and not any(_dominates(other, row) for other in rows if other is not row)
        for row in rows
    ]


def _dominates(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether it is as good in heads, parameters and metric, not slower that one could tell, and better in something.

    Times are told apart where their intervals are: by themselves they differ from run to run.
    """
    smaller = [one[name] - other[name] for name in ("left", "parameters")]
    gained = one["metric"] - other["metric"]
    if max(smaller) > 0 or not gained >= 0 or one["time_low"] > other["time_high"]:
        return False
    return bool(min(smaller) < 0 or gained > 0 or one["time_high"] < other["time_low"])


class Report:
    """What sets do on the split that nothing was chosen on, and how fast they are.

    repairs      each set is reported as it is, and after each of these repairs
    calibration  the examples that repairs learn from
    cut          the model without a set; by default the search's own, which is cut and not trained
    """

    def __init__(
        self,
        selection: Selection,
        prepared: Prepared,
        *,
        repairs: Sequence[str] = (),
        calibration: Prepared | None = None,
        cut: Callable[[Removed], AttentionModel] | None = None,
    ) -> None:
        self.selection, self.prepared, self.calibration = selection, prepared, calibration
        self.cut = cut or selection.cut
        self.model, self.task = selection.model, selection.task
        self.repairs = repairs
        self.draws = resamples_for(self.task, len(prepared.items))
        self.intact = self._judged(lambda: self.model, "report []")
        self.metrics = metrics_of(self.task, self.intact)
        self.knows_nothing = chance_note(self.model, self.task, prepared, self.metrics)

    def _judged(self, model: Callable[[], AttentionModel], key: str) -> Judged:
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
        """A row for each set and repair. sizes: these, or so many evenly spread ones."""
        rows = []
        for draw, path in enumerate(paths):
            wanted = self._spread(path, best, sizes)
            log(f"reporting {len(wanted)} sizes on {len(self.prepared.items)} other examples")
            for state in wanted:
                for repair in ["", *self.repairs] if state.removed else [""]:
                    is_chosen = state.removed == best.removed and not repair
                    row = self._row(state, draw, repair, is_chosen)
                    rows.append(row)
                    what = f"{row['removed']} removed{', ' + repair if repair else ''}"
                    log(f"{what}: {self.task.metrics[0]} {row['metric']:.4f} there")
        for row, is_front in zip(rows, on_front(rows), strict=True):
            row["is_front"] = is_front
        return rows

    def _repaired(self, state: SubsetState, repair: str) -> AttentionModel:
        """The cut model, repaired; not the one that the search goes on with."""
        if not repair:
            return self.cut(state.removed)
        assert self.calibration is not None
        cut = prune(self.model, list(self.selection.heads(state.removed)))
        size = self.selection.batch_size
        for method in repair.split("+"):
            repair_inplace(self.model, cut, method, self.task, self.calibration, batch_size=size)
        return cut

    def _row(self, state: SubsetState, draw: int, repair: str, is_chosen: bool) -> FrontRow:
        """One set. The change is paired with the intact model, example by example."""
        cut = self.cut(state.removed)
        judged = self.judged(state, repair)
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
            "is_front": False,  # known when all rows are
        }

    def judged(self, state: SubsetState, repair: str = "") -> Judged:
        """The model without this set on the report split, evaluated once."""
        key = f"report {repair}{sorted(state.removed)}"
        if not state.removed:
            return self.intact
        return self._judged(lambda: self._repaired(state, repair), key)

    def speeds(self, state: SubsetState, cut: AttentionModel | None = None) -> Speeds:
        """The model without this set beside the whole one, measured once: the same numbers wherever they are shown."""
        speeds: Speeds = self.selection.memory.compute_once(
            f"speeds {sorted(state.removed)}",
            lambda: speeds_of(self.model, cut or self.cut(state.removed)),
        )
        return speeds

    def _spread(
        self, path: list[SubsetState], best: SubsetState, sizes: int | Sequence[int]
    ) -> list[SubsetState]:
        """The states of these sizes, or so many evenly spread ones; always the first, the last and the best."""
        last = len(path) - 1
        if isinstance(sizes, int):
            if len(path) <= sizes:
                return path
            shown = {round(i * last / max(sizes - 1, 1)) for i in range(sizes)}
        else:
            size = self.selection.size
            shown = {i for i, state in enumerate(path) if size(state.removed) in sizes}
        shown |= {0, last}
        return [s for i, s in enumerate(path) if i in shown or s.removed == best.removed]
