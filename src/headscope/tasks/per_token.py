"""Base class of tasks that judge tokens. An answer has three numbers: sum of losses, judged tokens, right tokens."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from headscope.data.examples import read_examples
from headscope.model.attention_model import AttentionModel
from headscope.model.relevance.targets import largest_logit_at
from headscope.model.tokens import Batch
from headscope.tasks.base import Chance, Scores, Task
from headscope.tasks.items import Item
from headscope.tasks.prepared import IGNORED, Prepared


class PerToken(Task):
    """Accuracy over the tokens of all texts, and perplexity; the loss in nats per token."""

    metrics = ("accuracy", "perplexity")

    def read(self, path: Path) -> Iterator[Item]:
        """Plain texts, or one column of a table."""
        column = self.columns.get("text")
        names = None if column is None else (column,)
        for example in read_examples([path], column=names, option='`columns={"text": "NAME"}`'):
            assert isinstance(example.first, str)
            yield Item((example.first,), None, example.where)

    def relevance_target(
        self,
        model: AttentionModel,
        batch: Batch,
        prepared: Prepared,
        *,
        seed: int = 0,
        answers: Tensor | None = None,
    ) -> Tensor:
        """The largest logit at one of the judged tokens, drawn at random for each sequence."""
        assert prepared.labels is not None
        positions = []
        for number in batch.indices:
            labels = prepared.labels[number]
            judged = [position for position, label in enumerate(labels) if label != IGNORED]
            positions.append(int(np.random.default_rng([seed, number]).choice(judged)))
        return largest_logit_at(model, batch, positions)

    def losses(self, answers: Tensor, prepared: Prepared, items: Sequence[int]) -> Tensor:
        return answers[:, 0] / answers[:, 1]

    def scores(self, answers: Tensor, prepared: Prepared, items: Sequence[int]) -> Scores:
        """Columns: right tokens, judged tokens, sum of losses."""
        table: Scores = answers.double().cpu().numpy()[:, [2, 1, 0]]
        return table

    def chance(self, model: AttentionModel, prepared: Prepared) -> Chance:
        """Accuracy of always predicting the most frequent token; the loss of a uniform distribution."""
        assert prepared.labels is not None
        targets = Counter(x for labels in prepared.labels for x in labels if x != IGNORED)
        size = getattr(model.model.config, "vocab_size", None)
        accuracy = (
            max(targets.values()) / targets.total() if self.metrics[0] == "accuracy" else None
        )
        return Chance(accuracy, math.log(size) if size else None)

    def measure(self, scores: Scores) -> dict[str, float]:
        right, count, losses = scores.sum(axis=0)
        return {"accuracy": float(right / count), "perplexity": float(np.exp(losses / count))}

    def change_of_one(self, scores: Scores) -> float:
        """One token is right instead of wrong."""
        return 1 / float(scores[:, 1].sum())


def score_tokens(logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
    """[sequence, 3]: sum of losses, judged tokens, right tokens, from logits [sequence, token, vocabulary]."""
    labels = labels.to(logits.device)
    # One row per token: torch sums a large vocabulary less exactly along an axis that is not the last.
    precise = logits.to(torch.promote_types(logits.dtype, torch.float32))
    losses = nn.functional.cross_entropy(
        precise.flatten(0, 1),
        labels.flatten(),
        reduction="none",
        ignore_index=IGNORED,
        label_smoothing=smoothing,
    ).view_as(labels)
    judged = labels != IGNORED
    right = (logits.argmax(dim=-1) == labels) & judged
    sums = (losses.sum(dim=1), judged.sum(dim=1).to(losses), right.sum(dim=1).to(losses))
    return torch.stack(sums, dim=1)
