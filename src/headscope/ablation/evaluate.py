"""Performance of a model at a task: every metric and the mean loss, with intervals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from headscope.ablation.significance import metrics_of
from headscope.config.evaluate import EvaluateConfig
from headscope.config.shared import Reading, Run, TaskData
from headscope.masks.open_model import open_model
from headscope.model.attention_model import AttentionModel
from headscope.model.load import ModelSource
from headscope.study.result import Result
from headscope.tasks import Task, task_of
from headscope.tasks.inference import evaluate as run_task
from headscope.tasks.items import sample_evenly
from headscope.tasks.pooling import PooledTask

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Evaluation(Result, Mapping[str, Any]):
    """Metrics and loss of a model on a split: `result["metrics"]["accuracy"]["value"]`.

    record  model, task and split; `metrics` with value, low and high by name; numbers of evaluated (`count`) and
            `available` examples; `pooling` (how texts become vectors; None unless the task compares vectors); numbers
            of truncated and skipped examples and of unknown tokens. The mapping has the same entries
    """

    record: Mapping[str, object]

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """`metrics`: a row for each metric and the loss (in nats)."""
        import pandas as pd

        rows = [{"metric": name, **values} for name, values in self["metrics"].items()]
        return {"metrics": pd.DataFrame(rows)}

    def __repr__(self) -> str:
        return f"Evaluation({self['model']!r}, {self['task']!r}, {self['count']} examples)"

    def __getitem__(self, name: str) -> Any:
        return self.record[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.record)

    def __len__(self) -> int:
        return len(self.record)


def evaluate(
    model: ModelSource, config: EvaluateConfig, data: TaskData, reading: Reading, run: Run
) -> Evaluation:
    """Every metric of a model on a split, and its mean loss in nats, each with value, low and high."""
    task = task_of(data)
    available = task.items(data.data, data.split)
    items = sample_evenly(available, data.limit, data.data)
    loaded = open_for(task, model, reading, run)
    prepared = task.prepare(loaded, items, max_length=data.max_length)
    judged = run_task(loaded, task, prepared, batch_size=config.batch_size, progress=run.progress)
    counts = prepared.counts
    record = {
        "model": loaded.name,
        "task": task.name,
        "split": data.split,
        "metrics": metrics_of(task, judged),
        "count": len(prepared.items),
        "available": len(available),
        "pooling": loaded.reading.record() if isinstance(task, PooledTask) else None,
        "truncated": counts.truncated,
        "skipped": counts.skipped,
        "unknown": asdict(counts.unknown),
    }
    return Evaluation(record)


def open_for(task: Task, model: ModelSource, reading: Reading, run: Run) -> AttentionModel:
    """Load the model with the class that the task needs, and check that it can do the task."""
    loaded = open_model(model, reading, run, model_class=task.model_class)
    task.check(loaded)
    return loaded
