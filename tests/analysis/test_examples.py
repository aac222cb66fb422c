"""Typical and counter examples are where the rule holds and where it fails, by a slow search over eager weights."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from headscope.analysis import examples
from headscope.analysis.examples import EACH, Text, TokenRecorder, WordRecorder, examples_of
from headscope.analysis.examples._cases import stretch
from headscope.analysis.examples._recording import question_among_tokens
from headscope.data.batches import batches
from headscope.data.encode import Encoder
from headscope.data.examples import Example
from headscope.data.frequency import Frequencies
from headscope.data.sentences import Sentence
from headscope.model.tokens import Marks, Tokens
from headscope.statistics import stream
from headscope.study.schema.tables import TABLES
from headscope.study.study import Study
from headscope.tables import to_frame

sys.path.insert(0, str(Path(__file__).parents[1] / "planted"))
from planted import planted
from tiny import eager_copy, excited

TEXTS = [
    "the cat sat on the mat .",
    "the dog sat , the cat sat",
    "the mat sat on the dog .",
    "cat , dog , mat .",
]


def study_of(*roles: tuple[int, int, str], above: list[dict[str, Any]] | None = None) -> Study:
    rules = {
        (one["layer"], one["head"], one["relation"]): f"{one['direction']}: shown"
        for one in above or []
    }
    rows = [
        {"stack": "encoder", "layer": layer, "head": head, "role": role}
        | {"rule": rules.get((layer, head, role.removeprefix("syntactic: ")), "")}
        for layer, head, role in roles
    ]
    tables = {"roles": pd.DataFrame(rows)}
    if above is not None:
        tables["relation_heads"] = pd.DataFrame(above)
    return Study(to_frame([]), {}, {}, tables)


def shows(layer: int, head: int, relation: str, direction: str) -> dict[str, Any]:
    key = {"stack": "encoder", "layer": layer, "head": head}
    return key | {"relation": relation, "direction": direction, "accuracy": 0.9, "is_above": True}


def examples_in(model: Any, study: Study, texts: list[Text], batch_size: int = 2) -> pd.DataFrame:
    """The examples in these texts, recorded in one pass."""
    examples = [text.example for text in texts]
    of_tokens = TokenRecorder(len(model.sites), range(len(texts)))
    of_words = WordRecorder(len(model.sites), dict(enumerate(texts)), "mean")
    read = batches(Encoder(model), of_tokens.remember(examples), batch_size=batch_size)
    has_words = not isinstance(examples[0].first, str)
    for _ in stream(model, read, [of_tokens, of_words] if has_words else [of_tokens]):
        pass
    return examples_of(model, study, of_tokens, [of_words] if has_words else [])


def plain(texts: list[str]) -> list[Text]:
    return [Text(Example(text), "encoder") for text in texts]


def test_a_planted_head_has_typical_examples_and_no_counter_example() -> None:
    study = study_of((0, 1, "previous token"), (1, 0, "next token"), (2, 0, "separators"))
    result = examples_in(planted(), study, plain(TEXTS))
    assert list(result.columns) == TABLES["examples"].names
    assert set(result["kind"]) == {"typical"}
    assert len(result) == 3 * EACH
    for row in result.to_dict("records"):
        words = json.loads(row["words"])
        wanted = {
            "previous token": row["query"] - 1,
            "next token": row["query"] + 1,
            "separators": len(words) - 1,
        }
        assert row["key"] == wanted[row["role"]]
        assert row["weight"] > 0.99
        assert row["expected"] is None
        assert words[0] == "[CLS]"


def test_the_text_and_the_place_in_it_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where only words around the two are shown: the explorer opens the text itself."""
    model = planted()
    pairs = [
        Example("the cat sat on the mat . the dog sat", "the dog sat ."),
        Example("cat , dog", "mat ."),
    ]
    monkeypatch.setattr("headscope.analysis.examples._cases.MOST_WORDS", 8)
    monkeypatch.setattr("headscope.analysis.examples._cases.REACH", 2)
    study = study_of((2, 0, "separators"), (0, 1, "previous token"))
    result = examples_in(model, study, [Text(pair, "encoder") for pair in pairs])
    assert any(json.loads(row["words"]).count("…") == 2 for row in result.to_dict("records"))
    for row in result.to_dict("records"):
        texts, words, starts = (json.loads(row[name]) for name in ("text", "words", "starts"))
        assert Example(*texts) in pairs
        tokens = model.tokenizer.convert_ids_to_tokens(model.tokenizer(*texts)["input_ids"])
        runs = " ".join(words).replace("… ", "…").replace(" …", "…").strip("…").split("…")
        assert len(runs) == len(starts)
        for run, start in zip(runs, starts, strict=True):
            assert run.split() == tokens[start : start + len(run.split())]
    endless = examples_in(model, study_of((0, 1, "previous token")), plain(["cat " * 1500]))
    assert len(endless)
    assert (endless["text"] == "").all()


