"""What a model is for: examples with what is right, a loss for each of them, and a metric over all.

A task knows nothing of heads. It turns examples into sequences, says what it reads from the model's output for each
sequence (an *answer*), and judges answers: one loss an example, so that every comparison is paired, and scores of
which the metric is made. Whoever runs the model, plainly, edited or by shortcuts, hands the answers back.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from headscope.config.checks import check_count
from headscope.config.command_line import command_line
from headscope.data.batches import collate
from headscope.data.encode import Counts, Encoder
from headscope.data.encode import Sequence as Encoded
from headscope.data.examples import Example
from headscope.data.records import find_split, lone_header
from headscope.errors import HeadscopeError
from headscope.model.attention_model import AttentionModel
from headscope.model.tokens import Batch

if TYPE_CHECKING:
    from numpy.typing import NDArray

OVERHEAD = 128  # what a batch costs beside its tokens, in tokens


@dataclass(frozen=True)
class Item:
    """One example of a task: its texts, and what is right (a label, a score, an answer …)."""

    texts: tuple[str, ...]
    target: Any
    where: str = ""


@dataclass
class Prepared:
    """A task's examples as sequences for one model.

    sequences  what the model reads, `index` being their own number
    parts      for each item the numbers of its sequences
    targets    what is right, one an item, as the task's `losses` wants it
    labels     for tasks that judge single tokens: what is right at each token of each sequence, -100 for no matter
    extras     what else the task wants to find again
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
        """Whether every item is one sequence, so that a batch's losses follow from its own answers."""
        return all(part == (i,) for i, part in enumerate(self.parts))


@dataclass(frozen=True)
class Judged:
    """What a task says of the answers: losses [item] in nats, scores [item, column], of which the metric is made."""

    losses: NDArray[np.float64]
    scores: NDArray[np.float64]


@dataclass(frozen=True)
class Chance:
    """What is reached without knowing anything; None where a task does not know it.

    metric  the first metric of the best constant answer
    loss    that of a guess: the label frequencies, or all tokens alike
    """

    metric: float | None = None
    loss: float | None = None

    @staticmethod
    def of_labels(targets: Sequence[Any]) -> Chance:
        """Accuracy and loss of whoever knows how frequent the labels are, and nothing else."""
        shares = np.unique(np.asarray(targets), return_counts=True)[1] / len(targets)
        return Chance(float(shares.max()), float(-(shares * np.log(shares)).sum()))


