"""Attention between words is computed once for all who ask, and apart for each way to pool."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch

from coreferent import reader
from headscope.data.batches import batches
from headscope.data.encode import Encoder
from headscope.data.frequency import Frequencies
from headscope.data.sentences import Sentence
from headscope.heads import Site
from headscope.model import attention as module
from headscope.model.attention import Attention
from headscope.model.tokens import Tokens
from headscope.model.word_attention import Pool, word_attention
from headscope.statistics import Statistic, stream
from headscope.statistics.rare_words import RareWords
from headscope.statistics.relations import Relations

SENTENCES = [
    Sentence(("ab", "c", "abc"), {"near": [(0, 1)]}),
    Sentence(("d", "bc"), {"near": [(1, 0)]}),
]
FREQUENCIES = Frequencies({"c": 3.0, "d": 2.0, "ab": 1.0})


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often maps between words were computed, by pool."""
    counts: Counter[str] = Counter()

    def counted(weights: torch.Tensor, query: Tokens, key: Tokens, pool: Pool) -> Any:
        counts[pool] += 1
        return word_attention(weights, query, key, pool)

    monkeypatch.setattr(module, "word_attention", counted)
    return counts


def statistics_for(pool: Pool) -> list[Statistic]:
    return [
        Relations(SENTENCES, pool=pool),
        RareWords([one.words for one in SENTENCES], FREQUENCIES, common=1),
    ]


def run(statistics: list[Statistic]) -> list[Any]:
    model = reader()
    for _ in stream(
        model,
        batches(Encoder(model), [one.example() for one in SENTENCES], batch_size=2),
        statistics,
    ):
        pass
    return [(one.table(), one.tables()) for one in statistics]


def test_relations_and_rare_words_of_one_pass_share_the_maps_between_words(
    computed: Counter[str],
) -> None:
    run(statistics_for("mean")[:1])
    alone = computed.pop("mean")
    run(statistics_for("mean"))
    assert computed == {"mean": alone}


def test_what_is_shared_is_what_each_finds_alone() -> None:
    together = run(statistics_for("max"))
    apart = [run([one])[0] for one in statistics_for("max")]
    assert repr(together) == repr(apart)


def test_each_way_to_pool_has_its_own_maps(computed: Counter[str]) -> None:
    weights = torch.rand(1, 2, 4, 4, generator=torch.Generator().manual_seed(0)).softmax(dim=-1)
    tokens = Tokens(torch.ones(1, 4, dtype=torch.bool), words=torch.tensor([[0, 0, 1, -1]]))
    attention = Attention(Site("encoder", 0), weights, tokens, tokens)
    pools: tuple[Pool, ...] = ("mean", "first", "max", "mean")
    actual = [attention.between_words(pool).weights for pool in pools]
    for pool, item in zip(pools, actual, strict=True):
        assert torch.equal(item, word_attention(weights, tokens, tokens, pool).weights)
    assert computed == {"mean": 1, "first": 1, "max": 1}
