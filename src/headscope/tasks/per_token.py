"""What tasks that judge single tokens share: an answer is the sum of losses, the tokens asked, the right ones."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from headscope.data.examples import read_examples
from headscope.model.attention_model import AttentionModel
from headscope.model.relevance.targets import largest_logit_at
from headscope.model.tokens import Batch
from headscope.tasks.base import Chance, Item, Prepared, Task

if TYPE_CHECKING:
    from numpy.typing import NDArray

IGNORED = -100  # the label of a token that is not asked


class PerToken(Task):
    """The share of tokens that are guessed right over all texts, and perplexity; the loss in nats a token."""

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
        """The largest logit at one of the places that are asked, drawn by lot for each sequence."""
        assert prepared.labels is not None
        places = []
        for number in batch.indices:
            asked = [
                place for place, label in enumerate(prepared.labels[number]) if label != IGNORED
            ]
            places.append(int(np.random.default_rng([seed, number]).choice(asked)))
        return largest_logit_at(model, batch, places)

    def losses(self, answers: Tensor, prepared: Prepared, items: Sequence[int]) -> Tensor:
        return answers[:, 0] / answers[:, 1]

    def scores(
        self, answers: Tensor, prepared: Prepared, items: Sequence[int]
    ) -> NDArray[np.float64]:
        """Columns: right tokens, tokens asked, sum of losses."""
        table: NDArray[np.float64] = answers.double().cpu().numpy()[:, [2, 1, 0]]
        return table

    def chance(self, model: AttentionModel, prepared: Prepared) -> Chance:
        """Accuracy of always saying the most frequent token, the loss of all tokens alike."""
        assert prepared.labels is not None
        asked = Counter(label for labels in prepared.labels for label in labels if label != IGNORED)
        size = getattr(model.model.config, "vocab_size", None)
        accuracy = max(asked.values()) / asked.total() if self.metrics[0] == "accuracy" else None
        return Chance(accuracy, math.log(size) if size else None)

    def measure(self, scores: NDArray[np.float64]) -> dict[str, float]:
        right, asked, losses = scores.sum(axis=0)
        return {"accuracy": float(right / asked), "perplexity": float(np.exp(losses / asked))}

    def change_of_one(self, scores: NDArray[np.float64]) -> float:
        """One token is right instead of wrong."""
        return 1 / float(scores[:, 1].sum())


def score_tokens(logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
    """[sequence, 3]: sum of losses, tokens asked, right ones, where each place should say what its label says."""
    labels = labels.to(logits.device)
    losses = nn.functional.cross_entropy(
        logits.float().transpose(1, 2),
        labels,
        reduction="none",
        ignore_index=IGNORED,
        label_smoothing=smoothing,
    )
    asked = labels != IGNORED
    right = (logits.argmax(dim=-1) == labels) & asked
    return torch.stack(
        [losses.sum(dim=1), asked.sum(dim=1).to(losses), right.sum(dim=1).to(losses)], dim=1
    )
