"""Base class of tasks: labelled examples, a loss for each of them, and a metric over all.

A task does not know about heads. It turns examples into sequences, extracts an *answer* for each sequence from the
model's output, and judges the answers. It computes one loss per example, so that models can be compared in pairs, and
scores, from which the metric is computed. The forward pass may be plain, edited or partly replayed from memory.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headscope.config.command_line import command_line
from headscope.data.records import RenamedColumn, find_split, lone_header
from headscope.errors import HeadscopeError
from headscope.model.attention_model import AttentionModel
from headscope.model.tokens import Batch
from headscope.tasks.items import Item, sample_evenly, select_half
from headscope.tasks.prepared import Prepared

Scores = NDArray[np.float64]  # [item, column]


@dataclass(frozen=True)
class Judged:
    """Losses [item] in nats of a set of answers, and the scores from which the metric is computed."""

    losses: NDArray[np.float64]
    scores: Scores


@dataclass(frozen=True)
class Chance:
    """Baseline of a model without information; None if a task does not define it.

    metric  the first metric of the best constant answer
    loss    that of predicting the label frequencies, or a uniform distribution over tokens
    """

    metric: float | None = None
    loss: float | None = None

    @staticmethod
    def of_labels(targets: Sequence[Any]) -> Chance:
        """Accuracy and loss of predicting the label frequencies."""
        shares = np.unique(np.asarray(targets), return_counts=True)[1] / len(targets)
        return Chance(float(shares.max()), float(-(shares * np.log(shares)).sum()))


class Task(ABC):
    """A task by name; one file per task.

    names        names by which it can be chosen: `--task mnli`
    metrics      names of the metrics that `measure` returns; the first one is reported
    model_class  the transformers class with the right head, as `load` takes it
    is_coupled   whether an example's loss depends on sequences of other examples (retrieval)
    reads_first  whether the task's head may read the first token only. A sweep tests it, to skip the other tokens
    pools        whether the token states of a text are pooled into a vector, so that pooling and prompt have an effect
    compares     whether the answer of a sequence has a meaning only together with another sequence of the example
    objective    the quantity that a search for heads optimises: the loss, or the metric if the loss may disagree
    generates    whether it judges generated texts: this takes many forward passes, which cannot be replayed
    is_free_of_labels  whether any text is an example, so that a corpus without splits can be used
    smoothing    label smoothing over all tokens in training; None if it does not apply
    mean_column  the column of `scores` whose mean is the first metric; None if the metric is not a mean
    needs_labels whether data without labels is refused; if not, targets may be None, for `with_predicted_labels`
    table_columns  the columns of its tables, each by the first of its names; empty if it reads other files
    head         part of the class name of models with the right head, and the end of the error for other models
                 ("has no classifier"); None: any class
    """

    names: ClassVar[tuple[str, ...]]
    metrics: tuple[str, ...]
    model_class: ClassVar[str]
    is_coupled: ClassVar[bool] = False
    reads_first: ClassVar[bool] = False
    generates: ClassVar[bool] = False
    is_free_of_labels: ClassVar[bool] = False
    pools: ClassVar[bool] = False
    compares: ClassVar[bool] = False
    objective: ClassVar[str] = "loss"
    smoothing: float | None = None
    mean_column: int | None = None
    needs_labels: bool = True
    table_columns: tuple[str, ...] = ()
    head: ClassVar[tuple[str, str] | None] = None

    def __init__(
        self,
        name: str,
        *,
        columns: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        """columns: names of columns in the data, by expected names; labels: expected labels, by labels in the data."""
        self.name, self.columns, self.renamed = name, dict(columns or {}), dict(labels or {})

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def column(self, names: Sequence[str]) -> tuple[str, ...]:
        """The names that a column may have: the name that the user stated, otherwise any of `names`."""
        renamed = (
            RenamedColumn.of(self.columns[name], name) for name in names if name in self.columns
        )
        return next(renamed, tuple(names))

    @abstractmethod
    def read(self, path: Path) -> Iterator[Item]:
        """The examples of one file."""

    def items(
        self, data: str | Path, split: str = "dev", *, limit: int | None = None
    ) -> list[Item]:
        """The examples of a split, at most `limit`, evenly spaced over the file."""
        path = find_split(data, split, task=self.name)
        items = list(self.read(path))
        if not items:
            self._check_rows(path)
        return sample_evenly(select_half(items, split), limit, path)

    def _check_rows(self, path: Path) -> None:
        """Refuse a table without rows, with a hint that the file may be plain text that was read as a table."""
        names = [self.columns.get(name, name) for name in self.table_columns]
        header = lone_header(path) if names else None
        if header is not None and not set(names) & set(header):
            listed = ", ".join(f"'{name[:60]}'" for name in header[:6])
            raise HeadscopeError(
                f"read as a table with the header {listed} and no rows",
                where=path,
                expected=f"columns {', '.join(names)}",
            )

    def labels(self, items: Sequence[Item]) -> tuple[str, ...]:
        """The classes of a classifier for these examples, in order; none for a task without classes."""
        return ()

    def check(self, model: AttentionModel) -> None:
        """Refuse a model without a head for this task, or whose head was never trained."""
        new = [name for name in model.untrained if "pooler" not in name]
        kind, train = type(model.model).__name__, "Train one"
        what = ""
        if new:
            what = f"this model's head was never trained ({new[0]} is not in its files)"
            train = "Train it first"
        elif self.head is not None and self.head[0] not in kind:
            what = f"{kind} {self.head[1]}"
        if what:
            finetune = command_line("finetune", "MODEL", task=self.name, data="DATA", out="DIR")
            raise HeadscopeError(what, where=model.name, fix=f"{train}: {finetune}")

    @abstractmethod
    def prepare(
        self, model: AttentionModel, items: list[Item], *, max_length: int | None = None
    ) -> Prepared:
        """The examples as sequences; examples that the model cannot read are left out and counted."""

    def training_examples(
        self, prepared: Prepared, items: list[int], epoch: int
    ) -> tuple[Prepared, list[int]]:
        """The examples to train on in an epoch, and the numbers of these items among them.

        By default the examples as prepared; a task with random masking makes new ones in every epoch.
        """
        return prepared, items

    def call(self, model: AttentionModel, batch: Batch) -> Any:
        """The model's output, from which answers are extracted."""
        return model(batch)

    def single_pass(self, model: AttentionModel, batch: Batch) -> Any:
        """One forward pass over the batch, for observers; `call` may make several."""
        return self.call(model, batch)

    @abstractmethod
    def extract_answers(self, output: Any, batch: Batch, prepared: Prepared) -> Tensor:
        """The answers [sequence, …] in the model's output, with their gradients."""

    def relevance_target(
        self,
        model: AttentionModel,
        batch: Batch,
        prepared: Prepared,
        *,
        seed: int = 0,
        answers: Tensor | None = None,
    ) -> Tensor:
        """[sequence]: the predicted logit or similarity that relevance is computed for, with its gradients.

        seed     determines the token that is explained, in a sequence with several targets
        answers  those of all sequences, for a task that `compares`
        """
        return self.predicted_logit(self.extract_answers(self.call(model, batch), batch, prepared))

    def predicted_logit(self, answers: Tensor) -> Tensor:
        """[sequence]: `relevance_target` from the answers, if it depends on one answer each."""
        raise HeadscopeError(
            f"the task must have a single predicted number per sequence, got {self.name}",
            where='`by="relevance"`',
        )

    @abstractmethod
    def losses(self, answers: Tensor, prepared: Prepared, items: Sequence[int]) -> Tensor:
        """[item]: the losses in nats, with gradients. answers: of the sequences of these items, item by item."""

    @abstractmethod
    def scores(self, answers: Tensor, prepared: Prepared, items: Sequence[int]) -> Scores:
        """The scores from which the metrics are computed."""

    def measure(self, scores: Scores) -> dict[str, float]:
        """Every metric of these examples, by default the mean of each column; NaN if it is undefined."""
        return dict(zip(self.metrics, scores.mean(axis=0).tolist(), strict=True))

    def change_of_one(self, scores: Scores) -> float:
        """Root mean square change of the first metric if the prediction for one example changes; 0 if undefined.

        Only needed if the metric is not a mean. Here it is approximated by the change if one example is left out.
        """
        of_all = self._metric(scores)
        changes = (self._metric(np.delete(scores, i, axis=0)) - of_all for i in range(len(scores)))
        return root_mean_square(changes)

    def _metric(self, scores: Scores) -> float:
        return self.measure(scores)[self.metrics[0]] if len(scores) else math.nan

    def chance(self, model: AttentionModel, prepared: Prepared) -> Chance:
        """The baseline of a model without information on these examples."""
        return Chance()

    def with_predicted_labels(self, answers: Tensor, prepared: Prepared) -> Prepared:
        """The examples with the model's own predictions as targets. answers: to all sequences."""
        what = f"requires a task with labels, got {self.name}"
        raise HeadscopeError(what, where="`self_labels`")

    def imitation(self, answers: Tensor, teacher: Tensor) -> Tensor:
        """[sequence]: the distance of answers from those of a teacher, with gradients."""
        what = f"requires a task with classes or vectors, got {self.name}"
        raise HeadscopeError(what, where="`distil`")

    def judge(self, answers: Tensor, prepared: Prepared, items: Sequence[int]) -> Judged:
        """Losses and scores of these items from the answers of their sequences, item by item.

        A loss that is not finite is an error: means, intervals and ranks would be undefined.
        """
        with torch.inference_mode():
            losses = self.losses(answers, prepared, items).double().cpu().numpy()
        wrong = np.flatnonzero(~np.isfinite(losses))
        if len(wrong):
            raise HeadscopeError(
                f"the loss of {len(wrong)} of {len(losses)} examples is not finite",
                where=prepared.items[items[wrong[0]]].where,
                fix="Load the model with dtype float32, or leave these examples out",
            )
        return Judged(losses, self.scores(answers, prepared, items))


def root_mean_square(changes: Iterable[float]) -> float:
    """Root mean square of the finite changes; 0 without any."""
    defined = [change for change in changes if math.isfinite(change)]
    return math.sqrt(sum(change**2 for change in defined) / len(defined)) if defined else 0.0
