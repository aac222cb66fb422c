"""Maps between words: against the library's own attention; and the twin that has learned nothing."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from coreferent import reader
from headscope.analysis.parsed_sentences import SPECIAL, Trees
from headscope.analysis.word_maps import WordMaps, control_with_embeddings, reading_heads
from headscope.data.encode import Encoder
from headscope.data.examples import Example
from tiny import eager_copy


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_maps_are_the_library_s_between_words_and_special_tokens(family: str) -> None:
    model = reader(family)
    texts = [("ab", "c", "abc", "d"), ("a", "bcd"), ("h",)]
    sequences = tuple(Encoder(model).encode([Example(words) for words in texts], 0))
    governors = torch.tensor([[0, 1, 1, 1], [0, 1, -1, -1], [0, -1, -1, -1]])
    trees = Trees(governors, governors >= 0, torch.zeros_like(governors), sequences, (0, 1, 2))
    maps = WordMaps(model, reading_heads(model))(trees)
    assert maps.shape == (3, 4, 6, 6)
    reference = eager_copy(model)
    for s, sequence in enumerate(sequences):
        with torch.no_grad():
            layers = reference(
                torch.tensor([sequence.source.ids]), output_attentions=True
            ).attentions
        whole = torch.cat([layer[0] for layer in layers])  # [head, token, token]
        groups: list[list[int]] = [[] for _ in range(6)]
        for index, (token, word) in enumerate(
            zip(sequence.source.ids, sequence.source.words, strict=True)
        ):
            groups[{2: 0, 3: 1}[token] if word < 0 else SPECIAL + word].append(index)
        for q, query in enumerate(groups):
            for k, key in enumerate(groups):
                expected = (
                    whole[:, query][:, :, key].sum(dim=-1).mean(dim=-1)
                    if query and key
                    else torch.zeros(4)
                )
                np.testing.assert_allclose(maps[s, :, q, k].numpy(), expected.numpy(), atol=1e-3)


def test_the_control_keeps_the_embeddings_and_nothing_else() -> None:
    model = reader()
    reference = control_with_embeddings(model, 0)
    own, drawn = (dict(one.model.named_parameters()) for one in (model, reference))
    same = {
        name for name, value in own.items() if value.dim() > 1 and torch.equal(value, drawn[name])
    }
    assert same == {
        f"embeddings.{kind}_embeddings.weight" for kind in ("word", "position", "token_type")
    }