class Task(ABC):
    """A task by name; one file a task.

    names        what it can be called by: `--task mnli`
    metrics      names of what `measure` gives, the first being the one
    model_class  the transformers class with the right head, as `load` takes it
    is_coupled   whether an example's loss depends on other examples' sequences (retrieval)
    reads_first  whether the head may be one that reads the first token alone; a sweep tries it
    pools        whether a text's token states are pooled into a vector, so that pooling and prompt have an effect
    compares     whether a sequence's answer means something only beside another's of its example
    objective    what a search for heads goes by: the loss, or the metric where the loss asks for something else
    generates    whether it judges what the model says token by token: many passes, of which none can be left out
    is_free_of_labels  whether any text will do, so that a corpus without splits can be learned from
    smoothing    share of a training target that is spread over all tokens; None where it cannot be
    needs_labels whether data without labels is refused; else its targets are None, for `with_predicted_labels`
    table_columns  the columns of its tables, by their first names; empty where it reads other files
    head         part of the class name of models that can do it, and what others do not do; None: any class
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

    # Data

    def column(self, names: Sequence[str]) -> tuple[str, ...]:
        """What a column may be called: as the user says, else any of these."""
        return next(((self.columns[name],) for name in names if name in self.columns), tuple(names))

    @abstractmethod
    def read(self, path: Path) -> Iterator[Item]:
        """The examples of one file."""

    def items(
        self, data: str | Path, split: str = "dev", *, limit: int | None = None
    ) -> list[Item]:
        """The examples of a split, `limit` of them evenly spread over the file."""
        path = find_split(data, split, task=self.name)
        items = list(self.read(path))
        if not items:
            self._check_rows(path)
        return sample_evenly(select_half(items, split), limit, path)

    def _check_rows(self, path: Path) -> None:
        """Refuse a table without rows, which may be a plain text taken for a table."""
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

    # Model

    def check(self, model: AttentionModel) -> None:
        """Refuse a model that cannot do this task, or whose head for it was never trained."""
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
        """The examples as sequences; examples that cannot be read by the model are left out and counted."""

    def training_examples(
        self, prepared: Prepared, items: list[int], epoch: int
    ) -> tuple[Prepared, list[int]]:
        """What is learned from at these items in this epoch, and their numbers there; as prepared, unless by chance."""
        return prepared, items

    def call(self, model: AttentionModel, batch: Batch) -> Any:
        return model(batch)

    def single_pass(self, model: AttentionModel, batch: Batch) -> Any:
        """One pass over the batch as it is, for those that watch: other than `call` where that makes several."""
        return self.call(model, batch)

    @abstractmethod
    def extract_answers(self, output: Any, batch: Batch, prepared: Prepared) -> Tensor:
        """The answers [sequence, …] in the model's output, on its graph."""

    def relevance_target(
        self,
        model: AttentionModel,
        batch: Batch,
        prepared: Prepared,
        *,
        seed: int = 0,
        answers: Tensor | None = None,
    ) -> Tensor:
        """[sequence]: how strongly the model says what it says, right or wrong; on the graph. Relevance shares it out.

        seed     of the place that is asked in a sequence with several
        answers  those of all sequences, where the task `compares`
        """
        return self.predicted_logit(self.extract_answers(self.call(model, batch), batch, prepared))

    def predicted_logit(self, answers: Tensor) -> Tensor:
        """[sequence]: `said` from the answers of the sequences, where it follows from each of them alone."""
        raise HeadscopeError(
            f"what a model says to {self.name} is no single number",
            where='`by="relevance"`',
            expected="another task",
        )

    # Judgement

    @abstractmethod
    def losses(self, answers: Tensor, prepared: Prepared, items: Sequence[int]) -> Tensor:
        """The loss of each of these items, in nats, on the graph; `answers` are those of `sequences_of` them."""

    @abstractmethod
    def scores(
        self, answers: Tensor, prepared: Prepared, items: Sequence[int]
    ) -> NDArray[np.float64]:
        """[item, column]: what the metric is made of."""

    @abstractmethod
    def measure(self, scores: NDArray[np.float64]) -> dict[str, float]:
        """Every metric of these examples; NaN where it is undefined on them."""

    @property
    def mean_column(self) -> int | None:
        """The column of `scores` whose mean is the first metric; None where it is no mean."""
        return None

    def change_of_one(self, scores: NDArray[np.float64]) -> float:
        """Root mean square change of the first metric if the prediction for one example changes; 0 where undefined.

        Only needed if the metric is not a mean. In general, the change if one example is left out.
        """
        rest = np.arange(len(scores))
        return root_mean_square(
            self._metric(scores[rest != i]) - self._metric(scores) for i in rest
        )

    def _metric(self, scores: NDArray[np.float64]) -> float:
        return self.measure(scores)[self.metrics[0]] if len(scores) else math.nan

    def chance(self, model: AttentionModel, prepared: Prepared) -> Chance:
        """What a model that knows nothing would reach on these examples."""
        return Chance()

    def with_predicted_labels(self, answers: Tensor, prepared: Prepared) -> Prepared:
        """The examples with what the model says, by its answers to all sequences, in the place of what is right."""
        raise HeadscopeError(
            f"{self.name} has no labels but its texts",
            where="`labels_free`",
            expected="a task with labels",
        )

    def imitation(self, answers: Tensor, wanted: Tensor) -> Tensor:
        """[sequence]: how far answers are from those of a teacher, on the graph."""
        raise HeadscopeError(
            f"the answers to {self.name} cannot be imitated",
            where="`teacher`",
            expected="a task with classes or vectors",
        )

    def judge(self, answers: Tensor, prepared: Prepared, items: Sequence[int]) -> Judged:
        """Losses and scores of these items from the answers of their sequences, item by item."""
        with torch.inference_mode():
            losses = self.losses(answers, prepared, items).double().cpu().numpy()
        return Judged(losses, self.scores(answers, prepared, items))


def root_mean_square(changes: Iterable[float]) -> float:
    """Of the changes that are defined; 0 if none is."""
    defined = [change for change in changes if math.isfinite(change)]
    return math.sqrt(sum(change**2 for change in defined) / len(defined)) if defined else 0.0


def select_half(items: list[Item], split: str) -> list[Item]:
    """All examples, or of a split such as `dev:even` or `dev:odd` about one half.

    Which half follows from a hash of an example's longest text: files are often in some order, and examples that share
    it (the paragraph of several questions) stay together, so that nothing of the one half is known from the other.
    """
    half = split.partition(":")[2]
    if not half:
        return items
    longest = (max(item.texts, key=len, default="") for item in items)
    parities = [hashlib.sha256(text.encode()).digest()[0] % 2 for text in longest]
    return [item for item, parity in zip(items, parities, strict=True) if parity == (half == "odd")]


def check_apart(chosen: Sequence[Item], reported: Sequence[Item], where: str) -> None:
    """Refuse to report on examples that something was chosen on or learned from."""
    shared = {item.where for item in chosen if item.where} & {item.where for item in reported}
    if shared:
        raise HeadscopeError(
            f"{len(shared)} examples are chosen on and reported on, {min(shared)} among them",
            where=where,
            expected="two splits that have no example in common: dev:even and dev:odd, say",
        )


