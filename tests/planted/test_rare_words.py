"""A head that points at the rarest word is found, others are not; and the numbers are those of the slow twin."""

from __future__ import annotations

import copy
import math
import pickle
import random

import pytest
import torch
from torch import Tensor
from transformers import BertConfig, BertModel

from headscope.data.batches import batches
from headscope.data.encode import Encoder
from headscope.data.examples import Example
from headscope.data.frequency import Frequencies
from headscope.errors import HeadscopeError
from headscope.heads import Head, Site
from headscope.model.attention import Attention
from headscope.model.attention_model import AttentionModel
from headscope.model.tokens import Marks, Tokens
from headscope.statistics import stream
from headscope.statistics.rare_words import RareWords
from headscope.tables import Row
from planted import planted
from reference import rare_words as slow
from tiny import library_attentions

FREQUENCY = {
    "the": 100.0,
    "a": 90.0,
    "on": 80.0,
    "cat": 9.0,
    "dog": 9.0,
    "sat": 8.0,
    "mat": 5.0,
    "lynx": 1.0,
}
COMMON = 3
NOT_COUNTED = {".", ",", "'s", "n't"}
SENTENCES = [
    ("The", "lynx", "sat", "on", "a", "mat", "."),
    ("the", "cat", "'s", "dog", "sat", "."),  # cat and dog are equally rare
    (
        "a",
        "zebra",
        "on",
        "the",
        "okapi",
        ",",
        "the",
        "zebra",
    ),  # two words that are in no list, one of them twice
    ("the", "cat", "on", "the", "dog"),  # equally rare
    ("on", "the", "a"),  # nothing rare
    ("lynx", "."),  # no other word
    (".", ","),
    ("the", "mat"),  # not asked for two
    ("mat", "lynx", "mat", "lynx"),
]
Answers = dict[tuple[Head, str], Row]


def statistic(sentences: list[tuple[str, ...]] = SENTENCES, common: int = COMMON) -> RareWords:
    return RareWords(sentences, Frequencies(FREQUENCY), common=common)


def table(of: RareWords) -> Answers:
    return {(Head(row.stack, row.layer, row.head), row.statistic): row for row in of.table()}


def pieces(words: tuple[str, ...], chance: random.Random, most: int = 3) -> list[int | None]:
    """The word of each token: some words in several pieces, a special token before and after."""
    return [None, *(i for i in range(len(words)) for _ in range(chance.randint(1, most))), None]


def seen(
    weights: Tensor, word_of: list[list[int | None]], examples: list[int], stack: str = "encoder"
) -> Attention:
    """What a site did to sequences of equal length: weights [sequence, head, token, token]."""
    words = torch.tensor([[-1 if word is None else word for word in one] for one in word_of])
    tokens = Tokens(real=torch.ones_like(words, dtype=torch.bool), words=words, marks=Marks())
    attention = Attention(Site(stack, 0), weights, tokens, tokens)
    attention.examples = tuple(examples)
    return attention


def softened(scores: list[list[float]]) -> Tensor:
    """[1, 1, token, token] from scores, a row each."""
    return torch.softmax(torch.tensor(scores, dtype=torch.float64), dim=-1)[None, None]


def heads_of(words: tuple[str, ...]) -> Tensor:
    """[1, head, token, token]: rarest, previous, itself, uniform, special; one token a word, one special in front."""
    size = len(words) + 1
    # The full stop draws more than any word, and must not count.
    rarity = [0.0, *(-3 * math.log(FREQUENCY.get(word.lower(), 0.01)) for word in words)]
    rarity = [
        20.0 if word in NOT_COUNTED else score
        for word, score in zip(("", *words), rarity, strict=True)
    ]
    rules = [
        lambda i, j: rarity[j],
        lambda i, j: 20.0 * (j == i - 1),
        lambda i, j: 20.0 * (j == i),
        lambda i, j: 0.0,
        lambda i, j: 20.0 * (j == 0) + 0.1 * (j == 1),
    ]
    return torch.cat(
        [softened([[rule(i, j) for j in range(size)] for i in range(size)]) for rule in rules],
        dim=1,
    )


def pointing(sentences: list[tuple[str, ...]], dtype: torch.dtype = torch.float64) -> Answers:
    result = statistic(sentences)
    for example, words in enumerate(sentences):
        result.update(seen(heads_of(words).to(dtype), [[None, *range(len(words))]], [example]))
    return table(result)


