"""Heads that find antecedents are found, by the numbers of a slow twin; heads that do not are not."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel

from coreferent import SPECIAL, conll, documents, random_document, reader, tokenizer
from headscope.data.batches import batches
from headscope.data.coreference import Window, windows
from headscope.data.encode import Encoder
from headscope.errors import HeadscopeError
from headscope.model.attention_model import AttentionModel
from headscope.statistics import select_statistics, stream
from headscope.statistics.antecedent_rules import choices_of
from headscope.statistics.coreference import Coreference
from headscope.statistics.resampling import fingerprint, is_reported, poisson_weights
from reference import coreference as slow
from reference import intervals

COLUMNS = (
    "kind candidates stack layer head accuracy low high same_data_best_layer same_data_best_head "
    "same_data_best_accuracy nearest head_match rules chance count"
)


def rows_for(
    model: AttentionModel, cut: dict[int, Window], batch_size: int = 4, only: Iterable[int] = ()
) -> Coreference:
    """The statistic after one pass over these windows, or over some of them."""
    numbers = list(only) or list(cut)
    statistic = Coreference({i: cut[number] for i, number in enumerate(numbers)})
    encoder = Encoder(model)
    examples = [cut[number].example for number in numbers]
    for _ in stream(model, batches(encoder, examples, batch_size=batch_size), [statistic]):
        pass
    assert encoder.counts.used == len(numbers)
    return statistic


def table_of(statistic: Coreference) -> dict[tuple[str, str], dict]:
    return {(row["kind"], row["candidates"]): row for row in statistic.tables()["coreference"]}


def cut_of(
    folder: Path, model: AttentionModel, texts: list[str], max_length: int = 64
) -> dict[int, Window]:
    return dict(enumerate(windows(documents(folder, *texts), model, max_length=max_length)))


@pytest.fixture
def some(tmp_path: Path) -> dict[int, Window]:
    chance = random.Random(5)
    return cut_of(tmp_path, reader(), [random_document(chance) for _ in range(12)])


# The slow reference


def by_hand(model: AttentionModel, cut: dict[int, Window]) -> dict[tuple[str, str], dict]:
    """The whole table by loops: for every kind and candidates, each head's (credit, count) by document."""
    model.model.set_attn_implementation("eager")
    result: dict[tuple[str, str], dict] = {}
    for window in cut.values():
        encoding = model.tokenizer(list(window.words), is_split_into_words=True)
        inputs = {"input_ids": torch.tensor([encoding["input_ids"]])}
        with torch.no_grad():
            attentions = model.model(**inputs, output_attentions=True).attentions
        document = " ".join(word for sentence in window.document.sentences for word in sentence)
        mentions = [(m.start, m.end, m.entity, m.head, m.kind) for m in window.mentions]
        for question in slow.questions(list(window.words), mentions):
            for kind in ("all", question.kind):
                for among in ("mentions", "words"):
                    single = result.setdefault((kind, among), {"plain": {}, "heads": {}})
                    plain = [
                        1.0,
                        question.chance(among),
                        float(question.nearest),
                        float(question.head_match),
                    ]
                    single["plain"].setdefault(document, []).append(plain)
                    for layer, weights in enumerate(attentions):
                        for head in range(weights.shape[1]):
                            rows = weights[0, head].tolist()
                            credit = slow.credit(question, among, rows, encoding.word_ids())
                            single["heads"].setdefault((layer, head), {}).setdefault(
                                document, []
                            ).append(credit)
    return result


def expected_row(item: dict) -> dict:
    halves: dict[bool, list[str]] = {half: [] for half in (False, True)}
    for document in item["plain"]:
        halves[is_reported(fingerprint(document, 0))].append(document)

    def accuracy(head: tuple[int, int], among: list[str]) -> float:
        credits = [credit for document in among for credit in item["heads"][head][document]]
        return sum(credits) / len(credits)

    everything = [*halves[False], *halves[True]]
    best = max(item["heads"], key=lambda head: accuracy(head, halves[False]))
    same = max(item["heads"], key=lambda head: accuracy(head, everything))
    plain = [row for document in halves[True] for row in item["plain"][document]]
    low, high = bootstrap(
        [(sum(item["heads"][best][d]), len(item["plain"][d]), d) for d in halves[True]]
    )
    return {
        "layer": best[0],
        "head": best[1],
        "accuracy": accuracy(best, halves[True]),
        "low": low,
        "high": high,
        "same_data_best_layer": same[0],
        "same_data_best_head": same[1],
        "same_data_best_accuracy": accuracy(same, everything),
        "chance": sum(row[1] for row in plain) / len(plain),
        "nearest": sum(row[2] for row in plain) / len(plain),
        "head_match": sum(row[3] for row in plain) / len(plain),
        "count": sum(len(rows) for rows in item["plain"].values()),
    }


