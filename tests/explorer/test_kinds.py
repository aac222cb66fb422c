"""For every kind of model: what the explorer tells is what the model does, with and without heads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from asking import Asking
from kinds import KINDS
from numpy.typing import NDArray

from headscope import Ablate, Head
from headscope.heads import HeadSet, Site
from headscope.model.attention_model import AttentionModel

AskKind = Callable[[str], Asking]
each_kind = pytest.mark.parametrize("name", KINDS)


def inputs_of(model: AttentionModel, text: str, second: str | None) -> dict[str, torch.Tensor]:
    """What transformers itself would give the model."""
    reads = model.tokenizer
    assert reads is not None
    if not model.is_encoder_decoder:
        return dict(reads(text, second, return_tensors="pt"))
    inputs = dict(reads(text, return_tensors="pt"))
    if second is not None:
        labels = reads(text_target=second, return_tensors="pt")["input_ids"]
        start = torch.tensor([[model.model.config.decoder_start_token_id]])
        inputs["decoder_input_ids"] = torch.cat([start, labels[:, :-1]], dim=1)
    return inputs


@contextmanager
def without(model: AttentionModel, off: str) -> Iterator[None]:
    with torch.inference_mode(), model.edited(*([Ablate(off)] if off else [])):
        yield


def weights_of(
    model: AttentionModel, inputs: dict[str, torch.Tensor], off: str
) -> dict[Site, NDArray[np.float64]]:
    seen = {}

    def keep(attention: Any) -> None:
        seen[attention.site] = attention.weights[0].double().numpy().copy()

    with without(model, off), model.watched(keep):
        model(inputs)
    return seen


def largest_error(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """What docs/reference/explorer.md allows: √(w·m)/255 + m/(4·255²)."""
    largest = weights.max(axis=-1, keepdims=True)
    allowed: NDArray[np.float64] = np.sqrt(weights * largest) / 255 + largest / (4 * 255**2) + 1e-6
    return allowed


@each_kind
def test_about_lists_the_existing_heads(name: str, ask_kind: AskKind) -> None:
    asking = ask_kind(name)
    (record,) = asking.get("/api/about").json["models"]
    assert record["kind"] == KINDS[name].kind
    assert record["id"] == "a"
    listed = [
        Head(stack["name"], layer["layer"], head)
        for stack in record["stacks"]
        for layer in stack["layers"]
        for head in layer["heads"]
    ]
    assert listed == list(asking.model.heads)
    sites = [
        (stack["name"], layer["layer"]) for stack in record["stacks"] for layer in stack["layers"]
    ]
    assert sites == [(site.stack, site.layer) for site in asking.model.sites], (
        "layers without heads are told too"
    )
    assert record["lenses"]["heads"][0] == "raw"
    assert record["max_tokens"] == 32
    assert asking.attend(record["example"]["text"])["id"]


@each_kind
@pytest.mark.parametrize("is_off", [False, True])
def test_maps_are_the_watched_weights(name: str, is_off: bool, ask_kind: AskKind) -> None:
    asking, kind = ask_kind(name), KINDS[name]
    off = kind.off if is_off else ""
    state = asking.attend(kind.text, kind.second, off)
    wanted = weights_of(asking.model, inputs_of(asking.model, kind.text, kind.second), off)
    assert set(state["sides"]) == {site.stack for site in wanted}
    for site, weights in wanted.items():
        maps = asking.maps(f"/api/maps/{state['id']}/{site.stack}/{site.layer}")
        assert maps.places == [
            (head.layer, head.head) for head in asking.model.heads if head.site == site
        ]
        assert not maps.is_signed
        assert (np.abs(maps.values - weights) <= largest_error(weights)).all(), str(site)
        np.testing.assert_allclose(maps.largest, weights.max(axis=-1), atol=1e-6)
        sides = state["sides"][site.stack]
        assert weights.shape[1:] == (len(sides["query"]["tokens"]), len(sides["key"]["tokens"]))


@each_kind
def test_the_summary_is_that_of_the_weights(name: str, ask_kind: AskKind) -> None:
    asking, kind = ask_kind(name), KINDS[name]
    state = asking.attend(kind.text, kind.second, kind.off)
    inputs = inputs_of(asking.model, kind.text, kind.second)
    before, after = (weights_of(asking.model, inputs, off) for off in ("", kind.off))
    off = set(HeadSet(kind.off, among=asking.model.heads))
    record = {Head(item["stack"], item["layer"], item["head"]): item for item in state["summary"]}
    assert len(record) == len(state["summary"])
    assert set(record) == {head for head in asking.model.heads if head.site in after}
    for head, item in record.items():
        position = asking.model.index_of(head)
        now, then = after[head.site][position], before[head.site][position]
        assert item["off"] == (head in off)
        assert item["largest"] == pytest.approx(now.max(), abs=1e-5)
        entropies = [-sum(w * np.log(w) for w in row if w > 0) for row in now]
        assert item["entropy"] == pytest.approx(np.mean(entropies), abs=1e-4)
        moved = [
            sum(abs(item - other) for item, other in zip(*rows, strict=True)) / 2
            for rows in zip(now, then, strict=True)
        ]
        assert item["change"] == pytest.approx(np.mean(moved), abs=2e-5)
    first_layer = [
        item["change"]
        for head, item in record.items()
        if head.layer == 0 and head.stack in ("encoder", "decoder")
    ]
    assert max(first_layer) <= 1e-5, "nothing lies below the first layer"


@each_kind
def test_nothing_off_is_no_change(name: str, ask_kind: AskKind) -> None:
    kind = KINDS[name]
    state = ask_kind(name).attend(kind.text, kind.second)
    assert {one["change"] for one in state["summary"]} == {0.0}
    assert not any(one["off"] for one in state["summary"])
    assert not any(value is not None for value in afters(state["prediction"]))


def afters(record: Any) -> list[Any]:
    """Everything that is called `after`, however deep."""
    if isinstance(record, list):
        return [value for one in record for value in afters(one)]
    if not isinstance(record, dict):
        return []
    return [
        one
        for name, value in record.items()
        for one in ([value] if name == "after" else afters(value))
    ]


@each_kind
def test_a_difference_is_the_second_minus_the_first(name: str, ask_kind: AskKind) -> None:
    asking, kind = ask_kind(name), KINDS[name]
    first, other = (asking.attend(kind.text, kind.second, off)["id"] for off in ("", kind.off))
    inputs = inputs_of(asking.model, kind.text, kind.second)
    before, after = (weights_of(asking.model, inputs, off) for off in ("", kind.off))
    for site, weights in after.items():
        maps = asking.maps(f"/api/difference/{first}/{other}/{site.stack}/{site.layer}")
        wanted = weights - before[site]
        assert maps.is_signed
        bound = np.abs(wanted).max(axis=-1, keepdims=True) / 127 + 1e-6
        assert (np.abs(maps.values - wanted) <= bound).all(), str(site)


@each_kind
def test_thumbnails_are_every_head_of_a_stack(name: str, ask_kind: AskKind) -> None:
    asking, kind = ask_kind(name), KINDS[name]
    state = asking.attend(kind.text, kind.second)
    wanted = weights_of(asking.model, inputs_of(asking.model, kind.text, kind.second), "")
    for stack in state["sides"]:
        maps = asking.maps(f"/api/thumbnails/{state['id']}/{stack}")
        whole = np.concatenate(
            [weights for site, weights in sorted(wanted.items()) if site.stack == stack]
        )
        assert maps.places == [
            (head.layer, head.head)
            for head in asking.model.heads
            if head.stack == stack and head.site in wanted
        ]
        assert (np.abs(maps.values - whole) <= largest_error(whole)).all(), (
            "a short text is shown whole"
        )


# Predictions, each computed from the model's own output


def rows(lines: list[dict[str, Any]], column: str) -> dict[str, float]:
    assert len({row["name"] for row in lines}) == len(lines)
    return {row["name"]: row[column] for row in lines}


def both(name: str, ask_kind: AskKind) -> tuple[Any, list[Any]]:
    """The prediction as told, and the model's own output with nothing and with the heads off."""
    asking, kind = ask_kind(name), KINDS[name]
    record = asking.attend(kind.text, kind.second, kind.off)["prediction"]
    assert record["kind"] == kind.kind
    outputs = []
    for off in ("", kind.off):
        with without(asking.model, off):
            outputs.append(asking.model.model(**inputs_of(asking.model, kind.text, kind.second)))
    return record, outputs