def value(answers: Answers, head: int, name: str) -> float:
    return answers[Head("encoder", 0, head), name].value


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_head_that_points_at_the_rarest_word_is_found_and_no_other_head_is(
    dtype: torch.dtype,
) -> None:
    chance = random.Random(0)
    common, rare = ["the", "a", "on"], ["cat", "dog", "sat", "mat", "lynx", "zebra"]
    sentences = []
    for _ in range(200):
        words = chance.choices(common, k=chance.randint(4, 10)) + chance.sample(rare, 2) + ["."]
        chance.shuffle(words)
        sentences.append(tuple(words))
    answers = pointing(sentences, dtype)
    for name in ("rarest", "two-rarest", "rarest-rows", "two-rarest-rows"):
        assert value(answers, 0, name) == pytest.approx(1.0)
        assert all(value(answers, head, name) < 0.5 for head in range(1, 5)), name
    assert {row.count for (_, name), row in answers.items() if name == "rarest"} == {200}


def test_weight_on_the_word_itself_and_on_punctuation_is_not_pointing() -> None:
    words = ("the", "lynx", "a", ".")
    result = pointing([words])
    assert value(result, 2, "rarest") == 0.0  # every row points at itself: no answer
    # The first head's largest weight is on the full stop, which is no word: the next largest is on the lynx.
    assert heads_of(words)[0, 0, 1].argmax() == 4
    assert value(result, 0, "rarest") == 1.0


def test_ties_share_their_credit() -> None:
    words = ("the", "lynx", "a", "mat")
    result = pointing([words])
    assert value(result, 3, "rarest") == pytest.approx(1 / 4)
    assert value(result, 3, "two-rarest") == pytest.approx(2 / 4)
    assert value(result, 3, "rarest-rows") == pytest.approx(1 / 4)


def aimed(words: tuple[str, ...], at: list[int]) -> Answers:
    """One head, of which the row of each word has its largest weight at the word of this number."""
    rows = [[0.0] * (len(words) + 1)] + [
        [9.0 * (j == target + 1) for j in range(len(words) + 1)] for target in at
    ]
    result = statistic([words])
    result.update(seen(softened(rows), [[None, *range(len(words))]], [0]))
    return table(result)


def test_votes_for_a_word_that_is_repeated_are_added_up() -> None:
    """Four words point at a lynx, two at each, and three at the mat: most point at the lynx."""
    words = ("the", "lynx", "sat", "on", "a", "Lynx", "mat", "cat", "dog")
    lynx, mat = (1, 5), 6
    result = aimed(words, [lynx[0], mat, lynx[0], lynx[1], lynx[1], mat, 0, mat, mat])
    assert value(result, 0, "rarest") == 1.0
    assert value(result, 0, "rarest-rows") == pytest.approx(4 / 7)


def test_a_word_that_is_repeated_has_one_vote() -> None:
    """The article stands three times and points at the mat, cat and dog at the lynx: two words against one."""
    words = ("the", "lynx", "the", "cat", "the", "dog", "mat")
    assert value(aimed(words, [6, 3, 6, 1, 6, 1, 0]), 0, "rarest") == 1.0


def test_a_word_does_not_vote_for_itself_elsewhere_in_the_sentence() -> None:
    words = ("the", "lynx", "sat", "lynx", "mat", "lynx", "on")
    # The three rows of the lynx point at another lynx; of the others two point at the mat, one at the lynx.
    result = aimed(words, [4, 3, 4, 5, 1, 1, 0])
    assert value(result, 0, "rarest") == 0.0


def test_chance_counts_a_word_that_is_repeated_once() -> None:
    result = statistic([("the", "lynx", "the", "the", "mat")])
    result.update(seen(heads_of(("the", "lynx", "the", "the", "mat")), [[None, *range(5)]], [0]))
    chance = {
        row["kind"]: row["value"]
        for row in result.tables()["rare_words"]
        if row["baseline"] == "chance"
    }
    assert chance == {"rarest": pytest.approx(1 / 3), "two-rarest": pytest.approx(2 / 3)}


def test_a_sentence_without_a_rare_word_or_without_another_word_is_not_asked() -> None:
    for words in [("on", "the", "a"), ("lynx", "."), (".", ","), ("cat", "dog"), ("lynx", "lynx")]:
        assert pointing([words]) == {}
    assert {name for _, name in pointing([("the", "mat")])} == {"rarest", "rarest-rows"}
    assert {name for _, name in pointing([("the", "mat", "lynx")])} == set(RareWords.definitions)


