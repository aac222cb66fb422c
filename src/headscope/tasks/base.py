"""Base class of tasks: labelled examples, a loss for each of them, and a metric over all.

A task does not depend on heads. It turns examples into sequences, extracts an *answer* for each sequence from the
model's output, and judges answers: one loss per example, so that every comparison is paired, and scores from which the
metric is computed. Answers may come from a plain, an edited or a partly replayed forward pass.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headscope.config.checks import check_count
from headscope.config.command_line import command_line
from headscope.data.batches import collate
from headscope.data.encode import Counts, Encoder
from headscope.data.encode import Sequence as Encoded
from headscope.data.examples import Example
from headscope.data.records import RenamedColumn, find_split, lone_header
from headscope.errors import HeadscopeError
from headscope.model.attention_model import AttentionModel
from headscope.model.tokens import Batch

OVERHEAD = 128  # cost of a batch in addition to its tokens, in tokens
IGNORED = -100  # label of a token that is not judged
Scores = NDArray[np.float64]  # [item, column]


@dataclass(frozen=True)
class Item:
    """One example of a task: its texts and its target (a label, a score, an answer …)."""

    texts: tuple[str, ...]
    target: Any
    where: str = ""


@dataclass
class Prepared:
    """A task's examples as sequences for one model.

    sequences  the sequences that the model reads, `index` being their number
    parts      for each item the numbers of its sequences
    targets    one per item, as the task's `losses` takes them
    labels     for tasks that judge tokens: the target of each token of each sequence, or IGNORED
    extras     other data of the task
    """

    items: list[Item]
    sequences: list[Encoded]
    parts: list[tuple[int, ...]]
    targets: Any
    counts: Counts
    labels: list[list[int]] | None = None
    extras: Any = None

    @property
    def is_one_to_one(self) -> bool:
        """Whether every item is one sequence, so that the losses of a batch depend on its own answers only."""
        return all(part == (i,) for i, part in enumerate(self.parts))


@dataclass(frozen=True)
class Judged:
    """Judgement of answers: losses [item] in nats, and scores, from which the metric is computed."""

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
    reads_first  whether the head may read the first token only; a sweep tries that
    pools        whether the token states of a text are pooled into a vector, so that pooling and prompt have an effect
    compares     whether a sequence's answer is only meaningful together with another one of its example
    objective    the quantity that a search for heads optimises: the loss, or the metric if the loss differs from it
    generates    whether it judges generated texts, which needs many forward passes that cannot be replayed
    is_free_of_labels  whether any text is an example, so that a corpus without splits can be used
    smoothing    label smoothing over all tokens in training; None if it does not apply
    mean_column  the column of `scores` whose mean is the first metric; None if the metric is not a mean
    needs_labels whether data without labels is refused; else its targets are None, for `with_predicted_labels`
    table_columns  the columns of its tables, by their first names; empty if it reads other files
    head         part of the class name of models with the right head, and the complaint about others; None: any class
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
        """columns: the data's own names of columns, by ours; labels: our names of labels, by the data's."""
        self.name, self.columns, self.renamed = name, dict(columns or {}), dict(labels or {})

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def column(self, names: Sequence[str]) -> tuple[str, ...]:
        """The possible names of a column: the user's, else any of these."""
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
        """Refuse a table without rows: it may be plain text read as a table."""
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
        """Training examples of these items in an epoch, and their numbers there; as prepared, unless random."""
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
        """The loss of each of these items in nats, with gradients; `answers` are those of `sequences_of` them."""

    @abstractmethod
    def scores(self, answers: Tensor, prepared: Prepared, items: Sequence[int]) -> Scores:
        """The scores from which the metrics are computed."""

    def measure(self, scores: Scores) -> dict[str, float]:
        """Every metric of these examples, by default the mean of each column; NaN if it is undefined."""
        return dict(zip(self.metrics, scores.mean(axis=0).tolist(), strict=True))

    def change_of_one(self, scores: Scores) -> float:
        """Root mean square change of the first metric if the prediction for one example changes; 0 if undefined.

        Only needed if the metric is not a mean. In general, the change if one example is left out.
        """
        whole = self._metric(scores)
        changes = (self._metric(np.delete(scores, i, axis=0)) - whole for i in range(len(scores)))
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

        Losses that are not finite are an error: no mean, interval or rank would follow from them.
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


def select_half(items: list[Item], split: str) -> list[Item]:
    """All examples, or about one half for a split such as `dev:half-a` or `dev:half-b`.

    The half is determined by a hash of an example's longest text: files are often sorted, and examples that share the
    text (questions about one paragraph) must not be in both halves.
    """
    half = split.partition(":")[2]
    if not half:
        return items
    longest = (max(item.texts, key=len, default="") for item in items)
    parities = [hashlib.sha256(text.encode()).digest()[0] % 2 for text in longest]
    return [
        item for item, parity in zip(items, parities, strict=True) if parity == (half == "half-b")
    ]


def check_apart(selected: Sequence[Item], reported: Sequence[Item], where: str) -> None:
    """Refuse to report on examples that were used for selection or training."""
    shared = {item.where for item in selected if item.where} & {item.where for item in reported}
    if shared:
        raise HeadscopeError(
            f"{len(shared)} examples are chosen on and reported on, {min(shared)} among them",
            where=where,
            expected="two splits that have no example in common: dev:half-a and dev:half-b, say",
        )


