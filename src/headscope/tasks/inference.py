"""Running a model on a task: answers of all sequences, losses and scores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from headscope.errors import HeadscopeError
from headscope.heads import Site
from headscope.model.attention_model import AttentionModel
from headscope.model.edits import Edit
from headscope.tasks.base import Judged, Task
from headscope.tasks.prepared import Prepared, batch_of, plan_batches, sequences_of

Progress = Callable[[int, int], None]


def answers(
    model: AttentionModel,
    task: Task,
    prepared: Prepared,
    *,
    batch_size: int = 32,
    progress: Progress = lambda done, total: None,
) -> Tensor:
    """The answers of all sequences, in their order."""
    model.check_evaluating()
    rows: list[Tensor | None] = [None] * len(prepared.sequences)
    done = 0
    for numbers in plan_batches(prepared, batch_size):
        batch = batch_of(model, prepared, numbers)
        with torch.inference_mode(), report_out_of_memory(batch_size):
            answer = task.extract_answers(task.call(model, batch), batch, prepared)
        for number, row in zip(numbers, answer, strict=True):
            rows[number] = row
        done += len(numbers)
        progress(done, len(prepared.sequences))
    return torch.stack([row for row in rows if row is not None])


def evaluate(
    model: AttentionModel,
    task: Task,
    prepared: Prepared,
    *,
    batch_size: int = 32,
    progress: Progress = lambda done, total: None,
) -> Judged:
    """The model's losses and scores on a task."""
    by_sequence = answers(model, task, prepared, batch_size=batch_size, progress=progress)
    items = range(len(prepared.items))
    return task.judge(by_sequence[sequences_of(prepared, items)], prepared, items)


def sites_in_use(model: AttentionModel, task: Task, prepared: Prepared) -> tuple[Site, ...]:
    """The sites that the task's forward pass calls. XLNet's second stream is missing: only pre-training calls it."""
    recorder = _SiteRecorder()
    with torch.inference_mode(), model.edited(recorder):
        task.single_pass(model, batch_of(model, prepared, [0]))
    return tuple(site for site in model.sites if site in recorder.sites)


class _SiteRecorder(Edit):
    """Changes nothing and records which sites are called."""

    def __init__(self) -> None:
        self.sites: set[Site] = set()

    def changes_output(self, site: Site) -> bool:
        self.sites.add(site)
        return False


@contextmanager
def report_out_of_memory(batch_size: int) -> Iterator[None]:
    """Turn out-of-memory errors into an error that names the batch size."""
    try:
        yield
    except (MemoryError, RuntimeError) as cause:
        if not isinstance(cause, MemoryError) and "memory" not in str(cause).lower():
            raise
        smaller = f"`batch_size={batch_size // 2}`, or " if batch_size > 1 else ""
        raise HeadscopeError(
            f"out of memory with {batch_size} {'sequence' if batch_size == 1 else 'sequences'} at a time",
            where="`batch_size`",
            fix=f"Try {smaller}a smaller `max_length`",
        ) from cause


def describe_unpruned(task: Task, metric: float, examples: int) -> str:
    """A log line with the metric of the unpruned model."""
    return f"unpruned model: {task.metrics[0]} {metric:.3f} on {examples} examples"
