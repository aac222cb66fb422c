"""What is lost and what is gained, size by size: on examples that nothing was chosen on, and by the clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from headscope.ablation.chance import chance_note
from headscope.ablation.significance import delta_of_losses, delta_of_metric, metrics_of, resamples
from headscope.model import latency as speed
from headscope.model.attention_model import AttentionModel
from headscope.model.surgery import prune
from headscope.pruning.repair import repaired
from headscope.pruning.subset_evaluator import Removed, Selection, SubsetState
from headscope.tasks import Judged, Prepared, Task
from headscope.tasks.running import evaluate

if TYPE_CHECKING:
    from numpy.typing import NDArray

Told = Callable[[str], None]


def changes(
    task: Task, before: Judged, after: Judged, draws: NDArray[np.int64] | None
) -> dict[str, Any]:
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


Speeds = list[
    dict[str, Any]
]  # the whole model's and the cut one's, measured in turns: fields of `speed.Speed`


def speeds_of(model: AttentionModel, cut: AttentionModel) -> Speeds:
    """Measure a cut model beside the whole one."""
    length = speed.longest(model, speed.TIMED[1])
    return [
        asdict(one) for one in speed.measure([model, cut], batch_size=speed.TIMED[0], length=length)
    ]


def time_columns(speeds: Speeds) -> dict[str, float]:
    """The columns of front.csv: the cut model's time over the whole one's, and its interval."""
    return {
        "time": speeds[1]["ratio"],
        "time_low": speeds[1]["low"],
        "time_high": speeds[1]["high"],
    }


UNTIMED = {"time": 1.0, "time_low": 1.0, "time_high": 1.0}  # the whole model beside itself


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

    repairs      each set is reported as it is, and mended in each of these ways
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
        self.draws = (
            None if self.task.mean_column is not None else resamples(len(prepared.items), 0)
        )
        self.intact = self._judged(lambda: self.model, "report []")
        self.metrics = metrics_of(self.task, self.intact)
        self.knows_nothing = chance_note(self.model, self.task, prepared, self.metrics)

    def _judged(self, model: Callable[[], AttentionModel], key: str) -> Judged:
        known = self.selection.memory.get(key)
        if known is None:
            judged = evaluate(
                model(), self.task, self.prepared, batch_size=self.selection.batch_size
            )
            known = {"losses": judged.losses.tolist(), "scores": judged.scores.tolist()}
            self.selection.memory.add(key, known)
        return Judged(np.array(known["losses"]), np.array(known["scores"]))

    def front(
        self,
        paths: Sequence[list[SubsetState]],
        best: SubsetState,
        sizes: int | Sequence[int],
        say: Told,
    ) -> list[dict[str, Any]]:
        """A row for each set and repair. sizes: these, or so many evenly spread ones."""
        found = []
        for draw, path in enumerate(paths):
            wanted = self._spread(path, best, sizes)
            say(f"reporting {len(wanted)} sizes on {len(self.prepared.items)} other examples")
            for state in wanted:
                for repair in ["", *self.repairs] if state.removed else [""]:
                    is_chosen = state.removed == best.removed and not repair
                    found.append(self._row(state, draw, repair, is_chosen))
                    told = f"{found[-1]['removed']} removed{', ' + repair if repair else ''}"
                    say(f"{told}: {self.task.metrics[0]} {found[-1]['metric']:.4f} there")
        return [
            row | {"is_front": is_front}
            for row, is_front in zip(found, on_front(found), strict=True)
        ]

    def _mended(self, state: SubsetState, repair: str) -> AttentionModel:
        """The cut model, mended; not the one that the search goes on with."""
        if not repair:
            return self.cut(state.removed)
        assert self.calibration is not None
        cut = prune(self.model, list(self.selection.heads(state.removed)))
        for way in repair.split("+"):
            repaired(
                self.model,
                cut,
                way,
                self.task,
                self.calibration,
                batch_size=self.selection.batch_size,
            )
        return cut

    def _row(self, state: SubsetState, draw: int, repair: str, is_chosen: bool) -> dict[str, Any]:
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
        }

    def judged(self, state: SubsetState, repair: str = "") -> Judged:
        """The model without this set on the report split, evaluated once."""
        key = f"report {repair}{sorted(state.removed)}"
        return (
            self._judged(lambda: self._mended(state, repair), key) if state.removed else self.intact
        )

    def speeds(self, state: SubsetState, cut: AttentionModel | None = None) -> Speeds:
        """The model without this set beside the whole one, measured once: the same numbers wherever they are shown."""
        key = f"speeds {sorted(state.removed)}"
        known: Speeds | None = self.selection.memory.get(key)
        if known is None:
            known = speeds_of(self.model, cut or self.cut(state.removed))
            self.selection.memory.add(key, known)
        return known

    def _spread(
        self, path: list[SubsetState], best: SubsetState, sizes: int | Sequence[int]
    ) -> list[SubsetState]:
        """The states of these sizes, or so many evenly spread ones; always the first, the last and the best."""
        ends = {0, len(path) - 1}
        if not isinstance(sizes, int):
            places = {
                i for i, state in enumerate(path) if self.selection.size(state.removed) in sizes
            }
        elif len(path) <= sizes:
            return path
        else:
            places = {round(i * (len(path) - 1) / max(sizes - 1, 1)) for i in range(sizes)}
        return [
            state
            for i, state in enumerate(path)
            if i in places | ends or state.removed == best.removed
        ]