def bootstrap(parts: list[tuple[float, int, str]]) -> tuple[float, float]:
    """(credit, count, document) to the middle 95 % of the accuracy when documents are drawn again and again."""
    weights = poisson_weights([fingerprint(document, 0) for _, _, document in parts])
    drawn = []
    for row in weights.tolist():
        count = sum(weight * n for weight, (_, n, _) in zip(row, parts, strict=True))
        if count:
            drawn.append(
                sum(weight * credit for weight, (credit, _, _) in zip(row, parts, strict=True))
                / count
            )
    low, high = np.quantile(drawn, [0.025, 0.975])
    right, total = sum(credit for credit, _, _ in parts), sum(n for _, n, _ in parts)
    if min(right, total - right) >= 10:
        return float(low), float(high)
    share, variance = right / total, float(np.var(drawn))
    drawn_counts = [
        sum(weight * n for weight, (_, n, _) in zip(row, parts, strict=True))
        for row in weights.tolist()
    ]
    documents = min(max(total**2 / float(np.var(drawn_counts)), 1), total)
    return intervals.wilson(
        share, min(share * (1 - share) / variance, total) if variance else documents
    )


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_every_number_is_that_of_the_loops(family: str, tmp_path: Path) -> None:
    chance = random.Random(5)
    model = reader(family)
    # Some documents are longer than the model reads at once: both their windows count for one document.
    texts = [random_document(chance, sentences=8 if i % 3 == 0 else 4) for i in range(12)]
    cut = cut_of(tmp_path, model, texts, max_length=50)
    assert len(cut) > 14
    table, by_loops = table_of(rows_for(model, cut)), by_hand(reader(family), cut)
    kinds = ("all", "pronoun", "proper", "nominal")
    assert (
        table.keys()
        == by_loops.keys()
        == {(kind, among) for kind in kinds for among in ("mentions", "words")}
    )
    for key, item in by_loops.items():
        row = table[key]
        assert list(row) == COLUMNS.split()
        expected = expected_row(item)
        for name, value in expected.items():
            assert row[name] == pytest.approx(value, abs=1e-9), f"{name} of {key}"
        assert row["stack"] == ("encoder" if family == "bert" else "decoder")
        assert 0 < row["same_data_best_accuracy"] < 1


def test_heads_have_rows_over_all_documents(some: dict[int, Window]) -> None:
    rows = rows_for(reader(), some).table()
    single = by_hand(reader(), some)["all", "mentions"]
    assert [(row.layer, row.head) for row in rows] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    for row in rows:
        credits = [(sum(c), len(c), d) for d, c in single["heads"][row.layer, row.head].items()]
        assert row.value == pytest.approx(sum(c for c, _, _ in credits) / row.count)
        assert (row.low, row.high) == pytest.approx(bootstrap(credits))
        assert row.count == sum(n for _, n, _ in credits)
        assert (row.stack, row.statistic) == ("encoder", "antecedent")


# However the data are cut


def assert_same(left: Coreference, right: Coreference) -> None:
    first, other = table_of(left), table_of(right)
    assert first.keys() == other.keys()
    for key, row in first.items():
        assert row == pytest.approx(other[key], abs=1e-9), key
    assert len(left.table()) == len(right.table())
    for mine, its in zip(left.table(), right.table(), strict=True):
        assert (mine.value, mine.low, mine.high, mine.count) == pytest.approx(
            (its.value, its.low, its.high, its.count)
        )


