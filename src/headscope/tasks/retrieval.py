"""Retrieval: which paragraph answers a question, by the cosine of pooled vectors, on SQuAD files.

Needs no training. Every question is compared with all paragraphs of the data, so its loss depends on sequences of other
examples. An ablated model is judged with its own vectors of all of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from headscope.data.encode import Sequence as Encoded
from headscope.data.squad import read_squad
from headscope.errors import HeadscopeError
from headscope.model.attention_model import AttentionModel
from headscope.tasks.base import Chance, Scores
from headscope.tasks.items import Item
from headscope.tasks.pooling import PooledTask, Pooling, encode_texts
from headscope.tasks.prepared import Prepared

SHARPNESS = 20.0  # factor of cosines before the softmax over paragraphs, as in the training of sentence encoders


class Retrieval(PooledTask):
    """accuracy@1 and the mean reciprocal rank (MRR); the loss is that of a softmax over all paragraphs."""

    names: ClassVar[tuple[str, ...]] = ("retrieval",)
    metrics = ("accuracy@1", "mrr")
    model_class = "AutoModel"
    is_coupled = True
    compares = True
    mean_column = 0

    def read(self, path: Path) -> Iterator[Item]:
        for question in read_squad(path):
            yield Item((question.text, question.context), question.context, question.where)

    def prepare(
        self, model: AttentionModel, items: list[Item], *, max_length: int | None = None
    ) -> Prepared:
        self.check(model)
        contexts = list(dict.fromkeys(item.target for item in items))
        if len(contexts) < 2:
            raise HeadscopeError("questions must be about two paragraphs or more, got one")
        texts = [(text, "", "document") for text in contexts]
        texts += [(item.texts[0], item.where, "query") for item in items]
        encoded, counts, skipped = encode_texts(model, texts, max_length)
        sequences = [Encoded(i, part.source) for i, part in enumerate(encoded) if part is not None]
        if missing := len(encoded) - len(sequences):
            what = f"questions and paragraphs must become tokens, got {missing} without any"
            raise HeadscopeError(what, where=items[0].where)
        number = {text: i for i, text in enumerate(contexts)}
        parts: list[tuple[int, ...]] = [
            (number[item.target], len(contexts) + i) for i, item in enumerate(items)
        ]
        targets = np.array([number[item.target] for item in items])
        pooling = Pooling(model.reading, tuple(skipped))
        return Prepared(items, sequences, parts, targets, counts, extras=pooling)

    def losses(self, answers: Tensor, prepared: Prepared, items: Sequence[int]) -> Tensor:
        cosines, targets = self._cosines(answers, prepared, items)
        return torch.nn.functional.cross_entropy(SHARPNESS * cosines, targets, reduction="none")

    def scores(self, answers: Tensor, prepared: Prepared, items: Sequence[int]) -> Scores:
        """Columns: whether the right paragraph is first; 1 / its rank, with half of tied paragraphs before it."""
        cosines, targets = (x.cpu().numpy() for x in self._cosines(answers, prepared, items))
        right = cosines[np.arange(len(cosines)), targets][:, None]
        rank = 1 + (cosines > right).sum(axis=1) + 0.5 * ((cosines == right).sum(axis=1) - 1)
        return np.stack([(rank == 1).astype(float), 1 / rank], axis=1)

    def chance(self, model: AttentionModel, prepared: Prepared) -> Chance:
        """The baseline of a randomly drawn paragraph."""
        paragraphs = len(np.unique(prepared.targets))
        return Chance(1 / paragraphs, math.log(paragraphs))

    def _cosines(
        self, answers: Tensor, prepared: Prepared, items: Sequence[int]
    ) -> tuple[Tensor, Tensor]:
        """[question, paragraph] over the paragraphs of these items, and [question]: the index of the right one."""
        _, first, targets = np.unique(
            prepared.targets[list(items)], return_index=True, return_inverse=True
        )
        paragraphs, questions = answers[0::2], answers[1::2]
        return questions @ paragraphs[first].T, torch.as_tensor(targets, device=answers.device)
