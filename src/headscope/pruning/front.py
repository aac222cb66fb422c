"""What is lost and what is gained, size by size: on examples that nothing was chosen on, and by the clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from headscope.importances.significance import delta_of_losses, delta_of_metric, metrics_of, resamples
from headscope.model.attention_model import AttentionModel
from headscope.pruning import speed
from headscope.pruning.selection import Selection, State
from headscope.tasks import Judged, Prepared, Task
from headscope.tasks.running import evaluate

Told = Callable[[str], None]


class Report:
    """What sets do on the split that nothing was chosen on, and how fast they are."""

    def __init__(
        self, model: AttentionModel, task: Task, prepared: Prepared, batch_size: int, selection: Selection
    ) -> None:
        self.model, self.task, self.prepared, self.batch_size = model, task, prepared, batch_size
        self.selection = selection
        self.draws = None if task.mean_column is not None else resamples(len(prepared.items), 0)
        self.intact = self._judged(model, "report []")

    def _judged(self, model: AttentionModel, key: str) -> Judged:
        known = self.selection.memory.get(key)
        if known is None:
            judged = evaluate(model, self.task, self.prepared, batch_size=self.batch_size)
            known = {"losses": judged.losses.tolist(), "scores": judged.scores.tolist()}
            self.selection.memory.add(key, known)
        return Judged(np.array(known["losses"]), np.array(known["scores"]))

    def front(self, paths: Sequence[list[State]], best: State, most: int, say: Told) -> list[dict[str, Any]]:
        found = []
        for draw, path in enumerate(paths):
            wanted = _spread(path, best, most)
            say(f"reporting {len(wanted)} sizes on {len(self.prepared.items)} other examples")
            found += [self._row(state, draw, state.removed == best.removed) for state in wanted]
        return found

    def _row(self, state: State, draw: int, is_chosen: bool) -> dict[str, Any]:
        """One set. The change is paired with the intact model, example by example."""
        cut = self.selection.cut(state.removed)
        judged = self._judged(cut, f"report {sorted(state.removed)}")
        metrics = metrics_of(self.task, judged)
        name = self.task.metrics[0]
        loss = delta_of_losses(self.intact.losses, judged.losses)
        metric = delta_of_metric(self.task, self.intact.scores, judged.scores, self.draws)
        timed = self._timed(cut, state)
        return {
            "removed": self.selection.size(state.removed),
            "left": len(cut.heads),
            "parameters": sum(p.numel() for p in cut.model.parameters()),
            "time": timed,
            "selection_loss": state.outcome.loss,
            "selection_metric": state.outcome.metric,
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
            "is_chosen": is_chosen,
            "draw": draw,
            "heads": str(self.selection.heads(state.removed)),
        }

    def _timed(self, cut: AttentionModel, state: State) -> float:
        """Its time over the intact model's, measured in turns with it."""
        key = f"time {sorted(state.removed)}"
        known = self.selection.memory.get(key)
        if known is None:
            length = speed.longest(self.model, 64)
            both = speed.measure([self.model, cut], batch_size=8, length=length, repeats=8) if state.removed else []
            known = both[1].ratio if both else 1.0
            self.selection.memory.add(key, known)
        return float(known)


def _spread(path: list[State], best: State, most: int) -> list[State]:
    """At most so many states of the path, evenly spread, the first, the last and the best among them."""
    if len(path) <= most:
        return path
    places = {round(i * (len(path) - 1) / (most - 1)) for i in range(most)} if most > 1 else {0}
    return [state for place, state in enumerate(path) if place in places or state.removed == best.removed]
