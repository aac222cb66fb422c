"""Attention between the words of sentences, in a model or in a random-weight control that keeps its embeddings."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from headscope.analysis.parsed_sentences import SPECIAL, Trees
from headscope.data.batches import collate
from headscope.errors import HeadscopeError
from headscope.heads import Head, Site
from headscope.model.attention import Attention
from headscope.model.attention_model import AttentionModel
from headscope.model.new_model import random_control
from headscope.model.tokens import Tokens
from headscope.model.word_attention import Pool, word_attention


def reading_heads(model: AttentionModel) -> list[Head]:
    """The heads of the stack that reads a sentence: the encoder, or the decoder of a model without an encoder."""
    stacks = [head.stack for head in model.heads]
    stack = "encoder" if "encoder" in stacks else "decoder"
    return [head for head in model.heads if head.stack == stack]


class WordMaps:
    """A function that returns the maps of a batch. It runs the model, and caches maps up to `memory` bytes.

    Maps are rounded to float16 whether they are cached or not, so that caching does not change results.
    """

    def __init__(
        self, model: AttentionModel, heads: list[Head], pool: Pool = "mean", memory: int = 0
    ) -> None:
        self.model, self.heads, self.pool, self.memory = model, heads, pool, memory
        self._first: dict[Site, int] = {}  # index of the first head of each site
        for i, head in enumerate(heads):
            self._first.setdefault(head.site, i)
        self._cache: dict[int, Tensor] = {}

    def __call__(self, trees: Trees) -> Tensor:
        maps = self._cache.get(id(trees))
        if maps is None:
            maps = self._compute(trees)
            if maps.nbytes <= self.memory:
                self.memory -= maps.nbytes
                self._cache[id(trees)] = maps
        return maps.float()

    def forget(self) -> None:
        """Free the cache, and store no more maps."""
        self._cache, self.memory = {}, 0

    def _compute(self, trees: Trees) -> Tensor:
        positions = SPECIAL + trees.governors.shape[1]
        maps = torch.zeros(len(trees), len(self.heads), positions, positions, dtype=torch.float16)

        def observe(attention: Attention) -> None:
            if attention.site not in self._first:
                return
            first = self._first[attention.site]
            tokens = _with_special(attention.query)
            weights = word_attention(attention.weights, tokens, tokens, self.pool).weights
            heads, size = slice(first, first + weights.shape[1]), weights.shape[-1]
            maps[attention.rows, heads, :size, :size] = weights.half().cpu()

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
    """The tokens with new word numbers: 0 for the classification token, 1 for the separator, SPECIAL + i for word i."""
    assert tokens.words is not None
    words = torch.where(tokens.words >= 0, tokens.words + SPECIAL, -1)
    words = words.masked_fill(tokens.classification, 0).masked_fill(tokens.separator, 1)
    return replace(tokens, words=words)


def control_with_embeddings(model: AttentionModel, seed: int) -> AttentionModel:
    """A random-weight control that keeps the embeddings of tokens, positions and segments."""
    control = random_control(model, seed)
    own = dict(model.model.named_modules())
    with torch.no_grad():
        for name, module in control.model.named_modules():
            # Embeddings of relative positions are part of attention and stay random.
            if isinstance(module, nn.Embedding) and "rel" not in name:
                module.weight.copy_(own[name].weight)
    return control