def test_a_head_that_does_not_do_it_has_only_counter_examples() -> None:
    result = examples_in(planted(), study_of((2, 0, "previous token")), plain(TEXTS))
    separators = result["words"].map(lambda text: len(json.loads(text)) - 1)
    assert set(result["kind"]) == {"counter"}
    assert (result["key"] == separators).all()
    assert (result["expected"] == result["query"] - 1).all()


def test_relations_agree_with_a_slow_search_in_every_direction() -> None:
    model = planted()
    excited(model.model, 3)
    pairs = [[(1, 2), (5, 2)], [(1, 2), (5, 6)], [(1, 2)], [(0, 4), (2, 4)]]
    sentences = [
        Sentence(tuple(text.split()), {"r": of}) for text, of in zip(TEXTS, pairs, strict=True)
    ]
    for direction in ("dependent", "governor", "received"):
        study = study_of((0, 1, "syntactic: r"), above=[shows(0, 1, "r", direction)])
        texts = [Text(s.example(), "encoder", s) for s in sentences]
        result = examples_in(model, study, texts)
        for kind in ("typical", "counter"):
            rows = result[result["kind"] == kind]
            shown = [
                [json.loads(row.words), row.query, row.key, row.weight] for row in rows.itertuples()
            ]
            expected = slow(model, sentences, direction)[kind][:EACH]
            assert [one[:3] for one in shown] == [one[:3] for one in expected]
            assert np.allclose([one[3] for one in shown], [one[3] for one in expected], atol=1e-6)


def slow(model: Any, sentences: list[Sentence], direction: str) -> dict[str, list[Any]]:
    """Every pair of every sentence, by loops over the library's own attention; each token is a word here."""
    result: dict[str, list[Any]] = {"typical": [], "counter": []}
    for sentence in sentences:
        inputs = model.tokenizer(" ".join(sentence.words), return_tensors="pt")
        with torch.no_grad():
            weights = eager_copy(model)(**inputs, output_attentions=True).attentions[0][
                0, 1, 1:-1, 1:-1
            ]
        best: dict[str, Any] = {}
        for dependent, governor in sentence.pairs["r"]:
            looks, wanted = (
                (dependent, governor) if direction == "dependent" else (governor, dependent)
            )
            fixed = dependent if direction == "received" else looks
            others = [i for i in range(len(sentence.words)) if i != fixed]
            value = {
                i: float(weights[i, fixed] if direction == "received" else weights[fixed, i])
                for i in others
            }
            top = max(others, key=lambda i: value[i])
            right = governor if direction == "received" else wanted
            rights = (
                {g for d, g in sentence.pairs["r"] if d == fixed}
                if direction != "governor"
                else set()
            )
            rights |= (
                {d for d, g in sentence.pairs["r"] if g == fixed}
                if direction == "governor"
                else {right}
            )
            kind = "typical" if top in rights else "counter"
            position = (top, fixed) if direction == "received" else (fixed, top)
            case = [list(sentence.words), *position, value[top]]
            if kind not in best or case[3] > best[kind][3]:
                best[kind] = case
        for kind, case in best.items():
            result[kind].append(case)
    return {kind: sorted(cases, key=lambda item: -item[3]) for kind, cases in result.items()}


def test_rare_words_are_pointed_at_by_other_words() -> None:
    frequencies = Frequencies(
        {"the": 9.0, "sat": 8.0, "on": 7.0} | {f"w{i}": 6.0 - i / 1000 for i in range(600)}
    )
    texts = [Text(Example(tuple(t.split())), "encoder", frequencies=frequencies) for t in TEXTS]
    result = examples_in(planted(), study_of((0, 1, "rare words")), texts)
    typical = result[result["kind"] == "typical"]
    assert len(typical)
    for row in typical.to_dict("records"):
        words = json.loads(row["words"])
        assert words[row["key"]] in ("cat", "mat", "dog")
        assert words[row["query"]] in ("the", "sat", "on")
        assert row["key"] == row["query"] - 1 or words[row["query"] - 1] in (".", ",")


