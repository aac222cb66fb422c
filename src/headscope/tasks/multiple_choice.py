"""Which of a few endings? SWAG's form: a beginning and its endings, or a question and its choices."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from headscope.data.examples import Example
from headscope.data.records import Record, read_records
from headscope.errors import HeadscopeError
from headscope.model.attention_model import AttentionModel
from headscope.model.tokens import Batch
from headscope.tasks.base import (
    Chance,
    Item,
    Prepared,
    Task,
    drop_incomplete,
    encode_examples,
    part_rows,
    sequences_of,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray


class MultipleChoice(Task):
    """Accuracy; the loss is that of a softmax over the choices."""

    names: ClassVar[tuple[str, ...]] = ("choice", "swag")
    metrics = ("accuracy",)
    model_class = "AutoModelForMultipleChoice"
    head = ("MultipleChoice", "does not choose")
    reads_first = True
    table_columns = ("sent1", "ending0", "ending1", "label")

    def read(self, path: Path) -> Iterator[Item]:
        for record in read_records(path):
            form = self._swag if "ending0" in record.cells else self._listed
            beginning, endings = form(record)
            said = record.value(self.column(("label", "answer")))
            is_number = isinstance(said, int) or (isinstance(said, str) and said.isdigit())
            right = int(said) if is_number else -1  # type: ignore[call-overload]
            if not 0 <= right < len(endings):
                raise HeadscopeError(
                    f'the right choice is "{said}"',
                    where=record.where,
                    expected=f"a number from 0 to {len(endings) - 1}",
                )
            yield Item((beginning, *endings), right, record.where)

    def _swag(self, record: Record) -> tuple[str, list[str]]:
        names = [f"ending{i}" for i in range(len(record.cells)) if f"ending{i}" in record.cells]
        start = record.text(("sent2",)) if record.cells.get("sent2") else ""
        return record.text(("sent1",)), [
            f"{start} {record.text((name,))}".strip() for name in names
        ]

    def _listed(self, record: Record) -> tuple[str, list[str]]:
        choices = record.value(self.column(("choices",)))
        if (
            not isinstance(choices, list)
            or len(choices) < 2
            or not all(isinstance(one, str) for one in choices)
        ):
            said = json.dumps(choices)[:60]
            raise HeadscopeError(
                f"choices are {said}", where=record.where, expected="a list of two texts or more"
            )
        return record.text(self.column(("question", "text"))), choices

    def prepare(
        self, model: AttentionModel, items: list[Item], *, max_length: int | None = None
    ) -> Prepared:
        count = len(items[0].texts)
        other = next((item for item in items if len(item.texts) != count), None)
        if other is not None:
            raise HeadscopeError(
                f"{len(other.texts) - 1} choices",
                where=other.where,
                expected=f"{count - 1}, as in the first example",
            )
        pairs = [
            Example(item.texts[0], ending, item.where)
            for item in items
            for ending in item.texts[1:]
        ]
        found, counts = encode_examples(model, pairs, max_length)
        groups = [found[i : i + count - 1] for i in range(0, len(found), count - 1)]
        kept, sequences, parts = drop_incomplete(items, groups, counts)
        return Prepared(
            kept, sequences, parts, torch.tensor([item.target for item in kept]), counts
        )

    def call(self, model: AttentionModel, batch: Batch) -> Any:
        """All sequences as the choices of one example, whoever they belong to: the model scores each by itself."""
        inputs = {name: value[None] for name, value in batch.inputs.items()}
        return model(Batch(inputs, batch.layout, batch.indices))

    def extract_answers(self, output: Any, batch: Batch, prepared: Prepared) -> Tensor:
        scores: Tensor = output.logits.flatten()[:, None]
        return scores

    def predicted_logit(self, answers: Tensor) -> Tensor:
        """How much each ending is held for the right one."""
        return answers[:, 0]

    def losses(self, answers: Tensor, prepared: Prepared, items: Sequence[int]) -> Tensor:
        targets = prepared.targets[list(items)].to(answers.device)
        logits = answers[:, 0][part_rows(prepared, items).to(answers.device)].float()
        return torch.nn.functional.cross_entropy(logits, targets, reduction="none")

    def scores(
        self, answers: Tensor, prepared: Prepared, items: Sequence[int]
    ) -> NDArray[np.float64]:
        """One column: whether it is right."""
        chosen = answers[:, 0][part_rows(prepared, items).to(answers.device)].argmax(dim=-1).cpu()
        return (chosen == prepared.targets[list(items)]).double().numpy()[:, None]  # type: ignore[no-any-return]

    def measure(self, scores: NDArray[np.float64]) -> dict[str, float]:
        return {"accuracy": float(scores.mean())}

    def chance(self, model: AttentionModel, prepared: Prepared) -> Chance:
        return Chance.of_labels(prepared.targets.tolist())

    def with_predicted_labels(self, answers: Tensor, prepared: Prepared) -> Prepared:
        everyone = range(len(prepared.items))
        chosen = answers[sequences_of(prepared, everyone), 0][part_rows(prepared, everyone)].argmax(
            dim=-1
        )
        return replace(prepared, targets=chosen.cpu())

    @property
    def mean_column(self) -> int | None:
        return 0