def test_the_most_frequent_words_are_not_rare() -> None:
    words = ("the", "a", "on", "cat")
    for common, counted in [(0, True), (3, True), (4, False), (500, False)]:
        result = statistic([words], common)
        result.update(seen(heads_of(words), [[None, *range(4)]], [0]))
        assert bool(table(result)) is counted, common


def test_words_of_one_frequency_are_equally_rare() -> None:
    words = ("the", "cat", "on", "the", "dog")
    on_dog = softened([[0.0, 0, 0, 0, 0, 9.0]] * 6)
    result = statistic([words])
    result.update(seen(on_dog, [[None, *range(5)]], [0]))
    assert value(table(result), 0, "rarest") == 1.0
    # The rows of both are left out, and the other three all point at the dog.
    assert value(table(result), 0, "rarest-rows") == 1.0


def test_a_sentence_cut_to_length_is_not_asked() -> None:
    words = ("the", "lynx", "sat", "on", "the", "mat")
    result = statistic([words])
    result.update(seen(heads_of(words[:4]), [[None, *range(4)]], [0]))
    assert result.table() == []
    assert result.tables() == {"rare_words": []}


def test_only_one_text_that_the_words_are_of_is_measured() -> None:
    words = SENTENCES[0]
    alone = seen(heads_of(words), [[None, *range(7)]], [0], "decoder")
    of_decoder = statistic()
    of_decoder.update(alone)
    assert {head.stack for head, _ in table(of_decoder)} == {"decoder"}
    of_both = statistic()
    of_both.update(seen(heads_of(words), [[None, *range(7)]], [0]))
    of_both.update(alone)
    across = seen(heads_of(words), [[None, *range(7)]], [0], "cross")
    across.key = copy.copy(across.query)
    of_both.update(across)
    assert {head.stack for head, _ in table(of_both)} == {"encoder"}


def test_words_that_are_not_those_given_are_refused() -> None:
    words = SENTENCES[0]
    attention = seen(heads_of(words), [[None, *range(7)]], [1])
    with pytest.raises(HeadscopeError) as mistaken:
        statistic().update(attention)
    assert str(mistaken.value) == (
        "example 2 has 7 words here, and 6 in words_of. Expected the same words in both: Example(words)."
    )
    attention.examples = ()
    with pytest.raises(HeadscopeError) as unknown:
        statistic().update(attention)
    assert (
        str(unknown.value)
        == "the numbers of the examples are unknown. Expected batches run by `stream`."
    )


# Against the slow reference


def of_reference(words: tuple[str, ...], word_of: list[int | None]) -> slow.Sentence:
    return slow.Sentence(list(words), word_of, FREQUENCY, NOT_COUNTED, COMMON)


def mean(values: list[float | None]) -> tuple[float, int] | None:
    present = [one for one in values if one is not None]
    return (sum(present) / len(present), len(present)) if present else None


def assert_agrees(result: Answers, expected: dict[tuple[Head, str], list[float | None]]) -> None:
    means = {key: mean(values) for key, values in expected.items()}
    assert result.keys() == {key for key, answer in means.items() if answer is not None}
    for key, row in result.items():
        assert (row.value, row.count) == (pytest.approx(means[key][0], abs=1e-6), means[key][1]), (
            key
        )


@pytest.mark.parametrize("coarse", [0, 2, 5], ids=["no ties", "some ties", "many ties"])
def test_any_weights_give_what_the_slow_reference_gives(coarse: int) -> None:
    chance = random.Random(coarse)
    generator = torch.Generator().manual_seed(coarse)
    attentions, expected = [], {}
    for _ in range(30):
        example = chance.randrange(len(SENTENCES))
        word_of = pieces(SENTENCES[example], chance)
        weights = torch.rand(
            1, 3, len(word_of), len(word_of), generator=generator, dtype=torch.float64
        )
        if coarse:
            weights = (weights * 8 / coarse).floor() + 0.01 * (coarse == 5)
        weights = weights / weights.sum(dim=-1, keepdim=True).clamp_min(1e-9)
        attentions.append(seen(weights, [word_of], [example]))
        for head in range(3):
            answers = slow.answers(
                weights[0, head].tolist(), of_reference(SENTENCES[example], word_of)
            )
            for name, answer in answers.items():
                expected.setdefault((Head("encoder", 0, head), name), []).append(answer)
    whole = statistic()
    for attention in attentions:
        whole.update(attention)
    assert_agrees(table(whole), expected)
    parts = [statistic(), statistic()]
    for i in chance.sample(range(30), 30):
        parts[i % 2].update(attentions[i])
    merged = pickle.loads(pickle.dumps(parts[0])).merge(pickle.loads(pickle.dumps(parts[1])))
    assert_agrees(table(merged), expected)
    for first, other in zip(
        merged.tables()["rare_words"], whole.tables()["rare_words"], strict=True
    ):
        assert first == pytest.approx(other)


