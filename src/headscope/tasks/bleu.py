"""Translation judged by the model's own words: BLEU and chrF of what it says by beam search, as sacrebleu counts.

The loss is that of `translation`, of the given target, so that both are there for the same pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from headscope.model.attention_model import AttentionModel
from headscope.model.tokens import Batch
from headscope.tasks.base import Item, Prepared
from headscope.tasks.translation import Translation

if TYPE_CHECKING:
    from numpy.typing import NDArray

BEAMS = 4
LONGEST = 128  # tokens of a translation
COUNTS = 10  # columns of the scores that BLEU is made of: two lengths, right and all n-grams of four orders
RIGHT = slice(2, 6)  # of these, the right n-grams of each order
# Columns of an answer that are those of `translation`; the tokens it says come after them
GIVEN = 3


class Bleu(Translation):
    """BLEU and chrF of the model's translations; the loss in nats a token of the given ones."""

    names: ClassVar[tuple[str, ...]] = ("bleu",)
    metrics = ("bleu", "chrf")
    generates = True

    def prepare(
        self, model: AttentionModel, items: list[Item], *, max_length: int | None = None
    ) -> Prepared:
        prepared = super().prepare(model, items, max_length=max_length)
        prepared.extras = model.tokenizer
        return prepared

    def call(self, model: AttentionModel, batch: Batch) -> Any:
        """The pass over the given target, and the tokens it says itself, under whatever edits are open.

        Under gradients it says nothing: only the loss has any.
        """
        passed = self.single_pass(model, batch)
        if torch.is_grad_enabled():
            return passed, batch.inputs["input_ids"][:, :0]
        return passed, translate(model, batch)

    def single_pass(self, model: AttentionModel, batch: Batch) -> Any:
        return super().call(model, batch)

    def extract_answers(self, output: Any, batch: Batch, prepared: Prepared) -> Tensor:
        """[sequence, 3 + LONGEST]: the answer of `translation`, then the tokens said."""
        passed, said = output
        given = super().extract_answers(passed, batch, prepared).double()
        padded = torch.full(
            (len(said), LONGEST), float(prepared.extras.pad_token_id), dtype=torch.float64
        )
        padded[:, : said.shape[1]] = said[:, :LONGEST]
        return torch.cat([given, padded.to(given.device)], dim=1)

    def scores(
        self, answers: Tensor, prepared: Prepared, items: Sequence[int]
    ) -> NDArray[np.float64]:
        """Columns: what corpus BLEU is made of (lengths, right and all n-grams), then what chrF is made of."""
        said = prepared.extras.batch_decode(answers[:, GIVEN:].long(), skip_special_tokens=True)
        right = [[prepared.items[i].texts[1] for i in items]]
        counts = [metric._extract_corpus_statistics(said, right) for metric in _metrics().values()]
        return np.concatenate([np.array(one, dtype=np.float64) for one in counts], axis=1)

    def measure(self, scores: NDArray[np.float64]) -> dict[str, float]:
        totals = scores.sum(axis=0).astype(int).tolist()
        parts = {"bleu": totals[:COUNTS], "chrf": totals[COUNTS:]}
        return {
            name: float(metric._compute_score_from_stats(parts[name]).score)
            for name, metric in _metrics().items()
        }

    def change_of_one(self, scores: NDArray[np.float64]) -> float:
        """One word inside a sentence is wrong instead of right: it is part of 1, 2, 3 and 4 n-grams of each order."""
        total = scores.sum(axis=0, keepdims=True)
        worse = total.copy()
        worse[:, RIGHT] = np.maximum(worse[:, RIGHT] - [1, 2, 3, 4], 0)
        return abs(self._metric(total) - self._metric(worse))


def translate(model: AttentionModel, batch: Batch) -> Tensor:
    """[sequence, token]: the model's own translation by beam search, without what decoding starts from."""
    source = {name: batch.inputs[name].to(model.device) for name in ("input_ids", "attention_mask")}
    said: Tensor = model.model.generate(
        **source, num_beams=BEAMS, max_new_tokens=LONGEST, max_length=None
    )
    return said[:, 1:]


@cache
def _metrics() -> dict[str, Any]:
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    return {"bleu": BLEU(), "chrf": CHRF()}
