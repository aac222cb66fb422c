"""Causal language modelling: prediction of the next token.

The loss of a text is the mean over its tokens except the first.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from torch import Tensor

from headscope.errors import HeadscopeError
from headscope.model.attention_model import AttentionModel
from headscope.model.tokens import Batch
from headscope.tasks.items import Item
from headscope.tasks.per_token import PerToken, score_tokens
from headscope.tasks.prepared import IGNORED, Prepared, encode_items, labels_of


class Causal(PerToken):
    """Accuracy of the next token; the loss in nats per token."""

    names: ClassVar[tuple[str, ...]] = ("causal",)
    model_class = "AutoModelForCausalLM"
    is_free_of_labels = True

    def check(self, model: AttentionModel) -> None:
        super().check(model)
        is_decoder = {site.stack for site in model.sites} == {"decoder"}
        if not is_decoder or model.model.get_output_embeddings() is None:
            raise HeadscopeError(
                f"{type(model.model).__name__} does not predict the next token",
                where=model.name,
                expected="a decoder with a language model's head, such as GPT-2's",
            )

    def prepare(
        self, model: AttentionModel, items: list[Item], *, max_length: int | None = None
    ) -> Prepared:
        self.check(model)
        fewest = 2, "of one token, before which there is nothing"
        plain = encode_items(model, items, max_length, fewest)
        labels = [[*sequence.source.ids[1:], IGNORED] for sequence in plain.sequences]
        return replace(plain, labels=labels)

    def extract_answers(self, output: Any, batch: Batch, prepared: Prepared) -> Tensor:
        """[sequence, 3]: sum of losses, judged tokens, right tokens."""
        return score_tokens(output.logits, labels_of(prepared, batch, output.logits.shape[1]))