@pytest.mark.parametrize(
    ("name", "what"),
    [("classifier", "one"), ("cut", "one"), ("several classes", "several"), ("a number", "number")],
)
def test_class_probabilities(name: str, what: str, ask_kind: AskKind) -> None:
    record, outputs = both(name, ask_kind)
    assert record["what"] == what
    for column, output in zip(("before", "after"), outputs, strict=True):
        logits = output.logits[0].double().numpy()
        powers = np.exp(logits)
        wanted = {"one": powers / powers.sum(), "several": powers / (1 + powers), "number": logits}[
            what
        ]
        assert list(rows(record["rows"], column)) == [f"LABEL_{i}" for i in range(len(logits))]
        np.testing.assert_allclose(list(rows(record["rows"], column).values()), wanted, atol=1e-5)


def best(logits: torch.Tensor, model: AttentionModel) -> dict[str, float]:
    chances = np.exp(logits.double().numpy())
    chances /= chances.sum()
    assert model.tokenizer is not None
    return {
        model.tokenizer.convert_ids_to_tokens(int(i)): float(chances[i])
        for i in np.argsort(-chances)
    }


def check_candidates(
    lines: list[dict[str, Any]], logits: list[torch.Tensor], model: AttentionModel
) -> None:
    before, after = (best(one, model) for one in logits)
    five = list(after)[:5]
    assert [row["name"] for row in lines] == five + [
        name for name in list(before)[:5] if name not in five
    ]
    for row in lines:
        assert row["before"] == pytest.approx(before[row["name"]], abs=1e-5)
        assert row["after"] == pytest.approx(after[row["name"]], abs=1e-5)