def test_order_batch_size_merging_and_pickling_change_nothing(some: dict[int, Window]) -> None:
    model = reader()
    whole = rows_for(model, some)
    numbers = list(some)
    random.Random(0).shuffle(numbers)
    assert_same(rows_for(model, some, batch_size=1, only=numbers), whole)
    halves = [rows_for(model, some, only=part) for part in (numbers[:5], numbers[5:])]
    before = halves[1].tables()
    assert_same(pickle.loads(pickle.dumps(halves[0])).merge(halves[1]), whole)
    assert halves[1].tables() == before
    assert_same(Coreference({}).merge(halves[0]).merge(halves[1]), whole)


def test_windows_that_are_not_in_the_pass_are_not_counted(some: dict[int, Window]) -> None:
    model = reader()
    statistic = Coreference(some)
    few = [some[i].example for i in (0, 1)]
    for _ in stream(model, batches(Encoder(model), few), [statistic]):
        pass
    part = rows_for(model, some, only=(0, 1))
    assert statistic.table()[0].count == part.table()[0].count


def test_a_window_cut_for_another_length_is_refused(some: dict[int, Window]) -> None:
    model = reader()
    statistic = Coreference(some)
    encoder = Encoder(model, max_length=10)
    with pytest.raises(HeadscopeError) as error:
        list(stream(model, batches(encoder, [some[0].example], batch_size=1), [statistic]))
    assert encoder.counts.truncated == 1
    words = len(some[0].words)
    assert str(error.value).startswith("the model read ")
    assert str(error.value).endswith(
        f" words of a window of {words}. Expected windows cut for this model and this max_length, given to it as words."
    )


def test_without_the_numbers_of_the_windows_it_is_refused(some: dict[int, Window]) -> None:
    model = reader()
    (batch,) = batches(Encoder(model), [some[0].example])
    with (
        pytest.raises(HeadscopeError) as error,
        model.watched(Coreference(some).update),
        torch.inference_mode(),
    ):
        model(batch)
    assert (
        str(error.value)
        == "the numbers of the examples are unknown. Expected batches run by `stream`."
    )


def test_it_is_not_asked_of_plain_texts() -> None:
    assert Coreference.needs == "coreference"
    assert not any(isinstance(one, Coreference) for one in select_statistics())


# Planted heads

WORDS = [f"{entity}{i}" for entity in "pqrstu" for i in range(3)]  # the letter says the entity
POSITIONS = 16


def planted() -> AttentionModel:
    """One layer: head 0 looks at other words of the same letter, head 1 at the same word, the nearest before the end.

    A token's state is its position, its word and its letter, one-hot side by side, as in planted.py.
    """
    size, letters = POSITIONS + len(WORDS), sorted({word[0] for word in WORDS})
    config = BertConfig(
        vocab_size=len(SPECIAL) + len(WORDS),
        hidden_size=80,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        max_position_embeddings=POSITIONS,
    )
    model = BertModel(config, add_pooling_layer=False).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.fill_(1.0 if "LayerNorm.weight" in name else 0.0)
        model.embeddings.position_embeddings.weight[:, :POSITIONS] = torch.eye(POSITIONS)
        for i, word in enumerate(WORDS, start=len(SPECIAL)):
            model.embeddings.word_embeddings.weight[i, POSITIONS + i - len(SPECIAL)] = 1.0
            model.embeddings.word_embeddings.weight[i, size + letters.index(word[0])] = 1.0
        attention = model.encoder.layer[0].attention.self
        query, key = attention.query.weight, attention.key.weight
        for i in range(len(letters)):
            query[i, size + i], key[i, size + i] = 3.0, 1.0
        for i in range(POSITIONS):  # not itself
            query[6 + i, i], key[6 + i, i] = -9.0, 1.0
        for i in range(len(WORDS)):
            query[40 + i, POSITIONS + i], key[40 + i, POSITIONS + i] = 3.0, 1.0
        attention.query.bias[40 + len(WORDS)] = 0.2
        key[40 + len(WORDS), :POSITIONS] = torch.arange(POSITIONS) / POSITIONS
    return AttentionModel(model.double(), tokenizer(words=WORDS), name="planted")


