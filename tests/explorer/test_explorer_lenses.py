"""Lenses in the explorer: their maps are those of `look`, with and without heads."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from asking import Asking
from kinds import KINDS

from headscope import Ablate
from headscope.analysis.lens_maps import LENSES
from headscope.api.look import look
from headscope.errors import HeadscopeError

OTHERS = [name for name in LENSES if name != "raw"]
AskKind = Callable[[str], Asking]


@pytest.mark.product
@pytest.mark.parametrize("name", ["classifier", "translation", "cut"])
@pytest.mark.parametrize("lens", OTHERS)
@pytest.mark.parametrize("is_off", [False, True])
def test_maps_are_those_of_look(name: str, lens: str, is_off: bool, ask_kind: AskKind) -> None:
    asking, kind = ask_kind(name), KINDS[name]
    off = kind.off if is_off else ""
    with asking.model.edited(*([Ablate(off)] if off else [])):
        (wanted,) = look(asking.model, kind.text, kind.second, lens=lens).lenses
    state = asking.attend(kind.text, kind.second, off, lens=lens)
    record = state["lens"]
    assert (record["name"], record["how"], record["shares"]) == (lens, wanted.how, wanted.shares)
    assert record["forms"] == (None if wanted.forms is None else list(wanted.forms))
    assert set(state["sides"]) == {item.stack for item in wanted.stacks}
    sizes = []
    for item in wanted.stacks:
        thumbnails = asking.maps(f"/api/thumbnails/{state['id']}/{item.stack}")
        assert len(thumbnails.places) == int((~np.isnan(item.weights).all(axis=(2, 3))).sum())
        for layer, heads in enumerate(item.weights):
            if np.isnan(heads).all():
                continue  # a layer without heads has no maps
            maps = asking.maps(f"/api/maps/{state['id']}/{item.stack}/{layer}")
            assert maps.is_signed == record["signed"]
            for (_, head), values in zip(maps.places, maps.values, strict=True):
                largest = np.abs(heads[head]).max(axis=-1, keepdims=True)
                assert (np.abs(values - heads[head]) <= 0.009 * largest + 1e-6).all(), (
                    item.stack,
                    layer,
                    head,
                )
                sizes.append(float(largest.max()))
    assert record["full"] == (1 if wanted.shares else pytest.approx(max(sizes), rel=1e-4))


@pytest.mark.parametrize("lens", ["norm", "rollout"])
def test_heads_that_are_off_change_the_maps_of_others(lens: str, ask_kind: AskKind) -> None:
    asking, kind = ask_kind("classifier"), KINDS["classifier"]
    intact, cut = (asking.attend(kind.text, kind.second, off, lens=lens) for off in ("", kind.off))
    assert {one["change"] for one in intact["summary"]} == {0}
    assert max(one["change"] for one in cut["summary"]) > 1e-4
    assert all(0 <= one["change"] <= 1 for one in cut["summary"])
    is_of_heads = cut["lens"]["forms"] is None
    assert any(one["off"] for one in cut["summary"]) == is_of_heads, (
        "maps over all heads cannot be switched off"
    )
    assert all((one["entropy"] is not None) == is_of_heads for one in cut["summary"])


def test_an_unknown_lens_is_refused_with_the_choices(ask: Asking) -> None:
    answer = ask.post("/api/attend", {"model": "a", "text": "the cat", "lens": "rollin"})
    assert answer.status == 422
    assert '"rollin" is not a lens' in answer.error
    assert "rollout" in answer.error


def test_a_pass_for_every_token_has_its_limit(ask: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headscope.explorer.session.LONGEST_PER_TOKEN", 4)
    answer = ask.post(
        "/api/attend",
        {"model": "a", "text": "the old cat sat on the mat .", "lens": "value-zeroing"},
    )
    assert answer.status == 422
    assert "at most 4 tokens, since" in answer.error
    assert (
        ask.post("/api/attend", {"model": "a", "text": "the cat", "lens": "value-zeroing"}).status
        == 200
    )


def test_what_a_lens_cannot_do_leaves_the_explorer_alive(
    ask_kind: AskKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(argument: object, name: str) -> None:
        raise HeadscopeError(
            "its layers are not covered", expected="a family of docs/explanation/relevance.md"
        )

    asking = ask_kind("classifier")
    monkeypatch.setattr("headscope.explorer.session.compute_lens_maps", refuse)
    answer = asking.post("/api/attend", {"model": "a", "text": "the mat", "lens": "relevance"})
    assert answer.status == 422
    assert "not covered" in answer.error
    assert asking.attend("the mat")["lens"]["name"] == "raw"