def random_bert(seed: int) -> AttentionModel:
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=12,
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=32,
        max_position_embeddings=24,
        initializer_range=0.5,
    )
    return AttentionModel(BertModel(config).eval(), planted().tokenizer)


TEXTS = [
    ("the", "cat", "sat", "on", "the", "mat", "."),
    ("the", "dog", ",", "the", "cat"),
    ("on", "the", "mat", "the", "dog", "sat", ",", "the", "cat", "sat", "."),
    ("cat",),
    ("the", "mat"),
    ("on", "the", "dog", "."),
]


@pytest.mark.parametrize("batch_size", [1, 2, 32])
def test_a_model_streamed_gives_what_its_eager_attentions_give(batch_size: int) -> None:
    model = random_bert(0)
    result = statistic(TEXTS)
    expected: dict[tuple[Head, str], list[float | None]] = {}
    for batch in stream(
        model, batches(Encoder(model), map(Example, TEXTS), batch_size=batch_size), [result]
    ):
        for site, weights in library_attentions(model, dict(batch.inputs)).items():
            for row, example in enumerate(batch.indices):
                words = TEXTS[example]
                size = len(words) + 2
                for head in range(weights.shape[1]):
                    rows = weights[row, head, :size, :size].tolist()
                    answers = slow.answers(
                        rows, of_reference(words, [None, *range(len(words)), None])
                    )
                    for name, answer in answers.items():
                        expected.setdefault((Head(site.stack, site.layer, head), name), []).append(
                            answer
                        )
    assert_agrees(table(result), expected)


def test_in_random_models_no_head_is_called_a_rare_word_head() -> None:
    chance = random.Random(1)
    words = ["the", "cat", "sat", "on", "mat", "dog"]
    sentences = [tuple(chance.choices(words, k=8)) for _ in range(60)]
    heads = above = 0
    for seed in range(5):
        # Chance decides which words are rare: a head fond of one word is not by that a rare-word head.
        frequencies = Frequencies(
            {word: float(i) for i, word in enumerate(chance.sample(words, 6))}
        )
        result = RareWords(sentences, frequencies, common=0)
        model = random_bert(seed)
        for _ in stream(model, batches(Encoder(model), map(Example, sentences)), [result]):
            pass
        rows = [row for row in result.table() if row.statistic == "rarest"]
        heads += len(rows)
        above += sum(row.value > 0.5 for row in rows)
    assert heads == 40
    assert above <= 2


def test_baselines_are_what_a_guess_without_attention_gets() -> None:
    result = statistic()
    for layer in range(2):  # a sentence counts once, not once a site
        for example, words in enumerate(SENTENCES):
            attention = seen(heads_of(words), [[None, *range(len(words))]], [example])
            attention.site = Site("encoder", layer)
            result.update(attention)
    rows = {(row["kind"], row["baseline"]): row for row in result.tables()["rare_words"]}
    for different, kind in [(1, "rarest"), (2, "two-rarest")]:
        guesses = [
            slow.baselines(of_reference(words, [*range(len(words))]), different)
            for words in SENTENCES
        ]
        present = [guess for guess in guesses if guess is not None]
        for baseline in present[0]:
            expected = sum(guess[baseline] for guess in present) / len(present)
            row = rows[kind, baseline]
            assert (row["value"], row["count"]) == (pytest.approx(expected), len(present)), (
                kind,
                baseline,
            )
            assert row["low"] <= row["value"] <= row["high"]
        even = rows[kind, "uniform attention"][
            "value"
        ]  # every word is one piece here: all are as likely
        assert even == pytest.approx(rows[kind, "chance"]["value"], abs=1e-6)
    assert len(rows) == 8