@pytest.mark.parametrize("name", ["masked", "albert"])
def test_candidates_for_every_mask(name: str, ask_kind: AskKind) -> None:
    record, outputs = both(name, ask_kind)
    assert [mask["token"] for mask in record["masks"]] == [2, 7], "[CLS] the [MASK] …"
    for mask in record["masks"]:
        check_candidates(
            mask["rows"],
            [output.logits[0, mask["token"]] for output in outputs],
            ask_kind(name).model,
        )
    assert ask_kind(name).attend("the cat")["prediction"]["masks"] == []


def test_candidates_for_the_next_token(ask_kind: AskKind) -> None:
    record, outputs = both("causal", ask_kind)
    check_candidates(
        record["rows"], [output.logits[0, -1] for output in outputs], ask_kind("causal").model
    )


def test_the_log_probability_of_a_target(ask_kind: AskKind) -> None:
    asking, kind = ask_kind("translation"), KINDS["translation"]
    record = asking.attend(kind.text, kind.second, kind.off)["prediction"]
    reads = asking.model.tokenizer
    assert reads is not None
    labels = reads(text_target=kind.second)["input_ids"]
    assert [row["name"] for row in record["rows"]] == ["a", "dog", "ran", ".", "[SEP]"]
    for column, off in (("before", ""), ("after", kind.off)):
        with without(asking.model, off):
            logits = (
                asking.model.model(**inputs_of(asking.model, kind.text, kind.second))
                .logits[0]
                .double()
                .numpy()
            )
        each = [
            row[token] - np.log(np.exp(row).sum())
            for row, token in zip(logits, labels, strict=True)
        ]
        np.testing.assert_allclose([row[column] for row in record["rows"]], each, atol=1e-4)
        assert record[column] == pytest.approx(sum(each), abs=1e-3)
    alone = asking.attend(kind.text)["prediction"]
    assert alone == {"kind": "translation", "before": None, "after": None, "rows": []}


def mean_state(model: AttentionModel, text: str, off: str) -> NDArray[np.float64]:
    with without(model, off):
        states = model.model.base_model(**inputs_of(model, text, None))[0][0].double().numpy()
    mean = states.mean(axis=0)
    vector: NDArray[np.float64] = mean / np.sqrt((mean**2).sum())
    return vector


@pytest.mark.parametrize("name", ["pair", "below its head"])
def test_two_texts_are_compared_each_by_itself(name: str, ask_kind: AskKind) -> None:
    asking, kind = ask_kind(name), KINDS[name]
    record = asking.attend(kind.text, kind.second, kind.off)["prediction"]
    assert record["of"] == "pair"
    for column, off in (("before", ""), ("after", kind.off)):
        vectors = [mean_state(asking.model, text, off) for text in (kind.text, kind.second or "")]
        assert record[column] == pytest.approx(vectors[0] @ vectors[1], abs=1e-5)


def test_one_text_is_compared_with_itself(ask_kind: AskKind) -> None:
    asking, kind = ask_kind("encoder"), KINDS["encoder"]
    record = asking.attend(kind.text, None, kind.off)["prediction"]
    vectors = [mean_state(asking.model, kind.text, off) for off in ("", kind.off)]
    assert record == {
        "kind": "encoder",
        "of": "itself",
        "before": 1.0,
        "after": pytest.approx(vectors[0] @ vectors[1], abs=1e-5),
    }
    assert record["after"] < 0.999, "the heads do something"


@pytest.mark.parametrize("off", ["", "cross.*.*"])
def test_a_translation_is_the_models_own(off: str, ask_kind: AskKind) -> None:
    asking, kind = ask_kind("translation"), KINDS["translation"]
    record = asking.post("/api/translate", {"model": "a", "text": kind.text, "off": off}).json
    reads = asking.model.tokenizer
    assert reads is not None
    for column, heads in (("before", ""), ("after", off)):
        with without(asking.model, heads):
            output = asking.model.model.generate(
                **reads(kind.text, return_tensors="pt"), num_beams=4, max_new_tokens=128
            )
        if column == "before" or off:
            assert record[column] == reads.decode(output[0, 1:], skip_special_tokens=True)
    assert off or record["after"] is None


def test_a_model_that_does_not_translate_says_so(ask: Asking) -> None:
    answer = ask.post("/api/translate", {"model": "a", "text": "the cat"})
    assert answer.status == 422
    assert "does not translate" in answer.error


@each_kind
def test_the_model_is_as_it_was_afterwards(name: str, ask_kind: AskKind) -> None:
    asking, kind = ask_kind(name), KINDS[name]
    inputs = inputs_of(asking.model, kind.text, kind.second)
    fresh = kind.make()
    with torch.inference_mode():
        wanted = fresh(inputs)[0]
        asking.attend(kind.text, kind.second, kind.off)
        assert not asking.model.is_open
        assert torch.equal(asking.model(inputs)[0], wanted)