def sample_evenly(items: list[Item], limit: int | None, where: str | Path) -> list[Item]:
    """`limit` of the examples, evenly spread; all where there is no limit. None at all is refused."""
    if not items:
        raise HeadscopeError("no example in it", where=where, expected="one or more")
    if limit is None or limit >= len(items):
        return items
    check_count(limit, "`limit`")
    return [items[i * len(items) // limit] for i in range(limit)]


def two_files(data: str | Path) -> tuple[str, str] | None:
    """Source and target where `data` names two files with a comma between; None where it is one path."""
    if "," not in str(data) or Path(data).exists():
        return None
    source, target = (part.strip() for part in str(data).split(",", 1))
    return source, target


def sequences_of(prepared: Prepared, items: Sequence[int]) -> list[int]:
    """The numbers of these items' sequences, item by item."""
    return [number for item in items for number in prepared.parts[item]]


def part_rows(prepared: Prepared, items: Sequence[int]) -> Tensor:
    """For items of equally many parts: where in the answers of their own sequences each part stands [item, part]."""
    width = len(prepared.parts[items[0]])
    return torch.arange(len(items) * width).view(len(items), width)


def plan_batches(
    prepared: Prepared, batch_size: int, among: Iterable[int] | None = None
) -> list[list[int]]:
    """Sequences' numbers in batches, the longest first; all sequences, or those among the given ones.

    Of all ways to cut the sorted sequences into batches the one that computes least: every token of a batch's
    longest sequence for each of its sequences, and OVERHEAD tokens' worth for the batch itself.
    """
    check_count(batch_size, "`batch_size`")
    numbers = range(len(prepared.sequences)) if among is None else among
    order = sorted(numbers, key=lambda i: (*_lengths(prepared.sequences[i]), -i), reverse=True)
    widths = [sum(_lengths(prepared.sequences[i])) for i in order]
    least, cut = [0.0], [0]
    for end in range(1, len(order) + 1):
        lowest, at, widest = math.inf, end - 1, 0
        for start in range(end - 1, max(0, end - batch_size) - 1, -1):
            widest = max(widest, widths[start])
            cost = least[start] + (end - start) * widest + OVERHEAD
            if cost < lowest:
                lowest, at = cost, start
        least.append(lowest)
        cut.append(at)
    found, end = [], len(order)
    while end:
        found.append(order[cut[end] : end])
        end = cut[end]
    return found[::-1]


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
    """[sequence, token]: what is right at each token of a batch, -100 where nothing is asked."""
    assert prepared.labels is not None
    padded = [(prepared.labels[i] + [-100] * length)[:length] for i in batch.indices]
    return torch.tensor(padded)


def encode_examples(
    model: AttentionModel, examples: Sequence[Example], max_length: int | None
) -> tuple[list[Encoded | None], Counts]:
    """Each example's sequence, None where it has none, and what became of them."""
    encoder = Encoder(model, max_length=max_length)
    found: list[Encoded | None] = [None] * len(examples)
    for sequence in encoder.encode(list(examples), 0):
        found[sequence.index] = sequence
    encoder.unknown.warn()
    return found, encoder.counts


def encode_items(
    model: AttentionModel,
    items: list[Item],
    max_length: int | None,
    fewest_tokens: tuple[int, str] = (0, ""),
) -> Prepared:
    """Items of one sequence each, without targets. Sequences below `fewest_tokens` are skipped, with the reason."""
    examples = [Example(*item.texts, where=item.where) for item in items]  # type: ignore[misc]
    found, counts = encode_examples(model, examples, max_length)
    for number, sequence in enumerate(found):
        if sequence is not None and len(sequence.source.ids) < fewest_tokens[0]:
            found[number] = None
            counts.skip(fewest_tokens[1])
    kept, sequences, parts = drop_incomplete(items, [[one] for one in found], counts)
    return Prepared(kept, sequences, parts, None, counts)


def drop_incomplete(
    items: list[Item], groups: list[list[Encoded | None]], counts: Counts
) -> tuple[list[Item], list[Encoded], list[tuple[int, ...]]]:
    """Items all of whose parts have a sequence, the sequences numbered anew, and each item's numbers."""
    kept: list[Item] = []
    sequences: list[Encoded] = []
    parts: list[tuple[int, ...]] = []
    for item, group in zip(items, groups, strict=True):
        if any(part is None for part in group):
            continue
        first = len(sequences)
        sequences += [
            Encoded(first + i, part.source, part.target)
            for i, part in enumerate(group)
            if part is not None
        ]
        kept.append(item)
        parts.append(tuple(range(first, len(sequences))))
    if not kept:
        why = ", ".join(f"{count} {reason}" for reason, count in counts.skipped.items())
        raise HeadscopeError(
            f"no example could be read by the model ({why})", expected="texts that become tokens"
        )
    return kept, sequences, parts
