"""What is kept of states, and what is sent of maps."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from asking import Asking
from tokenizers import Tokenizer
from transformers import BertForMaskedLM, BertForSequenceClassification, PreTrainedTokenizerFast

from headscope.explorer.predictions import EncodedInput
from headscope.explorer.serving import Explorer
from headscope.explorer.session import State, StateKey, States
from headscope.explorer.state_maps import thumbnails
from headscope.heads import Site
from headscope.report.look.encoding import encode_maps
from reference.maps import Maps
from worded import PLAIN, WORDS, worded

HOSTILE = "</script><img src=x onerror=alert(1)>"


def state(name: str, cells: int = 10) -> State:
    weights = {Site("encoder", 0): np.zeros((1, 1, cells), np.float32)}
    reading: Any = EncodedInput("", None, None)  # type: ignore[arg-type]
    return State(name, reading, {}, weights, {}, torch.zeros(0))


def test_the_states_used_last_are_kept() -> None:
    states = States(most=2)
    for name in "ab":
        states.keep(state(name))
    assert states.find("a") is not None  # and used: b is the older one now
    states.keep(state("c"))
    assert [states.find(name) is not None for name in "abc"] == [True, False, True]


def test_states_are_kept_by_their_size_and_the_newest_always() -> None:
    states = States(most_bytes=100)
    states.keep(state("a", 10))
    states.keep(state("b", 10))
    assert states.find("a") is not None
    states.keep(state("c", 10))
    assert states.find("b") is None
    states.keep(state("large", 1000))
    assert [states.find(name) is not None for name in ("a", "c", "large")] == [False, False, True]


def test_a_state_has_one_name_in_one_run_only() -> None:
    state_key = StateKey("a", "the cat", None, "0.1", "raw")
    first, other = States(), States()
    assert first.name_of(state_key) == first.name_of(replace(state_key))
    assert first.name_of(state_key) != other.name_of(state_key), (
        "a browser must not take another model's maps for these"
    )
    changes = {"model": "b", "text": "the dog", "second": "", "off": "", "lens": "norm"}
    names = {first.name_of(replace(state_key, **{key: value})) for key, value in changes.items()}
    assert len(names | {first.name_of(state_key)}) == 6


def test_ways_to_write_the_same_heads_are_one_state(ask: Asking) -> None:
    lines = [
        ask.attend("the cat", None, off) for off in ("0.0-3,1.2", "1.2,0.*", " 1.2 , encoder.0.0-3")
    ]
    assert {one["id"] for one in lines} == {lines[0]["id"]}
    assert {one["off"] for one in lines} == {"0.*,1.2"}
    assert ask.attend("the cat", None, " ")["id"] == ask.attend("the cat")["id"] != lines[0]["id"]


def test_a_forgotten_state_is_404_and_comes_back(ask: Asking) -> None:
    kept = ask.attend("the cat")["id"]
    for word in PLAIN:
        ask.attend(f"{word} house")
    answer = ask.get(f"/api/maps/{kept}/encoder/0")
    assert (answer.status, answer.error) == (
        404,
        "this state is no longer in memory. Ask /api/attend again.",
    )
    assert ask.attend("the cat")["id"] == kept
    assert ask.get(f"/api/maps/{kept}/encoder/0").status == 200


def test_what_heads_are_compared_with_is_kept_while_they_are_switched(ask: Asking) -> None:
    intact = ask.attend("the dog")["id"]
    for number in range(20):
        ask.attend("the dog", None, f"0.{number % 4},1.{number // 4 % 4}")
    assert ask.get(f"/api/thumbnails/{intact}/encoder").status == 200


def test_maps_have_a_tag_that_saves_sending_them_again(ask: Asking) -> None:
    path = f"/api/maps/{ask.attend('the cat')['id']}/encoder/0"
    first = ask.get(path)
    assert first.headers["cache-control"] == "private, no-cache"
    tag = first.headers["etag"]
    assert (ask.get(path, **{"If-None-Match": f'"x", {tag}'}).status, len(first.body) > 0) == (
        304,
        True,
    )
    assert ask.get(path, **{"If-None-Match": '"x"'}).status == 200
    other = f"/api/maps/{ask.attend('the dog')['id']}/encoder/0"
    assert ask.get(other).headers["etag"] != tag


# Bytes


@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 1, 3), (3, 50, 40), (2, 48, 48), (1, 49, 512)])
def test_a_thumbnail_is_the_largest_weight_of_each_block(shape: tuple[int, int, int]) -> None:
    weights = (
        np.random.default_rng(0)
        .dirichlet(np.full(shape[2], 0.2), size=shape[:2])
        .astype(np.float32)
    )
    small = thumbnails(weights)
    rows, columns = (min(size, 48) for size in shape[1:])
    assert small.shape == (shape[0], rows, columns)
    for m, i, j in np.ndindex(small.shape):
        block = [
            weights[m, row, column]
            for row in range(i * shape[1] // rows, (i + 1) * shape[1] // rows)
            for column in range(j * shape[2] // columns, (j + 1) * shape[2] // columns)
        ]
        assert small[m, i, j] == max(block)


def test_a_row_of_nothing_is_nothing() -> None:
    weights = np.zeros((1, 2, 3), np.float32)
    weights[0, 1] = [0.25, 0.5, 0.25]
    maps = Maps.of(encode_maps([(3, 2)], weights))
    assert maps.places == [(3, 2)]
    np.testing.assert_allclose(maps.values, weights, atol=0.004)
    signed = Maps.of(encode_maps([(3, 2)], np.zeros((1, 2, 2), np.float32), signed=True))
    assert not signed.values.any()


def test_a_difference_keeps_its_signs() -> None:
    difference = np.array([[[0.5, -0.25, 0.0], [-1.0, 0.01, 0.99]]], np.float32)
    maps = Maps.of(encode_maps([(0, 0)], difference, signed=True))
    np.testing.assert_allclose(maps.values, difference, atol=0.008)
    assert (np.sign(maps.values) == np.sign(difference)).all()


# Whatever a text holds comes out as data


@pytest.mark.parametrize(
    "text",
    [
        HOSTILE,
        "{{7*7}}",
        "\u202eabc",
        "a\u2028b",
        "${alert(1)}",
        "<!--",
        "\\u003cscript>",
        "cat\x00cat",
    ],
)
def test_hostile_texts_come_out_as_data(text: str, ask: Asking) -> None:
    answer = ask.post("/api/attend", {"model": "a", "text": f"{text} cat"})
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    for sign in b"<>&":
        assert sign not in answer.body, "no sign of markup is sent as itself"
    assert answer.body.isascii()
    assert "\u202e" not in str(answer.json)


def test_hostile_names_of_tokens_classes_and_models_come_out_as_data(
    start: Callable[..., Explorer],
) -> None:
    """A vocabulary and a configuration may hold anything."""
    guesses = worded(BertForMaskedLM)
    assert guesses.tokenizer is not None
    written = guesses.tokenizer.backend_tokenizer.to_str().replace('"cat"', json.dumps(HOSTILE))
    guesses.tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(written),
        unk_token="[UNK]",
        mask_token="[MASK]",
        model_max_length=32,
    )
    with torch.no_grad():
        guesses.model.cls.predictions.bias[WORDS.index("cat")] = 100.0
    classes = worded(BertForSequenceClassification, id2label={0: HOSTILE, 1: "{{7*7}}"})
    classes.name = HOSTILE
    asking = Asking(start(guesses, compare=classes), guesses)
    about = asking.get("/api/about")
    assert about.json["models"][1]["name"] == HOSTILE
    outputs = [asking.post("/api/attend", {"model": name, "text": "the [MASK]"}) for name in "ab"]
    assert outputs[0].json["prediction"]["masks"][0]["rows"][0]["name"] == HOSTILE
    assert [row["name"] for row in outputs[1].json["prediction"]["rows"]] == [HOSTILE, "{{7*7}}"]
    for answer in (about, *outputs):
        assert b"<" not in answer.body
