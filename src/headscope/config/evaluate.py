"""Options of `evaluate`."""

from __future__ import annotations

from dataclasses import dataclass

from headscope.config.option import ADVANCED, Config, option
from headscope.config.shared import Reading, Run, TaskData


@dataclass(frozen=True)
class EvaluateConfig(Config):
    """Metrics and loss of a model on a task."""

    command = "evaluate"
    group = "Measure"
    examples = (
        "headscope evaluate minilm --task stsb --data stsb_dev.tsv",
        "headscope evaluate ./minilm-mnli --task mnli --data glue --split dev",
        "headscope evaluate opus-mt-en-fr --task translation --data val.en,val.fr --limit 200",
    )
    python = "headscope.evaluate"
    splits = ("split",)
    uses = {
        TaskData: ("task", "data", "split", "columns", "labels", "limit", "max_length"),
        Reading: ("mask", "open_special", "pooling", "prompt"),
        Run: ("revision", "device", "dtype"),
    }

    batch_size: int = option(
        32, "Sequences per batch; does not change the result", at_least=1, panel=ADVANCED
    )


def on_report_split(data: TaskData) -> TaskData:
    """The data on which `evaluate` repeats the result of a report split."""
    return TaskData(
        data.task,
        data.data,
        split=data.report_on or "dev",
        limit=data.report_limit,
        max_length=data.max_length,
        columns=data.columns,
        labels=data.labels,
    )
