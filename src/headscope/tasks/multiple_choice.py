"""Multiple choice: a beginning and several endings (SWAG), or a question and several choices."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from headscope.data.examples import Example
from headscope.data.records import Record, read_records
from headscope.errors import HeadscopeError
from headscope.model.attention_model import AttentionModel
from headscope.model.tokens import Batch
from headscope.tasks.base import Chance, Scores, Task
from headscope.tasks.items import Item
from headscope.tasks.prepared import (
    Prepared,
    drop_incomplete,
    encode_examples,
    part_rows,
    sequences_of,
)


class MultipleChoice(Task):
    """The metric is the accuracy, the loss the cross-entropy over the choices.

    Each choice is a sequence with one logit. `_choices` and `_swag` parse the two formats of files.
    """

    names: ClassVar[tuple[str, ...]] = ("choice", "swag")
    metrics = ("accuracy",)
    model_class = "AutoModelForMultipleChoice"
    head = ("MultipleChoice", "has no multiple-choice head")
    reads_first = True
    mean_column = 0
    table_columns = ("sent1", "ending0", "ending1", "label")

    def read(self, path: Path) -> Iterator[Item]:
        for record in read_records(path):
            parse = self._swag if "ending0" in record.cells else self._choices
            beginning, endings = parse(record)
            cell = record.value(self.column(("label", "answer")))
            is_number = isinstance(cell, int) or (isinstance(cell, str) and cell.isdigit())
            right = int(cell) if is_number else -1  # type: ignore[call-overload]
            if not 0 <= right < len(endings):
                what = (
                    f'the right choice must be a number from 0 to {len(endings) - 1}, got "{cell}"'
                )
                raise HeadscopeError(what, where=record.where)
            yield Item((beginning, *endings), right, record.where)

    def _swag(self, record: Record) -> tuple[str, list[str]]:
        names = [f"ending{i}" for i in range(len(record.cells)) if f"ending{i}" in record.cells]
        start = record.text(("sent2",)) if record.cells.get("sent2") else ""
        endings = [f"{start} {record.text((name,))}".strip() for name in names]
        return record.text(("sent1",)), endings

    def _choices(self, record: Record) -> tuple[str, list[str]]:
        choices = record.value(self.column(("choices",)))
        texts = choices if isinstance(choices, list) else []
        if len(texts) < 2 or not all(isinstance(text, str) for text in texts):
            what = f"choices must be a list of two texts or more, got {json.dumps(choices)[:60]}"
            raise HeadscopeError(what, where=record.where)
        return record.text(self.column(("question", "text"))), texts

    def prepare(
        self, model: AttentionModel, items: list[Item], *, max_length: int | None = None
    ) -> Prepared:
        count = len(items[0].texts)
        other = next((item for item in items if len(item.texts) != count), None)
        if other is not None:
            what = f"every example must have {count - 1} choices like the first one, got {len(other.texts) - 1}"
            raise HeadscopeError(what, where=other.where)
        pairs = [
            Example(item.texts[0], ending, item.where)
            for item in items
            for ending in item.texts[1:]
        ]
        sequences, counts = encode_examples(model, pairs, max_length)
        prepared = drop_incomplete(items, sequences, count - 1, counts)
        targets = torch.tensor([item.target for item in prepared.items])
        return replace(prepared, targets=targets)

    def call(self, model: AttentionModel, batch: Batch) -> Any:
        """All sequences as the choices of one example, since the model scores each separately."""
        inputs = {name: value[None] for name, value in batch.inputs.items()}
        return model(Batch(inputs, batch.layout, batch.indices))

    def extract_answers(self, output: Any, batch: Batch, prepared: Prepared) -> Tensor:
        scores: Tensor = output.logits.flatten()[:, None]
        return scores

    def predicted_logit(self, answers: Tensor) -> Tensor:
        """[sequence]: the one logit of each sequence, which is an ending with its beginning."""
        return answers[:, 0]

    def losses(self, answers: Tensor, prepared: Prepared, items: Sequence[int]) -> Tensor:
        targets = prepared.targets[list(items)].to(answers.device)
        # [item, ending]; the rows of `answers` are the sequences of `items`
        logits = answers[:, 0][part_rows(prepared, items).to(answers.device)].float()
        return torch.nn.functional.cross_entropy(logits, targets, reduction="none")

    def scores(self, answers: Tensor, prepared: Prepared, items: Sequence[int]) -> Scores:
        """One column: whether the prediction is right."""
        predicted = (
            answers[:, 0][part_rows(prepared, items).to(answers.device)].argmax(dim=-1).cpu()
        )
        return (predicted == prepared.targets[list(items)]).double().numpy()[:, None]  # type: ignore[no-any-return]

    def chance(self, model: AttentionModel, prepared: Prepared) -> Chance:
        return Chance.of_labels(prepared.targets.tolist())

    def with_predicted_labels(self, answers: Tensor, prepared: Prepared) -> Prepared:
        items = range(len(prepared.items))
        logits = answers[sequences_of(prepared, items), 0]  # one per sequence, item by item
        targets = logits[part_rows(prepared, items)].argmax(dim=-1)
        return replace(prepared, targets=targets.cpu())
