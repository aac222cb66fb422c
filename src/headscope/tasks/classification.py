"""Classification of texts and pairs of texts: GLUE's sentence tasks, or any table with labels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from headscope.config.command_line import command_line
from headscope.data.records import Record, read_records
from headscope.errors import HeadscopeError, choices
from headscope.model.attention_model import AttentionModel
from headscope.model.relevance.targets import largest_logit
from headscope.model.tokens import Batch
from headscope.tasks.base import Chance, Scores, Task, root_mean_square
from headscope.tasks.items import Item
from headscope.tasks.metrics import accuracy, f1, matthews
from headscope.tasks.prepared import Prepared, encode_items


@dataclass(frozen=True)
class Form:
    """Format of a data set: the columns of its texts and label (each may have several names), its labels, its metric.

    labels  in the order of the classes; empty: those that occur in the data, sorted
    names   other names that some files use for the labels, in the same order
    """

    first: tuple[str, ...]
    second: tuple[str, ...] = ()
    label: tuple[str, ...] = ("label",)
    labels: tuple[str, ...] = ()
    metric: str = "accuracy"
    names: tuple[str, ...] = ()


# Labels of examples on which annotators did not agree, or whose label is secret.
NO_LABEL = ("-", "-1")
_BITS, _TWO = ("0", "1"), ("entailment", "not_entailment")
_NLI = ("entailment", "neutral", "contradiction")
_LABEL = ("label", "gold_label")
_FIRST, _SECOND = ("sentence1", "premise"), ("sentence2", "hypothesis")
FORMS = {
    "classification": Form(("text", "sentence"), label=("label", "class")),
    "pairs": Form(("sentence1", "text1", "premise", "a"), ("sentence2", "text2", "hypothesis", "b")),
    "mnli": Form(("premise", "sentence1", "prem"), ("hypothesis", "sentence2", "hyp"), _LABEL, _NLI),
    "snli": Form(("premise", "sentence1"), ("hypothesis", "sentence2"), _LABEL, _NLI),
    "qnli": Form(("question",), ("sentence",), labels=_TWO),
    "rte": Form(_FIRST, _SECOND, labels=_TWO),
    "sst2": Form(("sentence",), labels=_BITS, names=("negative", "positive")),
    "cola": Form(
        ("sentence",), labels=_BITS, metric="matthews", names=("unacceptable", "acceptable")
    ),
    "mrpc": Form(
        ("#1 String", "sentence1"), ("#2 String", "sentence2"), ("Quality", "label"), _BITS, "f1",
        ("not_equivalent", "equivalent"),
    ),
    "qqp": Form(
        ("question1",), ("question2",), ("is_duplicate", "label"), _BITS, "f1",
        ("not_duplicate", "duplicate"),
    ),
}  # fmt: skip
METRICS = {"accuracy": accuracy, "f1": f1, "matthews": matthews}


class Classification(Task):
    """Classification. The loss is the cross-entropy of the model's own classifier."""

    names: ClassVar[tuple[str, ...]] = (
        "classification", "cola", "mnli", "mrpc", "pairs", "qnli", "qqp", "rte", "snli", "sst2",
    )  # fmt: skip
    model_class = "AutoModelForSequenceClassification"
    head = ("SequenceClassification", "has no classifier")
    reads_first = True

    def __init__(
        self,
        name: str = "classification",
        *,
        columns: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(name, columns=columns, labels=labels)
        self.form = FORMS[name]
        columns_of_form = (self.form.first, self.form.second, self.form.label)
        self.table_columns = tuple(names[0] for names in columns_of_form if names)
        others = [metric for metric in METRICS if metric != self.form.metric]
        if len(self.form.labels) > 2:
            others.remove("f1")  # F1 is defined for two classes only
        self.metrics = (self.form.metric, *others)
        self.mean_column = 0 if self.form.metric == "accuracy" else None

    def read(self, path: Path) -> Iterator[Item]:
        for record in read_records(path):
            texts = [
                record.text(self.column(names))
                for names in (self.form.first, self.form.second)
                if names
            ]
            if not record.has(self.column(self.form.label)):
                self._refuse_unlabelled(record)
                yield Item(tuple(texts), None, record.where)
                continue
            label = str(record.value(self.column(self.form.label))).strip()
            label = self.renamed.get(label, label)
            if label in self.form.names:
                label = self.form.labels[self.form.names.index(label)]
            if self.form.labels and label in NO_LABEL:
                continue
            if self.form.labels and label not in self.form.labels:
                raise HeadscopeError(
                    f'label "{label}" is unknown',
                    where=record.where,
                    expected=choices(label, self.form.labels),
                    fix='If the names differ on purpose, map them: `labels={"THEIRS": "OURS"}`',
                )
            yield Item(tuple(texts), label, record.where)

    def _refuse_unlabelled(self, record: Record) -> None:
        if not self.needs_labels:
            return
        names = self.column(self.form.label)
        self_labels = command_line("importance", self_labels=True)
        raise HeadscopeError(
            f"no column {' or '.join(names)} among {choices(names[0], record.cells)}",
            where=record.where,
            fix=f'Name the column that holds it: `columns={{"{self.form.label[0]}": "NAME"}}`. '
            f"Without labels, use {self_labels}: it takes the model's own predictions",
        )

    def labels(self, items: Sequence[Item]) -> tuple[str, ...]:
        """The classes in order: those of the data set, or those that occur."""
        occurring = {item.target for item in items}
        if len(occurring) < 2:
            what = f'there must be two classes or more, got "{items[0].target}" for all {len(items)} examples'
            raise HeadscopeError(what, where=items[0].where.rpartition(":")[0] or None)
        return self.form.labels or tuple(_ordered(occurring))

    def prepare(
        self, model: AttentionModel, items: list[Item], *, max_length: int | None = None
    ) -> Prepared:
        is_labelled = items[0].target is not None
        labels = self.form.labels or tuple(map(str, model.model.config.label2id))
        if is_labelled:
            labels = self.labels(items)
        classes = _classes(model, labels)
        unknown = next((item for item in items if item.target not in classes), None)
        if is_labelled and unknown is not None:
            raise HeadscopeError(
                f'label "{unknown.target}" is unknown to the model',
                where=unknown.where or model.name,
                expected=choices(unknown.target, classes),
                fix='If the names differ on purpose, map them: `labels={"THEIRS": "OURS"}`',
            )
        plain = encode_items(model, items, max_length)
        targets = [classes[item.target] if is_labelled else 0 for item in plain.items]
        # [class of the model]: its index among the data set's labels; other classes come after them.
        indices = len(labels) + np.arange(int(model.model.config.num_labels))
        for label in set(labels) & set(classes):
            indices[classes[label]] = labels.index(label)
        return replace(plain, targets=torch.tensor(targets), extras=indices)

    def extract_answers(self, output: Any, batch: Batch, prepared: Prepared) -> Tensor:
        logits: Tensor = output.logits
        return logits

    def predicted_logit(self, answers: Tensor) -> Tensor:
        return largest_logit(answers)

    def imitation(self, answers: Tensor, teacher: Tensor) -> Tensor:
        """Kullback-Leibler divergence from the teacher's distribution to the student's, in nats."""
        ours, theirs = answers.log_softmax(dim=-1), teacher.log_softmax(dim=-1)
        return (theirs.exp() * (theirs - ours)).sum(dim=-1)

    def losses(self, answers: Tensor, prepared: Prepared, items: Sequence[int]) -> Tensor:
        targets = prepared.targets[list(items)].to(answers.device)
        return torch.nn.functional.cross_entropy(answers.float(), targets, reduction="none")

    def scores(self, answers: Tensor, prepared: Prepared, items: Sequence[int]) -> Scores:
        """Columns: whether it is right, the predicted class, the right class, as indices among the labels."""
        predicted = answers.argmax(dim=-1).cpu().numpy()
        right = prepared.targets[list(items)].numpy()
        if prepared.extras is not None:
            predicted, right = prepared.extras[predicted], prepared.extras[right]
        return np.stack([predicted == right, predicted, right], axis=1).astype(np.float64)

    def change_of_one(self, scores: Scores) -> float:
        """The change if the prediction for one example becomes another class that occurs."""
        # Examples with equal scores change the metric equally: compute the change once for each kind.
        kinds, counts = np.unique(scores, axis=0, return_counts=True)
        classes = np.union1d(scores[:, 1:], [0.0, 1.0])
        changes: list[float] = []
        for kind, count in zip(kinds, counts, strict=True):
            row = int(np.flatnonzero((scores == kind).all(axis=1))[0])
            for other in classes[classes != kind[1]]:
                after = scores.copy()
                after[row, 1] = other
                changes += [self._metric(after) - self._metric(scores)] * int(count)
        return root_mean_square(changes)

    def measure(self, scores: Scores) -> dict[str, float]:
        return {name: METRICS[name](scores[:, 1], scores[:, 2]) for name in self.metrics}

    def chance(self, model: AttentionModel, prepared: Prepared) -> Chance:
        """The best constant answer; for F1 that is always class 1."""
        chance = Chance.of_labels(prepared.targets.tolist())
        if self.form.metric == "accuracy":
            return chance
        if self.form.metric == "matthews":
            return replace(chance, metric=0.0)
        targets = prepared.targets.numpy()
        if prepared.extras is not None:
            targets = prepared.extras[targets]
        return replace(chance, metric=f1(np.ones(len(targets)), targets.astype(np.float64)))

    def with_predicted_labels(self, answers: Tensor, prepared: Prepared) -> Prepared:
        return replace(prepared, targets=answers.argmax(dim=-1).cpu())


def _ordered(labels: Iterable[str]) -> list[str]:
    """Labels in the order of their classes: by value if all are numbers ("10" after "2"), else alphabetically."""
    by_name = sorted(labels)
    return sorted(by_name, key=int) if all(label.isdecimal() for label in by_name) else by_name


def _classes(model: AttentionModel, labels: tuple[str, ...]) -> dict[str, int]:
    """Index of each label in the model's output: by class name, by number, or in the order of the labels."""
    own = {str(name): int(i) for name, i in (model.model.config.label2id or {}).items()}
    if all(name.upper().startswith("LABEL_") for name in own):
        if set(labels) <= set(own):
            return own
        if all(label.isdecimal() and int(label) in own.values() for label in labels):
            return {label: int(label) for label in labels}
        if len(own) != len(labels):
            listed = f"{len(labels)} labels of the data ({', '.join(labels)})"
            what = f"a model with unnamed classes must have as many as the {listed}, got {len(own)}"
            raise HeadscopeError(what, where=model.name)
        return {label: i for i, label in enumerate(labels)}
    if set(own) & set(labels):
        return own
    lower = {name.lower(): i for name, i in own.items()}
    return {label: lower[label.lower()] for label in labels if label.lower() in lower} or own
