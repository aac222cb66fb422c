"""Tasks for tiny models: what a task needs of a model, without a tokenizer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headscope.data.encode import Counts, Side
from headscope.data.encode import Sequence as Encoded
from headscope.model.attention_model import AttentionModel
from headscope.model.tokens import Batch
from headscope.tasks.base import Task
from headscope.tasks.classification import Classification
from headscope.tasks.items import Item
from headscope.tasks.prepared import Prepared
from tiny import ENCODER_DECODERS, Example, examples


class Means(Task):
    """The mean of the last states over a text should be near a random vector: a task for every family.

    A score is whether the first entry has the right sign.
    """

    names: ClassVar[tuple[str, ...]] = ("means",)
    metrics = ("accuracy",)
    model_class = "AutoModel"

    def __init__(self) -> None:
        super().__init__("means")

    def read(self, path: Path) -> Iterator[Item]:
        raise NotImplementedError

    def prepare(
        self, model: AttentionModel, items: list[Item], *, max_length: int | None = None
    ) -> Prepared:
        raise NotImplementedError

    def extract_answers(self, output: Any, batch: Batch, prepared: Prepared) -> Tensor:
        states: Tensor = output[0]
        mask = batch.inputs.get("decoder_attention_mask", batch.inputs["attention_mask"])
        real = mask[..., None].to(states)
        return (states * real).sum(dim=1) / real.sum(dim=1)

    def losses(self, answers: Tensor, prepared: Prepared, items: Sequence[int]) -> Tensor:
        targets = prepared.targets[list(items)][:, : answers.shape[1]].to(answers)
        return ((answers - targets) ** 2).mean(dim=1)

    def scores(
        self, answers: Tensor, prepared: Prepared, items: Sequence[int]
    ) -> NDArray[np.float64]:
        right = (answers[:, 0] > 0) == (prepared.targets[list(items)][:, 0] > 0)
        return right.double().numpy()[:, None]

    def measure(self, scores: NDArray[np.float64]) -> dict[str, float]:
        return {"accuracy": float(scores.mean())}

    @property
    def mean_column(self) -> int | None:
        return 0


def sequence(number: int, example: Example) -> Encoded:
    return Encoded(
        number, side(example.source), None if example.target is None else side(example.target)
    )


def side(ids: Sequence[int]) -> Side:
    return Side(list(ids), list(range(len(ids))), [0] * len(ids))


def means_of(family: str, chosen: list[Example] | None = None, seed: int = 0) -> Prepared:
    """Examples of a family with random targets."""
    chosen = examples(family) if chosen is None else chosen
    targets = torch.randn(len(chosen), 64, generator=torch.Generator().manual_seed(seed))
    return prepared(chosen, targets)


def classes_of(
    family: str, chosen: list[Example] | None = None, seed: int = 0
) -> tuple[Classification, Prepared]:
    """Examples of a family with random classes among three."""
    assert family not in ENCODER_DECODERS
    chosen = examples(family) if chosen is None else chosen
    targets = torch.randint(0, 3, (len(chosen),), generator=torch.Generator().manual_seed(seed))
    return Classification("mnli"), prepared(chosen, targets)


def prepared(chosen: list[Example], targets: Tensor) -> Prepared:
    sequences = [sequence(i, example) for i, example in enumerate(chosen)]
    items = [Item(("",), None) for _ in chosen]
    return Prepared(items, sequences, [(i,) for i in range(len(chosen))], targets, Counts())