def test_a_head_that_attends_to_the_antecedent_is_always_right(tmp_path: Path) -> None:
    chance = random.Random(1)
    texts = []
    for _ in range(30):  # four entities in any order, one of them taken up again by another word
        first = [f"{entity}{chance.randrange(3)}" for entity in chance.sample("pqrstu", 4)]
        again = chance.choice(first)[0]
        last = chance.choice([f"{again}{i}" for i in range(3) if f"{again}{i}" not in first])
        texts.append(conll(" ".join(f"{word}/({word[0]})" for word in [*first, last])))
    model = planted()
    table = table_of(rows_for(model, cut_of(tmp_path, model, texts, max_length=16)))
    for among in ("mentions", "words"):
        row = table["all", among]
        assert (row["layer"], row["head"], row["accuracy"], row["high"]) == (0, 0, 1.0, 1.0)
        assert 0.7 < row["low"] < 0.9, (
            "half of thirty documents, each with one mention, are not everything"
        )
        assert (row["same_data_best_head"], row["same_data_best_accuracy"]) == (0, 1.0)
        assert (row["chance"], row["head_match"], row["count"]) == (pytest.approx(0.25), 0.0, 30)


def test_a_head_that_looks_at_the_same_word_is_the_head_match_baseline(tmp_path: Path) -> None:
    """Where that baseline answers: the word of each document's last mention has been there before, often twice."""
    chance = random.Random(2)
    texts = []
    for _ in range(60):
        words = chance.choices(WORDS[:6], k=6)
        last = chance.choice(words)
        same = max(i for i, word in enumerate(words) if word == last)
        right = same if chance.random() < 0.7 else chance.randrange(6)
        texts.append(
            conll(" ".join(f"{word}/({i})" for i, word in enumerate(words)) + f" {last}/({right})")
        )
    model = planted()
    row = table_of(rows_for(model, cut_of(tmp_path, model, texts, max_length=16)))[
        "all", "mentions"
    ]
    assert (row["layer"], row["head"], row["count"]) == (0, 1, 60)
    assert 0.5 < row["accuracy"] < 1
    assert row["accuracy"] == row["head_match"]
    assert row["rules"] == row["head_match"]  # one word each: its first two sieves are the same


def test_a_uniform_head_gets_chance(tmp_path: Path) -> None:
    model = reader()
    with torch.no_grad():
        for name, parameter in model.model.named_parameters():
            if ".query." in name:
                parameter.zero_()
    letters = [conll("a/(0) b/(1) c/(0) d e/(2) f/(0)", f"{one}/(1)") for one in "abcdefgh"]
    table = table_of(rows_for(model, cut_of(tmp_path, model, letters)))
    for row in table.values():
        assert row["accuracy"] == pytest.approx(row["chance"])
        assert row["same_data_best_accuracy"] == pytest.approx(row["chance"])
    # c: one of two; f: two of four; the last: one of five
    assert table["all", "mentions"]["chance"] == pytest.approx((1 / 2 + 2 / 4 + 1 / 5) / 3)


def test_in_random_models_no_head_is_above_chance_more_often_than_its_interval_says(
    tmp_path: Path,
) -> None:
    """Words and antecedents are drawn blindly: there is nothing to find. 95 % intervals miss above in 2.5 %."""
    result, tried = 0, 0
    for seed in range(20):
        chance = random.Random(seed)
        model = reader(seed=seed, words=WORDS)
        texts = []
        for _ in range(60):
            words = chance.sample(WORDS, 9)
            right = chance.randrange(8)
            marks = [*range(8), right]
            texts.append(
                conll(" ".join(f"{word}/({mark})" for word, mark in zip(words, marks, strict=True)))
            )
        for row in rows_for(model, cut_of(tmp_path, model, texts), batch_size=60).tables()[
            "coreference"
        ]:
            if row["kind"] == "all":
                tried += 1
                result += row["low"] > row["chance"]
            assert row["chance"] == pytest.approx(1 / 8)
    assert tried == 40
    assert result <= 3


# Little data


def test_one_document_has_no_other_half_and_no_interval(tmp_path: Path) -> None:
    model = reader()
    for word in "abcdef":  # some of these are chosen on, some reported on
        single = rows_for(
            model, cut_of(tmp_path, model, [conll(f"{word}/(0) b {word}/(0) {word}/(0)")])
        )
        (row, _, *_) = single.tables()["coreference"]
        assert row["count"] == 2
        assert row["accuracy"] is None
        assert (row["chance"] is None) == (row["stack"] is not None)
        assert row["same_data_best_accuracy"] == 1.0
        assert all(np.isnan([head.low, head.high]).all() for head in single.table())