def sample_evenly(items: list[Item], limit: int | None, where: str | Path) -> list[Item]:
    """At most `limit` of the examples, evenly spaced; all without a limit. No examples are an error."""
    if not items:
        raise HeadscopeError("no example in it", where=where, expected="one or more")
    if limit is None or limit >= len(items):
        return items
    check_count(limit, "`limit`")
    return [items[i * len(items) // limit] for i in range(limit)]


def two_files(data: str | Path) -> tuple[str, str] | None:
    """Source and target if `data` is two files joined by a comma; None if it is one path."""
    if "," not in str(data) or Path(data).exists():
        return None
    source, target = (part.strip() for part in str(data).split(",", 1))
    return source, target


def sequences_of(prepared: Prepared, items: Sequence[int]) -> list[int]:
    """The numbers of these items' sequences, item by item."""
    return [number for item in items for number in prepared.parts[item]]


def part_rows(prepared: Prepared, items: Sequence[int]) -> Tensor:
    """[item, part]: rows of the items' parts in the answers of their sequences; all items have equally many parts."""
    width = len(prepared.parts[items[0]])
    return torch.arange(len(items) * width).view(len(items), width)


def plan_batches(
    prepared: Prepared, batch_size: int, among: Iterable[int] | None = None
) -> list[list[int]]:
    """Numbers of sequences in batches, the longest first. among: these sequences instead of all.

    Splits the sorted sequences into batches at minimum cost, by dynamic programming. The cost of a batch is its
    padded number of tokens plus OVERHEAD.
    """
    check_count(batch_size, "`batch_size`")
    numbers = range(len(prepared.sequences)) if among is None else among
    order = sorted(numbers, key=lambda i: (*_lengths(prepared.sequences[i]), -i), reverse=True)
    widths = [sum(_lengths(prepared.sequences[i])) for i in order]
    least, first = [0.0], [0]  # by end: cost of all batches so far, start of the last one
    for end in range(1, len(order) + 1):
        lowest, best, width = math.inf, end - 1, 0
        for start in range(end - 1, max(0, end - batch_size) - 1, -1):
            width = max(width, widths[start])
            cost = least[start] + (end - start) * width + OVERHEAD
            if cost < lowest:
                lowest, best = cost, start
        least.append(lowest)
        first.append(best)
    batches, end = [], len(order)
    while end:
        batches.append(order[first[end] : end])
        end = first[end]
    return batches[::-1]


def _lengths(sequence: Encoded) -> tuple[int, int]:
    return len(sequence.source.ids), 0 if sequence.target is None else len(sequence.target.ids)


def batch_of(model: AttentionModel, prepared: Prepared, numbers: Sequence[int]) -> Batch:
    """One padded batch; its `indices` are the sequences' numbers."""
    batch = collate(model, [prepared.sequences[i] for i in numbers])
    if prepared.labels is None:
        return batch
    side = batch.inputs.get("decoder_input_ids", batch.inputs["input_ids"])
    return replace(batch, labels=labels_of(prepared, batch, side.shape[1]))


def labels_of(prepared: Prepared, batch: Batch, length: int) -> Tensor:
    """[sequence, token]: the labels of a batch, IGNORED for tokens that are not judged."""
    assert prepared.labels is not None
    padded = [(prepared.labels[i] + [IGNORED] * length)[:length] for i in batch.indices]
    return torch.tensor(padded)


def encode_examples(
    model: AttentionModel, examples: Sequence[Example], max_length: int | None
) -> tuple[list[Encoded | None], Counts]:
    """Each example's sequence, None if it has none, and counts of what was left out."""
    encoder = Encoder(model, max_length=max_length)
    sequences: list[Encoded | None] = [None] * len(examples)
    for sequence in encoder.encode(list(examples), 0):
        sequences[sequence.index] = sequence
    encoder.unknown.warn()
    return sequences, encoder.counts


def encode_items(
    model: AttentionModel,
    items: list[Item],
    max_length: int | None,
    fewest_tokens: tuple[int, str] = (0, ""),
) -> Prepared:
    """Items of one sequence each, without targets. Sequences below `fewest_tokens` are skipped, with the reason."""
    examples = [Example(*item.texts, where=item.where) for item in items]  # type: ignore[misc]
    sequences, counts = encode_examples(model, examples, max_length)
    for number, sequence in enumerate(sequences):
        if sequence is not None and len(sequence.source.ids) < fewest_tokens[0]:
            sequences[number] = None
            counts.skip(fewest_tokens[1])
    return drop_incomplete(items, sequences, 1, counts)


def drop_incomplete(
    items: list[Item], sequences: Sequence[Encoded | None], size: int, counts: Counts
) -> Prepared:
    """Items all of whose `size` consecutive sequences exist, without targets; the sequences are numbered anew."""
    complete: list[Item] = []
    whole: list[Encoded] = []
    for item, start in zip(items, range(0, len(sequences), size), strict=True):
        group = [part for part in sequences[start : start + size] if part is not None]
        if len(group) == size:
            complete.append(item)
            whole += group
    if not complete:
        why = ", ".join(f"{count} {reason}" for reason, count in counts.skipped.items())
        raise HeadscopeError(
            f"no example could be read by the model ({why})", expected="texts that become tokens"
        )
    numbered = [Encoded(i, part.source, part.target) for i, part in enumerate(whole)]
    parts = [tuple(range(i * size, (i + 1) * size)) for i in range(len(complete))]
    return Prepared(complete, numbered, parts, None, counts)
