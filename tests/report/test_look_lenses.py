"""The look page through several lenses: it switches in place, and its numbers stay those of numpy."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from numpy.typing import NDArray
from playwright.sync_api import Page, expect
from test_look import data_in, plain_side, softmax_maps

from headscope.report.look.lens_view import LensView, StackMaps
from headscope.report.look.view import Look

if TYPE_CHECKING:
    from conftest import Watched

TOKENS = 8
SIDE = plain_side(TOKENS)


def signed_maps(*shape: int) -> NDArray[np.float32]:
    values = np.random.default_rng(3).normal(size=shape) * 1e-3
    values[1, 2, 4, 5] = -0.02
    return values.astype(np.float32)


@pytest.fixture(scope="module")
def look() -> Look:
    encoder = StackMaps("encoder", SIDE, SIDE, softmax_maps(3, 4, TOKENS, TOKENS, seed=1))
    other = StackMaps("decoder", SIDE, SIDE, softmax_maps(2, 2, TOKENS, TOKENS, seed=2))
    rolled = StackMaps(
        "encoder", SIDE, SIDE, softmax_maps(3, 1, TOKENS, TOKENS, seed=4) * np.float32(0.5)
    )
    signed = StackMaps("encoder", SIDE, SIDE, signed_maps(3, 4, TOKENS, TOKENS))
    lenses = (
        LensView("raw", (encoder, other)),
        LensView("rollout", (rolled,), "Shares, multiplied.", forms=("all heads",)),
        LensView("gradient", (signed,), "Signed.", shares=False),
    )
    return Look("toy", ("a text",), lenses)


@pytest.fixture(scope="module")
def file(look: Look, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return look.save(tmp_path_factory.mktemp("look") / "look.html")


def opened(page: Page, *words: str) -> Page:
    expect(page.locator("html")).to_have_attribute(
        "data-head", re.compile(".*".join(map(re.escape, words)))
    )
    return page


def saved_numbers(page: Page, folder: Path) -> tuple[str, NDArray[np.float64]]:
    with page.expect_download() as download:
        page.click("#csv")
    goal = folder / download.value.suggested_filename
    download.value.save_as(goal)
    with goal.open(encoding="utf-8", newline="") as lines:
        rows = [float(row["weight"]) for row in csv.DictReader(lines)]
    return goal.name, np.array(rows).reshape(TOKENS, TOKENS)


def test_the_page_lists_its_lenses_by_kind_and_begins_with_the_first(look: Look) -> None:
    data = data_in(look.page())
    assert data["model"]["lenses"] == {"heads": ["raw", "gradient"], "tokens": ["rollout"]}
    assert data["model"]["example"] == {"text": "a text", "second": None, "lens": "raw"}
    other = data_in(Look("toy", ("a text", "another"), look.lenses[1:]).page())
    assert other["model"]["example"] == {"text": "a text", "second": "another", "lens": "rollout"}


def test_numbers_that_are_no_shares_are_refused_where_shares_are_declared() -> None:
    with pytest.raises(
        Exception, match=r"head encoder\.0\.0: attention weights must be from 0 to 1"
    ):
        LensView(
            "raw", (StackMaps("encoder", SIDE, SIDE, signed_maps(3, 4, TOKENS, TOKENS)),)
        ).payload()
    broken = signed_maps(3, 4, TOKENS, TOKENS)
    broken[2, 1, 0, 0] = np.inf
    with pytest.raises(
        Exception, match=r"head encoder\.2\.1: numbers of the lens gradient must be finite"
    ):
        LensView("gradient", (StackMaps("encoder", SIDE, SIDE, broken),), shares=False).payload()


@pytest.mark.browser
def test_the_lens_changes_in_place_and_the_address_keeps_it(watched: Watched, file: Path) -> None:
    page = watched.open(file, "#heads=encoder.2.3")
    opened(page, "encoder.2.3")
    page.select_option("#lens", "rollout")
    opened(page, "rollout: encoder layer 2")
    expect(page.locator("#how")).to_have_text("Shares, multiplied.")
    assert "lens=rollout" in page.url
    assert page.locator('input[name="stack"][value="decoder"]').is_disabled()
    expect(page.locator("#asked")).to_have_text(re.compile("receives from"))
    expect(page.locator("#remark")).to_have_text("Row sum: 0.50.")
    page.select_option("#lens", "gradient")  # the head that was open before
    opened(page, "encoder.2.3", "gradient", "−0.020 to 0.020".replace(" ", "\u00a0"))
    address = page.url
    watched.open(file, "#" + address.split("#")[1])
    opened(page, "encoder.2.3", "gradient")
    page.select_option("#lens", "raw")
    opened(page, "raw", "encoder.2.3")
    assert "lens" not in page.url
    expect(page.locator("#how")).to_contain_text("Bars: sums of the rows")


@pytest.mark.browser
def test_a_place_that_a_lens_does_not_have_is_left(watched: Watched, file: Path) -> None:
    page = watched.open(file, "#lens=rollout&heads=encoder.7.0")
    expect(page.locator(".thumb")).to_have_count(3)
    expect(page.locator("#head")).to_be_hidden()
    page = opened(watched.open(file, "#heads=decoder.1.0"), "decoder.1.0")
    before = page.evaluate("history.length")
    page.select_option("#lens", "gradient")  # of the encoder alone
    expect(page.locator('input[name="stack"][value="encoder"]')).to_be_checked()
    expect(page.locator(".thumb")).to_have_count(3 * (4 + 1))
    assert page.evaluate("history.length") == before  # the way back does not lead here again
    page = opened(watched.open(file, "#lens=rollout&heads=encoder.1.0"), "rollout: encoder layer 1")
    page.select_option("#lens", "raw")  # no head was open before: the layer's first
    opened(page, "encoder.1.0")


@pytest.mark.browser
def test_a_page_of_token_maps_alone(watched: Watched, look: Look, tmp_path: Path) -> None:
    page = watched.open(Look("toy", ("a text",), look.lenses[1:2]).save(tmp_path / "look.html"))
    expect(page.locator(".thumb")).to_have_count(3)
    expect(page.locator("#lens")).to_be_hidden()
    page.locator(".thumb").nth(2).click()
    opened(page, "rollout: layer 2")
    _, shown = saved_numbers(page, tmp_path)
    np.testing.assert_allclose(shown, look.lenses[1].stacks[0].weights[2, 0], atol=0.005)


@pytest.mark.browser
def test_the_lens_is_chosen_by_keyboard_and_the_overview_follows(
    watched: Watched, file: Path
) -> None:
    page = watched.open(file)
    page.wait_for_selector("html[data-drawn]", state="attached")
    assert page.locator(".thumb").count() == 3 * (4 + 1)
    page.focus("#lens")
    for _ in ("gradient", "rollout"):
        page.keyboard.press("ArrowDown")
    expect(page.locator(".thumb")).to_have_count(3)
    expect(page.locator("html")).to_have_attribute("data-drawn", "rollout")
    page.locator(".thumb").first.focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowLeft", "ArrowDown", "Enter"):
        page.keyboard.press(key)
    opened(page, "rollout: encoder layer 1")
    page.keyboard.press("Escape")
    expect(page.locator("#head")).to_be_hidden()


@pytest.mark.browser
def test_signed_numbers_are_numpy_s_and_both_signs_have_their_colour(
    watched: Watched, file: Path, look: Look, tmp_path: Path
) -> None:
    page = opened(watched.open(file, "#lens=gradient&heads=encoder.1.2"), "encoder.1.2")
    name, shown = saved_numbers(page, tmp_path)
    assert name == "encoder.1.2-map-tokens-gradient.csv"
    true = look.lenses[2].stacks[0].weights[1, 2].astype(np.float64)
    top = np.abs(true).max(axis=1, keepdims=True)
    stated = np.sqrt(np.abs(true) * top) / 127 + top / (4 * 127**2)
    assert (np.abs(shown - true) <= stated + 0.006 * np.abs(true)).all()
    assert shown.min() == pytest.approx(-0.02, rel=0.01)
    assert page.locator('input[name="renormalise"]').is_disabled()
    assert page.locator("#legend span").all_inner_texts() == ["−0.020", "", "0", "", "+0.020"]
    pixels = (
        page.get_by_label("encoder.1.2", exact=True)
        .locator("canvas")
        .evaluate("one => [...one.getContext('2d').getImageData(0, 0, one.width, one.height).data]")
    )
    red, _, blue, _ = np.array(pixels).reshape(TOKENS, TOKENS, 4).transpose(2, 0, 1).astype(int)
    clear = np.abs(true) > 1e-3
    assert ((red > blue) == (true < 0))[clear].all()


@pytest.mark.browser
def test_a_row_of_a_signed_map_says_what_it_sums_to(
    watched: Watched, file: Path, look: Look
) -> None:
    page = opened(watched.open(file, "#lens=gradient&heads=encoder.1.2&token=4"), "encoder.1.2")
    row = look.lenses[2].stacks[0].weights[1, 2, 4]
    message = page.inner_text("#remark")
    match = float(re.search(r"Row sum: (−?\d\.\d+)", message)[1].replace("−", "-"))  # type: ignore[index]
    assert match == pytest.approx(row.sum(), rel=0.05)
    first = page.locator("#ranking tr").first
    assert first.locator("td").last.inner_text() == "−0.020"
    assert first.locator("i").get_attribute("class") == "less"
    page.locator('input[name="special"]').check(force=True)
    opened(page, "special tokens hidden")
    assert "Hidden: " in page.inner_text("#remark")
