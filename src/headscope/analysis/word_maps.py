"""The attention between the words of sentences, of all heads that read them, and of a twin that has learned nothing."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from headscope.analysis.parsed_sentences import SPECIAL, Trees
from headscope.data.batches import collate
from headscope.errors import HeadscopeError
from headscope.heads import Head
from headscope.model.attention import Attention
from headscope.model.attention_model import AttentionModel
from headscope.model.new_model import random_control
from headscope.model.tokens import Tokens
from headscope.model.word_attention import Pool, word_attention


def reading_heads(model: AttentionModel) -> list[Head]:
    """Those of the stack that reads the sentence."""
    stacks = [head.stack for head in model.heads]
    stack = "encoder" if "encoder" in stacks else "decoder"
    return [head for head in model.heads if head.stack == stack]


class WordMaps:
    """The maps of a batch: computed by a pass of the model, and kept in float16 as long as there is room.

    Batches are always the same and always rounded, so that what is kept changes no result.
    """

    def __init__(
        self, model: AttentionModel, heads: list[Head], pool: Pool = "mean", memory: int = 0
    ) -> None:
        self.model, self.heads, self.pool, self.room = model, heads, pool, memory
        self._first = {
            site: i for i, site in reversed(list(enumerate(head.site for head in heads)))
        }
        self._kept: dict[int, Tensor] = {}

    def __call__(self, trees: Trees) -> Tensor:
        kept = self._kept.get(id(trees))
        if kept is None:
            kept = self._computed(trees)
            if kept.nbytes <= self.room:
                self.room -= kept.nbytes
                self._kept[id(trees)] = kept
        return kept.float()

    def forget(self) -> None:
        """Free the room, and keep no more."""
        self._kept, self.room = {}, 0

    def _computed(self, trees: Trees) -> Tensor:
        places = SPECIAL + trees.governors.shape[1]
        maps = torch.zeros(len(trees), len(self.heads), places, places, dtype=torch.float16)

        def observe(attention: Attention) -> None:
            if attention.site not in self._first:
                return
            first = self._first[attention.site]
            tokens = _with_special(attention.query)
            weights = word_attention(attention.weights, tokens, tokens, self.pool).weights
            size = weights.shape[-1]
            maps[attention.rows, first : first + weights.shape[1], :size, :size] = (
                weights.half().cpu()
            )

        self.model.check_evaluating()
        with self.model.watched(observe), torch.inference_mode():
            self.model(collate(self.model, list(trees.encoded)))
        if not maps.isfinite().all():
            raise HeadscopeError(
                "its attention is not finite",
                where=self.model.name,
                fix="Load it with dtype float32 (`dtype`)",
            )
        return maps


def _with_special(tokens: Tokens) -> Tokens:
    """The classification token as word 0, the separator as word 1, and all words after them."""
    assert tokens.words is not None
    words = torch.where(tokens.words >= 0, tokens.words + SPECIAL, -1)
    words = words.masked_fill(tokens.classification, 0).masked_fill(tokens.separator, 1)
    return replace(tokens, words=words)


def control_with_embeddings(model: AttentionModel, seed: int) -> AttentionModel:
    """A twin with random weights that keeps the embeddings of tokens, positions and segments."""
    twin = random_control(model, seed)
    own = dict(model.model.named_modules())
    with torch.no_grad():
        for name, drawn in twin.model.named_modules():
            # Relative positions are looked up inside attention: they are of what is drawn anew.
            if isinstance(drawn, nn.Embedding) and "rel" not in name:
                drawn.weight.copy_(own[name].weight)
    return twin
