"""Relations between words: against loops, on planted heads, and on heads that know nothing."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from headscope.data.sentences import Sentence
from headscope.errors import HeadscopeError
from headscope.heads import Site
from headscope.model.attention import Attention
from headscope.model.tokens import Tokens
from headscope.statistics import relations as module
from headscope.statistics.relations import DIRECTIONS, OFFSETS, Relations, _credits
from headscope.statistics.resampling import fingerprint, is_reported

SITE = Site("encoder", 0)
Head = Callable[[Sentence, torch.Generator], Tensor]


def tree(number: int) -> Sentence:
    """Words with random governors; every relation is rare but "near"."""
    draw = random.Random(number)
    words = tuple(f"w{draw.randrange(999)}" for _ in range(draw.randrange(4, 12)))
    root = draw.randrange(len(words))
    pairs: dict[str, list[tuple[int, int]]] = {}
    for word in range(len(words)):
        if word != root:
            governor = draw.choice([other for other in range(len(words)) if other != word])
            pairs.setdefault(draw.choice(["subject", "object"]), []).append((word, governor))
    return Sentence(words, pairs)


def gold(sentence: Sentence, noise: torch.Generator) -> Tensor:
    """A head whose every word looks at its governor."""
    size = len(sentence.words)
    weights = torch.rand(size, size, generator=noise, dtype=torch.float64) * 0.1
    for pairs in sentence.pairs.values():
        for query, key in pairs:
            weights[query, key] += 2.0
    return weights / weights.sum(dim=-1, keepdim=True)


def transposed(sentence: Sentence, noise: torch.Generator) -> Tensor:
    """A head whose governors look at one dependent; seen from the dependent, the governor looks most."""
    weights = gold(sentence, noise).T
    return weights / weights.sum(dim=-1, keepdim=True)


def blind(sentence: Sentence, noise: torch.Generator) -> Tensor:
    size = len(sentence.words)
    return torch.rand(size, size, generator=noise, dtype=torch.float64).softmax(dim=-1)


def uniform(sentence: Sentence, noise: torch.Generator) -> Tensor:
    size = len(sentence.words)
    return torch.full((size, size), 1 / size, dtype=torch.float64)


def attention_of(sentence: Sentence, index: int, heads: list[Head], pieces: int = 1) -> Attention:
    """Word maps as attention between pieces: the first piece of a word looks, the last one is looked at."""
    noise = torch.Generator().manual_seed(index)
    maps = torch.stack([head(sentence, noise) for head in heads])
    size = len(sentence.words)
    if pieces > 1:
        wide = torch.zeros(len(heads), size * pieces, size * pieces, dtype=torch.float64)
        for piece in range(pieces):
            wide[:, piece::pieces, pieces - 1 :: pieces] = maps
        maps = wide
    words = torch.arange(size).repeat_interleave(pieces)[None]
    tokens = Tokens(torch.ones(1, size * pieces, dtype=torch.bool), words=words)
    attention = Attention(SITE, maps[None], tokens, tokens)
    attention.examples = (index,)
    return attention


def relations_for(sentences: list[Sentence], heads: list[Head], pieces: int = 1) -> Relations:
    relations = Relations(sentences)
    for index, sentence in enumerate(sentences):
        relations.update(attention_of(sentence, index, heads, pieces))
    return relations


def relation_rows(statistic: Relations) -> pd.DataFrame:
    return pd.DataFrame(statistic.tables()["relations"]).set_index(["relation", "direction"])


def by_hand(
    sentences: list[Sentence], heads: list[Head]
) -> dict[tuple[str, str, int, bool], tuple[float, int]]:
    """Loops: credit and count for each relation, direction, head and half."""
    result: dict[tuple[str, str, int, bool], tuple[float, int]] = {}
    for index, sentence in enumerate(sentences):
        noise = torch.Generator().manual_seed(index)
        maps = [head(sentence, noise).tolist() for head in heads]
        half = is_reported(fingerprint(sentence.text, 0))
        for number, weights in enumerate(maps):
            size = len(weights)
            for relation, pairs in sentence.pairs.items():
                for query, key in pairs:
                    rows = {
                        "dependent": (
                            {j: weights[query][j] for j in range(size) if j != query},
                            key,
                        ),
                        "governor": ({j: weights[key][j] for j in range(size) if j != key}, query),
                        "received": (
                            {i: weights[i][query] for i in range(size) if i != query},
                            key,
                        ),
                    }
                    for direction, (row, right) in rows.items():
                        best = [j for j, weight in row.items() if weight == max(row.values())]
                        credit, count = result.get((relation, direction, number, half), (0.0, 0))
                        credit += 1 / len(best) if right in best else 0.0
                        result[relation, direction, number, half] = credit, count + 1
    return result


@pytest.fixture(autouse=True)
def few_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RANKED", 20)


def test_accuracies_are_those_of_loops_over_the_maps() -> None:
    sentences, heads = [tree(i) for i in range(60)], [blind, gold, uniform]
    truth = by_hand(sentences, heads)
    each = pd.DataFrame(relations_for(sentences, heads).tables()["relation_heads"])
    assert len(each) == 2 * 3 * 3
    for row in each.itertuples():
        credit, count = truth[row.relation, row.direction, row.head, True]
        assert row.accuracy == pytest.approx(credit / count, abs=1e-12)
        assert row.count == count
    for (relation, direction), row in relation_rows(relations_for(sentences, heads)).iterrows():
        chosen = {head: truth[relation, direction, head, False] for head in range(3)}
        assert row["head"] == max(chosen, key=lambda head: chosen[head][0])
        both = [
            truth[relation, direction, head, half]
            for half in (False, True)
            for head in [int(row["head"])]
        ]
        assert row["same_data_accuracy"] == pytest.approx(
            sum(c for c, _ in both) / sum(n for _, n in both)
        )
        assert row["count"] == sum(n for _, n in both)


def test_the_baseline_is_the_best_offset_of_the_first_half_reported_on_the_second() -> None:
    sentences = [tree(i) for i in range(80)]
    rows = relation_rows(relations_for(sentences, [gold]))
    for relation in ("subject", "object"):
        offsets = {False: [], True: []}
        for sentence in sentences:
            half = is_reported(fingerprint(sentence.text, 0))
            offsets[half] += [key - query for query, key in sentence.pairs.get(relation, ())]
        best = max(
            OFFSETS, key=lambda offset: (offsets[False].count(offset), -OFFSETS.index(offset))
        )
        expected = offsets[True].count(best) / len(offsets[True])
        for direction in DIRECTIONS:
            row = rows.loc[relation, direction]
            assert row["baseline"] == pytest.approx(expected)
            assert row["baseline_offset"] == (-best if direction == "governor" else best)


def test_a_head_that_looks_at_governors_is_found_and_its_transpose_only_in_the_column() -> None:
    sentences = [tree(i) for i in range(80)]
    rows = relation_rows(relations_for(sentences, [blind, gold, transposed]))
    assert rows.loc[("subject", "dependent"), "head"] == 1
    assert rows.loc[("subject", "dependent"), "accuracy"] == 1.0
    assert rows.loc[("subject", "received"), "head"] == 2
    assert rows.loc[("subject", "received"), "accuracy"] > 0.95
    above = pd.DataFrame(
        relations_for(sentences, [blind, gold, transposed]).tables()["relation_heads"]
    ).query("is_above")
    assert set(above["head"]) == {1, 2}


def test_pieces_make_no_difference_to_words() -> None:
    sentences = [tree(i) for i in range(40)]
    whole, split = (
        relation_rows(relations_for(sentences, [blind, gold], pieces)) for pieces in (1, 3)
    )
    pd.testing.assert_frame_equal(whole, split)


def test_blind_heads_are_not_above_the_baseline_more_often_than_chance() -> None:
    actual = [
        pd.DataFrame(
            relations_for([tree(1000 * seed + i) for i in range(60)], [blind] * 8).tables()[
                "relation_heads"
            ]
        )["is_above"]
        for seed in range(5)
    ]
    assert np.mean(np.concatenate(actual)) < 0.01


def test_the_interval_holds_the_accuracy_and_has_the_width_of_its_sentences() -> None:
    sentences = [tree(i) for i in range(200)]
    row = relation_rows(relations_for(sentences, [blind])).loc["subject", "dependent"]
    assert row["low"] < row["accuracy"] < row["high"]
    share, count = row["accuracy"], row["count"] / 2
    binomial = 2 * 1.96 * np.sqrt(share * (1 - share) / count)
    assert 0.7 * binomial < row["high"] - row["low"] < 1.6 * binomial


def test_rare_relations_are_listed_without_a_head() -> None:
    sentences = [Sentence(("a", "b", "c"), {"rare": [(0, 2)]}), *(tree(i) for i in range(30))]
    row = relation_rows(relations_for(sentences, [gold])).loc["rare", "dependent"]
    assert row["count"] == 1
    assert pd.isna(row["head"])
    assert pd.isna(row["accuracy"])


def test_parts_merge_to_the_whole_also_after_pickling() -> None:
    sentences, heads = [tree(i) for i in range(50)], [blind, gold]
    parts = [Relations(sentences), Relations(sentences)]
    for index, sentence in enumerate(sentences):
        parts[index % 2].update(attention_of(sentence, index, heads))
    merged = pickle.loads(pickle.dumps(parts[0])).merge(parts[1])
    pd.testing.assert_frame_equal(
        relation_rows(merged), relation_rows(relations_for(sentences, heads))
    )


def test_across_two_texts_there_are_two_directions() -> None:
    source, target = ("the", "red", "cat"), ("le", "chat", "rouge")
    sentences = [
        Sentence(
            (*source, str(i)), {"means": [(0, 0), (1, 2), (2, 1)]}, (*target, str(i)), "across"
        )
        for i in range(40)
    ]
    statistic = Relations(sentences)
    query, key = (
        Tokens(torch.ones(1, 4, dtype=torch.bool), words=torch.arange(4)[None]) for _ in range(2)
    )
    weights = torch.full((4, 4), 0.1)
    weights[0, 0] = weights[1, 2] = weights[2, 1] = 0.7
    for index in range(len(sentences)):
        attention = Attention(Site("cross", 0), weights[None, None], query, key)
        attention.examples = (index,)
        statistic.update(attention)
    rows = relation_rows(statistic)
    assert list(rows.index.get_level_values("direction")) == ["dependent", "received"]
    assert list(rows["accuracy"]) == [1.0, 1.0]


@pytest.mark.parametrize("pool", ["mean", "first", "max"])
def test_rows_of_words_and_what_goes_outside_make_one(pool: str) -> None:
    noise = torch.Generator().manual_seed(3)
    weights = torch.rand(2, 3, 7, 7, generator=noise, dtype=torch.float64).softmax(dim=-1)
    words = torch.tensor([[-1, 0, 0, 1, 2, 2, -1], [-1, 0, 1, 1, 1, 1, -1]])
    tokens = Tokens(torch.ones(2, 7, dtype=torch.bool), words=words)
    result = Attention(SITE, weights, tokens, tokens).between_words(pool)  # type: ignore[arg-type]
    total = result.weights.sum(dim=-1) + result.outside
    expanded = result.queries[:, None].expand_as(total)
    torch.testing.assert_close(total[expanded], torch.ones_like(total[expanded]))
    assert not total[~expanded].any()
    if pool == "mean":
        by_hand = weights[0, 1][[4, 5]].mean(dim=0)[[1, 2]].sum()
        torch.testing.assert_close(result.weights[0, 1, 2, 0], by_hand)
    if pool == "first":
        torch.testing.assert_close(result.weights[0, 1, 2, 0], weights[0, 1, 4, [1, 2]].sum())


def test_pairs_of_words_that_are_not_there_are_refused() -> None:
    with pytest.raises(
        HeadscopeError,
        match=r'^relation "subject" joins words 0 and 2\. Expected 0 to 1 and 0 to 1\.$',
    ):
        Sentence(("she", "sleeps"), {"subject": [(0, 2)]})


def test_relations_of_one_s_own_are_not_counted_as_syntax() -> None:
    sentences = [
        Sentence(("a", "b", "c"), {"obj": [(0, 1)], "punct": [(2, 1)], "mine": [(1, 0)]})
        for _ in range(3)
    ]
    asked_of = Relations(sentences, with_totals=True, own={"mine"})
    names = [[asked_of.relations[number] for number, _, _ in pairs] for pairs in asked_of._pairs]
    assert names == [["obj", "all", "all but punctuation", "punct", "all", "mine"]] * 3


def test_weights_that_differ_by_rounding_alone_share_their_credit() -> None:
    weights = torch.tensor(
        [[[[0.0, 0.5, 0.5 * (1 + 5e-8)], [0.2, 0.0, 0.8], [0.5, 0.5, 0.0]]]], dtype=torch.float32
    )
    where = torch.tensor([[0, 0, 1], [0, 0, 2], [0, 1, 2]])
    credit = _credits(weights, *where.T, within=True)
    assert credit[:, 0, 0].tolist() == [0.5, 0.5, 1.0]