def test_long_texts_are_cut_around_the_two_words() -> None:
    study = study_of((2, 0, "separators"))
    model = planted()
    result = examples_in(model, study, plain(["the cat sat on the mat . " * 3]))
    kept = stretch(60, [3, 50])
    assert kept == [*range(12), -1, *range(42, 59), -1]
    assert stretch(20, [3, 15]) == list(range(20))
    assert len(result) == 1


# Tokens of two texts: [CLS] a . [SEP] b [SEP]
MARKS = Marks(frozenset({1, 2}), frozenset({1}), frozenset({2}), frozenset({4}))
TOKENS = Tokens(
    torch.ones(1, 6, dtype=torch.bool),
    ids=torch.tensor([[1, 3, 4, 2, 5, 2]]),
    segments=torch.tensor([[0, 0, 0, 0, 1, 1]]),
    marks=MARKS,
)


@pytest.mark.parametrize(
    ("role", "wanted"),
    [
        ("classification token", {1: {0}, 2: {0}, 4: {0}}),
        ("separators", {1: {3, 5}, 2: {3, 5}, 4: {3, 5}}),
        ("special tokens", {1: {0, 3, 5}, 2: {0, 3, 5}, 4: {0, 3, 5}}),
        ("punctuation", {1: {2}, 2: {2}, 4: {2}}),
        ("confident", {1: {1, 2, 4}, 2: {1, 2, 4}, 4: {1, 2, 4}}),
        ("broad", {1: set(range(6)), 2: set(range(6)), 4: set(range(6))}),
        ("previous token", {1: {0}, 2: {1}, 4: {3}}),
        ("next token", {1: {2}, 2: {3}, 4: {5}}),
        ("itself", {1: {1}, 2: {2}, 4: {4}}),
        ("positional +1", {1: {2}}),
        ("positional +2", {2: {4}}),
        ("block", {1: {0, 1, 2, 3}, 2: {0, 1, 2, 3}, 4: {4, 5}}),
    ],
)
def test_where_a_role_of_tokens_wants_the_largest_weight_of_content_rows(
    role: str, wanted: dict[int, set[int]]
) -> None:
    question = question_among_tokens(role, TOKENS, TOKENS)
    assert question is not None
    result = {
        query: set(np.flatnonzero(row).tolist())
        for query, row in enumerate(question.right)
        if row.any()
    }
    assert result == wanted
    assert question.among_content == role.startswith("positional")
    assert question.is_broad == (role == "broad")


def test_roles_of_words_ask_nothing_among_tokens_and_offsets_nothing_across_texts() -> None:
    other = Tokens(torch.ones(1, 6, dtype=torch.bool))
    for role in ("rare words", "coreferential", "syntactic: nsubj", "undetermined"):
        assert question_among_tokens(role, TOKENS, TOKENS) is None
    for role in ("previous token", "positional +1", "block"):
        assert question_among_tokens(role, TOKENS, other) is None


def test_every_file_of_examples_asks_among_words_or_among_tokens() -> None:
    names = [file.name for file in iter_modules(examples.__path__) if not file.name.startswith("_")]
    assert {"relations", "rare_words", "coreference", "offsets"} <= set(names)
    for name in names:
        file = import_module(f"{examples.__name__}.{name}")
        assert hasattr(file, "among_words") != hasattr(file, "among_tokens"), name


def test_nothing_to_ask_gives_an_empty_table() -> None:
    result = examples_in(planted(), study_of((0, 0, "undetermined")), plain(TEXTS[:1]))
    assert list(result.columns) == TABLES["examples"].names
    assert not len(result)


def test_recorders_keep_no_more_than_their_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    study = study_of((0, 1, "previous token"), (0, 1, "rare words"))
    texts = [Text(Example(tuple(text.split())), "encoder") for text in TEXTS]
    every = examples_in(planted(), study, texts)
    monkeypatch.setattr("headscope.analysis.examples._recording.MOST_BYTES", 0)
    assert len(every)
    assert not len(examples_in(planted(), study, texts))


def test_of_a_text_in_windows_the_first_is_recorded() -> None:
    model, text = planted(), "the cat sat on the mat . " * 60
    recorder = TokenRecorder(len(model.sites), [0])
    encoder = Encoder(model, max_length=16, long="window")
    read = batches(encoder, recorder.remember([Example(text)]), batch_size=4)
    assert sum(len(batch) for batch in stream(model, read, [recorder])) > 2
    for maxima in recorder.maxima.values():
        assert set(maxima) == {0}
        assert maxima[0].query.ids is not None
        tokens = model.tokenizer.convert_ids_to_tokens(maxima[0].query.ids[0].tolist())
        assert tokens[1:4] == ["the", "cat", "sat"]
