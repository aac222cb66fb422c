"""Translation judged by generated texts: BLEU and chrF of beam search, as computed by sacrebleu.

The loss is that of the task `translation`: the loss of the reference translation.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from headscope.data.encode import model_limit
from headscope.model.attention_model import AttentionModel
from headscope.model.tokens import Batch
from headscope.tasks.base import Scores
from headscope.tasks.items import Item
from headscope.tasks.prepared import Prepared
from headscope.tasks.translation import Translation

BEAMS = 4
LONGEST = 128  # tokens of a translation
COUNTS = (
    10  # columns of the scores for BLEU: two lengths, then matching and all n-grams of four orders
)
MATCHING = slice(2, 6)  # among them, the matching n-grams of each order
TARGET_COLUMNS = 3  # first columns of an answer: those of `translation`; generated tokens follow


class Bleu(Translation):
    """BLEU and chrF of the model's translations; the loss in nats per token of the reference translations."""

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
        """The output for the reference translation, and the generated tokens, under the current edits.

        Nothing is generated while gradients are enabled: generated texts have no gradient.
        """
        output = self.single_pass(model, batch)
        if torch.is_grad_enabled():
            return output, batch.inputs["input_ids"][:, :0]
        return output, translate(model, batch)

    def single_pass(self, model: AttentionModel, batch: Batch) -> Any:
        return super().call(model, batch)

    def extract_answers(self, output: Any, batch: Batch, prepared: Prepared) -> Tensor:
        """[sequence, 3 + LONGEST]: the answer of `translation`, then the generated tokens."""
        forward, generated = output
        target_sums = super().extract_answers(forward, batch, prepared).double()
        padding = float(prepared.extras.pad_token_id)
        tokens = target_sums.new_full((len(generated), LONGEST), padding)
        tokens[:, : generated.shape[1]] = generated[:, :LONGEST]
        return torch.cat([target_sums, tokens], dim=1)

    def scores(self, answers: Tensor, prepared: Prepared, items: Sequence[int]) -> Scores:
        """Columns: statistics of corpus BLEU (lengths, matching and all n-grams), then of chrF."""
        texts = prepared.extras.batch_decode(
            answers[:, TARGET_COLUMNS:].long(), skip_special_tokens=True
        )
        references = [[prepared.items[i].texts[1] for i in items]]
        metrics = _metrics().values()
        counts = [metric._extract_corpus_statistics(texts, references) for metric in metrics]
        return np.concatenate([np.array(part, dtype=np.float64) for part in counts], axis=1)

    def measure(self, scores: Scores) -> dict[str, float]:
        totals = scores.sum(axis=0).astype(int).tolist()
        parts = {"bleu": totals[:COUNTS], "chrf": totals[COUNTS:]}
        return {
            name: float(metric._compute_score_from_stats(parts[name]).score)
            for name, metric in _metrics().items()
        }

    def change_of_one(self, scores: Scores) -> float:
        """The change if one word inside a sentence becomes wrong: it is in 1, 2, 3 and 4 n-grams of the four orders."""
        total = scores.sum(axis=0, keepdims=True)
        worse = total.copy()
        worse[:, MATCHING] = np.maximum(worse[:, MATCHING] - [1, 2, 3, 4], 0)
        return abs(self._metric(total) - self._metric(worse))


def translate(model: AttentionModel, batch: Batch) -> Tensor:
    """[sequence, token]: the model's translation by beam search, without the start token.

    At most LONGEST tokens, and not more than the decoder has positions.
    """
    source = {name: batch.inputs[name].to(model.device) for name in ("input_ids", "attention_mask")}
    ids: Tensor = model.model.generate(
        **source, num_beams=BEAMS, max_new_tokens=min(LONGEST, model_limit(model)), max_length=None
    )
    return ids[:, 1:]


@cache
def _metrics() -> dict[str, Any]:
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    return {"bleu": BLEU(), "chrf": CHRF()}
