"""Which paragraph answers the question? Questions and paragraphs of SQuAD files, by the cosine of pooled vectors.

Needs no training. Every question is held against all paragraphs of the data, so its loss depends on sequences of other
examples: an ablated model is judged with the vectors it makes of all of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from torch import Tensor

from headscope.data.encode import Sequence as Encoded
from headscope.data.squad import read_squad
from headscope.errors import HeadscopeError
from headscope.model.attention_model import AttentionModel
from headscope.tasks.base import Chance, Item, Prepared
from headscope.tasks.pooling import PooledTask, Pooling, encode_texts

if TYPE_CHECKING:
    from numpy.typing import NDArray

SHARPNESS = 20.0  # what cosines are multiplied by before the softmax over paragraphs, as sentence encoders are trained


class Retrieval(PooledTask):
    """accuracy@1 and the mean reciprocal rank (MRR); the loss is that of a softmax over all paragraphs."""

    names: ClassVar[tuple[str, ...]] = ("retrieval",)
    metrics = ("accuracy@1", "mrr")
    model_class = "AutoModel"
    is_coupled = True
    compares = True

    def read(self, path: Path) -> Iterator[Item]:
        for question in read_squad(path):
            yield Item((question.text, question.context), question.context, question.where)

    def prepare(
        self, model: AttentionModel, items: list[Item], *, max_length: int | None = None
    ) -> Prepared:
        self.check(model)
        contexts = list(dict.fromkeys(item.target for item in items))
        if len(contexts) < 2:
            raise HeadscopeError(
                "all questions are about one paragraph", expected="two paragraphs or more"
            )
        texts = [(text, "", "document") for text in contexts]
        texts += [(item.texts[0], item.where, "query") for item in items]
        found, counts, skipped = encode_texts(model, texts, max_length)
        if any(one is None for one in found):
            what = f"{sum(one is None for one in found)} questions or paragraphs become no tokens"
            raise HeadscopeError(what, where=items[0].where, expected="texts that become tokens")
        sequences = [Encoded(i, one.source) for i, one in enumerate(found) if one is not None]
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

    def scores(
        self, answers: Tensor, prepared: Prepared, items: Sequence[int]
    ) -> NDArray[np.float64]:
        """Columns: whether the right paragraph is first, one over its rank; of paragraphs as near, half are before."""
        cosines, targets = (one.cpu().numpy() for one in self._cosines(answers, prepared, items))
        right = cosines[np.arange(len(cosines)), targets][:, None]
        rank = 1 + (cosines > right).sum(axis=1) + 0.5 * ((cosines == right).sum(axis=1) - 1)
        return np.stack([(rank == 1).astype(float), 1 / rank], axis=1)

    def chance(self, model: AttentionModel, prepared: Prepared) -> Chance:
        """Of one paragraph drawn at random."""
        paragraphs = len(np.unique(prepared.targets))
        return Chance(1 / paragraphs, math.log(paragraphs))

    def measure(self, scores: NDArray[np.float64]) -> dict[str, float]:
        return dict(zip(self.metrics, scores.mean(axis=0).tolist(), strict=True))

    @property
    def mean_column(self) -> int | None:
        return 0

    def _cosines(
        self, answers: Tensor, prepared: Prepared, items: Sequence[int]
    ) -> tuple[Tensor, Tensor]:
        """[question, paragraph] over the paragraphs of these items, and which of them is right."""
        _, first, targets = np.unique(
            prepared.targets[list(items)], return_index=True, return_inverse=True
        )
        paragraphs, questions = answers[0::2], answers[1::2]
        return questions @ paragraphs[first].T, torch.as_tensor(targets, device=answers.device)