def test_the_one_document_that_is_reported_on_gives_no_interval(tmp_path: Path) -> None:
    model = reader()
    texts = {word: f"{word} b {word} {word}" for word in "abcdefgh"}
    reported = [word for word, text in texts.items() if is_reported(fingerprint(text, 0))]
    kept = [word for word in texts if word not in reported[1:]]
    cut = cut_of(tmp_path, model, [conll(f"{word}/(0) b {word}/(0) {word}/(0)") for word in kept])
    (row, *_) = rows_for(model, cut).tables()["coreference"]
    assert row["accuracy"] is not None
    assert np.isnan([row["low"], row["high"]]).all()


def test_documents_without_two_mentions_of_an_entity_have_no_rows(tmp_path: Path) -> None:
    model = reader()
    nothing = rows_for(model, cut_of(tmp_path, model, [conll("a/(0) b")]))
    assert nothing.tables() == {"coreference": [], "coreference_heads": []}
    assert nothing.table() == []


# The rules


def window_of(folder: Path, *sentences: str, tags: dict[str, str] | None = None) -> Window:
    (document,) = documents(folder, conll(*sentences, tags=tags))
    return Window(
        document, document.words, document.tags and sum(document.tags, ()), document.mentions
    )


@pytest.mark.parametrize(
    ("sentence", "nearest", "head_match", "rules"),
    [
        ("Anna/(0) met Tom/(1) and she/(0)", "Tom", None, "Tom"),  # nothing is known of these names
        ("the/(0 queen/0) met the/(1 king/1) and she/(0)", "king", None, "queen"),
        ("Mrs./(0 Hill/0) met Mr./(1 Hall/1) and she/(0)", "Hall", None, "Hill"),
        ("her/(0|(1) father/0) met a/(2 lady/2) and he/(0)", "lady", None, "father"),
        ("these/(0 dogs/0) saw a/(1 cat/1) and they/(0)", "cat", None, "dogs"),
        ("I/(0) saw a/(1 cat/1) with my/(0)", "cat", None, "I"),
        (
            "the/(0 old/0) house/(1) and the/(2 new/(3) house/2) a/(4 big/(5) house/4)",
            "house",
            "house",
            "house",
        ),
        ("The/(0 cat/0) saw a/(1 fat/(2) cat/1) the/(0 cat/0)", "cat", "cat", "cat"),
        ("he/(0) and she/(1) and it/(2)", "she", None, "she"),  # none agrees: any
    ],
)
def test_the_rules_take_whom_they_should(
    tmp_path: Path, sentence: str, nearest: str, head_match: str | None, rules: str
) -> None:
    window = window_of(tmp_path, sentence)
    last = max(window.mentions, key=lambda mention: (mention.end, -mention.start))
    chosen = choices_of(window, last, [one for one in window.mentions if one.end <= last.start])
    heads = {rule: None if one is None else window.words[one.head] for rule, one in chosen.items()}
    assert heads == {"nearest": nearest, "head_match": head_match, "rules": rules}


def test_the_same_words_go_before_the_same_head(tmp_path: Path) -> None:
    window = window_of(tmp_path, "the/(0 cat/0) saw a/(1 cat/1) but The/(0 cat/0)")
    last = window.mentions[-1]
    chosen = choices_of(window, last, list(window.mentions[:2]))
    assert [chosen[rule] for rule in ("nearest", "head_match", "rules")] == [
        window.mentions[1],
        window.mentions[1],
        window.mentions[0],
    ]


def test_tags_tell_number_and_without_them_it_agrees_with_all(tmp_path: Path) -> None:
    sentence = "the/(0 dogs/0) saw the/(1 cat/1) and they/(0)"
    for tags, taken in ((None, 1), ({"dogs": "NNS", "cat": "NN"}, 0)):
        window = window_of(tmp_path, sentence, tags=tags)
        chosen = choices_of(window, window.mentions[-1], list(window.mentions[:2]))
        assert chosen["rules"] == window.mentions[taken]
