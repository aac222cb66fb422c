"""The explorer in a real browser: what it shows is what transformers says, and nothing it is given can steer it."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode
from xml.etree import ElementTree

import numpy as np
import pytest
from hostile import BIDI, HEADS, LAYERS, MARKUP, TEMPLATE, classifier, expected_outputs
from kinds import KINDS
from pages import TEXT, Opened, as_written, drawn, head_of, numbers_in, saved, shares, shows
from playwright.sync_api import Browser, expect
from transformers import BertModel

import headscope
from browsers import Watched, serious
from headscope.explorer.serving import Explorer, serve
from headscope.model.attention_model import AttentionModel
from sampling import slow
from worded import translator, worded

pytestmark = pytest.mark.browser

HOSTILE = f"the {MARKUP} cat {BIDI} sat {TEMPLATE} on =2+3 עולם <!-- &amp; ."
ROUNDING = 0.0045  # of a stored weight, and the three digits of a table


@pytest.fixture(scope="module")
def model() -> AttentionModel:
    return classifier(f"tiny {MARKUP}")


@pytest.fixture(scope="module")
def other() -> AttentionModel:
    return classifier("other", seed=5)


@pytest.fixture(scope="module")
def explorer(
    model: AttentionModel, other: AttentionModel, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Explorer]:
    corpus = tmp_path_factory.mktemp("corpus") / "corpus.txt"
    corpus.write_text("".join(f"{TEXT} {'dog ran . ' * n}\n" for n in range(8)), encoding="utf-8")
    study = headscope.analyze(model, corpus=[corpus])
    with serve(model, study=study, compare=other, port=0, browser=False, wait=False) as running:
        yield running


def test_typing_shows_every_head_and_a_click_its_numbers(
    opened: Opened, model: AttentionModel, tmp_path: Path
) -> None:
    page = opened(text="dog")
    page.fill("#text", TEXT)
    expect(page.locator("#status")).to_contain_text("10 tokens")
    drawn(page)
    names = page.locator(".frame:visible .thumb").evaluate_all(
        "all => all.map(one => one.getAttribute('aria-label'))"
    )
    every = [
        [f"{layer}.{head}" for head in range(HEADS)] + [f"mean of layer {layer}"]
        for layer in range(LAYERS)
    ]
    assert names == [name for row in every for name in row]
    weights, probabilities = expected_outputs(model, TEXT)
    assert shares(page) == as_written(probabilities)
    page.click(head_of("1.2"))
    shows(page, "1.2")
    np.testing.assert_allclose(
        numbers_in(saved(page, "#csv", tmp_path)), weights[1, 2], atol=ROUNDING
    )
    page.click(head_of("mean of layer 1"))
    shows(page, "1.mean")
    np.testing.assert_allclose(
        numbers_in(saved(page, "#csv", tmp_path)), weights[1].mean(axis=0), atol=ROUNDING
    )


def test_thumbnails_are_the_maps(opened: Opened, model: AttentionModel) -> None:
    """The darkest cell of each row is the largest weight of that row."""
    page = opened(range="head")
    weights, _ = expected_outputs(model, TEXT)
    for layer, head in ((0, 1), (2, 3)):
        read = "one => [one.width, ...one.getContext('2d').getImageData(0, 0, one.width, one.height).data]"
        width, *pixels = (
            page.locator(head_of(f"{layer}.{head}")).first.locator("canvas").evaluate(read)
        )
        red = np.array(pixels).reshape(-1, width, 4)[..., 0]
        largest = weights[layer, head].argmax(axis=1)
        rows = np.arange(width)
        assert (red[rows, largest] == red.min(axis=1)).all()


def test_another_lens_in_place(opened: Opened, model: AttentionModel, tmp_path: Path) -> None:
    page = opened(heads="1.2", scale="linear")
    (norm,) = headscope.look(model, TEXT, lens="norm").lenses
    page.select_option("#lens", "norm")
    shows(page, "1.2", "norm")
    expect(page.locator("#how")).to_contain_text("Kobayashi")
    expect(page.locator("#colours option:checked")).to_have_text("0 to largest, linear")
    wanted = norm.stacks[0].weights
    np.testing.assert_allclose(
        numbers_in(saved(page, "#csv", tmp_path)), wanted[1, 2], atol=0.01 * wanted.max()
    )
    page.select_option("#lens", "gradient")
    shows(page, "1.2", "gradient", "−")
    page.reload()
    drawn(page)
    assert page.input_value("#lens") == "gradient"
    expect(page.locator("#asked")).to_contain_text("receives from")


def test_maps_of_tokens_over_all_heads(
    opened: Opened, model: AttentionModel, tmp_path: Path
) -> None:
    page = opened(off="1.2")
    page.select_option("#lens", "rollout")
    expect(page.locator(".frame:visible .thumb")).to_have_count(LAYERS)
    expect(page.locator(".frame:visible .cell .switch")).to_have_count(0)
    page.click(head_of("rollout: layer 1"))
    shows(page, "rollout: layer 1")
    with model.edited(headscope.Ablate("1.2")):
        (rollout,) = headscope.look(model, TEXT, lens="rollout").lenses
    result = numbers_in(saved(page, "#csv", tmp_path))
    np.testing.assert_allclose(result, rollout.stacks[0].weights[1, 0], atol=ROUNDING)
    assert page.locator("#power").is_hidden()
    page.keyboard.press("o")
    expect(page.locator("#off")).to_contain_text(
        "1.2"
    )  # no head was switched by a map that is of none
    page.go_back()
    page.select_option("#lens", "knock-out")
    expect(page.locator(".frame:visible .thumb")).to_have_count(2 * LAYERS)
    page.select_option("#lens", "raw")
    expect(page.locator(".frame:visible .cell .switch")).to_have_count(LAYERS * HEADS)


def test_another_kind_of_lens_keeps_the_place(opened: Opened) -> None:
    page = opened(heads="1.2")
    shows(page, "1.2")
    page.select_option("#lens", "rollout")
    shows(page, "rollout: layer 1")
    expect(page.locator("#to")).to_have_text("Receives from")
    page.select_option("#lens", "norm")
    shows(page, "1.2", "norm")
    page = opened(heads="7.0", lens="rollout")
    expect(page.locator("#head")).to_be_hidden()


def test_hidden_and_renormalised(opened: Opened, model: AttentionModel, tmp_path: Path) -> None:
    page = opened(heads="2.1", hide="special,punctuation,itself,renormalise")
    shows(page, "special tokens, punctuation, diagonal hidden, renormalised")
    weights = expected_outputs(model, TEXT)[0][2, 1][
        1:8, 1:8
    ].copy()  # without [CLS], the full stop and [SEP]
    np.fill_diagonal(weights, 0)
    expected = weights / weights.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(
        numbers_in(saved(page, "#csv", tmp_path)), expected, atol=4 * ROUNDING
    )


def test_the_value_under_the_pointer(opened: Opened, model: AttentionModel) -> None:
    page = opened(heads="0.3")
    shows(page, "0.3")
    weights = expected_outputs(model, TEXT)[0][0, 3]
    canvas = page.locator("#maps canvas").first
    canvas.focus()
    for key in ["ArrowDown"] * 3 + ["ArrowRight"] * 6:  # from the first cell
        page.keyboard.press(key)
    column, row = 6, 2
    assert page.inner_text("#tip .pair").replace("\u2068", "").replace("\u2069", "") == "old → the"
    assert float(page.inner_text("#tip b")) == pytest.approx(
        weights[row, column], abs=ROUNDING + 0.005
    )
    box = page.locator("#tip").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] - 16, box["y"] - 18)  # the tip stands beside the cell it tells of
    expect(page.locator("#tip b")).to_have_text(page.inner_text("#tip b"))
    assert f"column sum {weights[:, column].sum():.2f}"[:-1] in page.inner_text("#tip small")


def test_a_head_switched_off_changes_the_prediction_and_comes_back(
    opened: Opened, model: AttentionModel
) -> None:
    page = opened()
    with_all, without = (
        as_written(expected_outputs(model, TEXT)[1]),
        as_written(expected_outputs(model, TEXT, off=(0, 1))[1]),
    )
    assert with_all != without
    page.hover(head_of("0.1"))
    page.locator(".cell:has(.thumb[aria-label='0.1']) .switch").first.click()
    expect(page.locator("#off")).to_contain_text("1 of 12 heads off")
    drawn(page)
    assert shares(page) == without
    moved = (
        page.locator(".frame:visible")
        .first.locator(".cell.moved .thumb")
        .evaluate_all("all => all.map(one => one.getAttribute('aria-label'))")
    )
    assert moved  # and only above: a head reads what the layers below it wrote
    assert not [name for name in moved if name.startswith("0.")]
    page.click("#undo")
    expect(page.locator("#off")).to_contain_text("All 12 heads are on")
    drawn(page)
    assert shares(page) == with_all
    page.click("#redo")
    expect(page.locator("#off")).to_contain_text("0.1")
    drawn(page)
    assert shares(page) == without


def test_a_number_switches_its_layer_or_its_column(opened: Opened) -> None:
    page = opened()
    layer = ".frame:visible .label[aria-label='switch layer 1 off or on']"
    column = ".frame:visible .label[aria-label='switch head 2 of every layer off or on']"
    page.locator(layer).first.click()
    expect(page.locator("#off .list")).to_have_text("1.*")
    page.locator(column).first.click()  # 1.2 is off already, the others are not
    expect(page.locator("#off .list")).to_have_text("0.2, 1.*, 2.2")
    page.locator(column).first.click()  # all of it is off: on
    expect(page.locator("#off .list")).to_have_text("1.0, 1.1, 1.3")
    page.locator(head_of("2.0")).first.focus()
    page.keyboard.press("l")
    expect(page.locator("#off .list")).to_have_text("1.0, 1.1, 1.3, 2.*")
    page.keyboard.press("u")
    expect(page.locator("#off .list")).to_have_text("1.0, 1.1, 1.3")
    page.select_option("#lens", "rollout")  # of no head
    expect(page.locator("#grids .frame:visible .label.all")).to_have_count(0)


def test_all_layers_are_in_view_and_their_switches_are_seen(opened: Opened) -> None:
    page = opened()
    page.mouse.move(1, 1)
    for height in (900, 540):
        page.set_viewport_size({"width": 1366, "height": height})
        page.wait_for_function(
            """() => [...document.querySelectorAll('.frame .thumb')].filter(one => one.offsetParent)
                .every(one => one.getBoundingClientRect().bottom <= innerHeight)"""
        )
    opacities = page.locator(".frame:visible .switch").evaluate_all(
        "all => all.map(one => Number(getComputedStyle(one).opacity))"
    )
    assert len(opacities) == LAYERS * HEADS
    assert min(opacities) > 0.5


def test_what_changed_since_a_head_is_off(
    opened: Opened, model: AttentionModel, tmp_path: Path
) -> None:
    page = opened(heads="2.0", off="0.1", show="change")
    shows(page, "change from all heads on")
    expected = (
        expected_outputs(model, TEXT, off=(0, 1))[0][2, 0] - expected_outputs(model, TEXT)[0][2, 0]
    )
    assert np.abs(expected).max() > 0.01
    np.testing.assert_allclose(numbers_in(saved(page, "#csv", tmp_path)), expected, atol=ROUNDING)


def test_the_command_that_cuts_what_is_off(opened: Opened) -> None:
    page = opened(off="0.0-2,1.*,2.3")
    page.click("#copy")
    command = f"headscope prune 'tiny {MARKUP}' --heads '0.0-2,1.*,2.3' --out small"
    expect(page.locator("#copied code")).to_have_text(command)


def test_two_models_and_their_difference(
    opened: Opened, model: AttentionModel, other: AttentionModel, tmp_path: Path
) -> None:
    page = opened(show="both")
    expect(page.locator(".frame:visible")).to_have_count(2)
    expect(page.locator(".answer")).to_have_count(2)
    page.locator('input[name="show"][value="difference"]').check(force=True)
    page.click(head_of("1.3"))
    shows(page, "minus", "1.3")
    expected = expected_outputs(other, TEXT)[0][1, 3] - expected_outputs(model, TEXT)[0][1, 3]
    np.testing.assert_allclose(numbers_in(saved(page, "#csv", tmp_path)), expected, atol=ROUNDING)


def rows_in(table: Path) -> list[dict[str, str]]:
    with table.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def texts_in(drawing: Path) -> list[str | None]:
    return [
        node.text
        for node in ElementTree.parse(drawing).getroot().iter("{http://www.w3.org/2000/svg}text")
    ]


def test_what_is_saved_of_both_models_holds_both(
    opened: Opened, model: AttentionModel, other: AttentionModel, tmp_path: Path
) -> None:
    page = opened(show="both", heads="1.3")
    shows(page, "tiny", "and other", "1.3")
    table = saved(page, "#csv", tmp_path)
    assert re.fullmatch(r"tiny-.*-other-1\.3-map-tokens\.csv", table.name)
    rows = rows_in(table)
    for first, name in ((model, f"tiny {MARKUP}"), (other, "other")):
        weights = np.array([float(row["weight"]) for row in rows if row["model"] == name]).reshape(
            10, 10
        )
        np.testing.assert_allclose(weights, expected_outputs(first, TEXT)[0][1, 3], atol=ROUNDING)
    texts = texts_in(saved(page, "#svg", tmp_path))
    assert {f"tiny {MARKUP}", "other"} <= set(texts)
    assert texts.count("sat") == 4, "two maps, each with two axes"
    one_map = opened(heads="1.3")
    shows(one_map, "1.3")
    assert set(rows_in(saved(one_map, "#csv", tmp_path))[0]) >= {"model"}, (
        "a second model is there: which one is said"
    )


def test_arcs_of_both_models(opened: Opened, tmp_path: Path) -> None:
    page = opened(show="both", heads="1.2,2.0", view="arcs")
    shows(page, "other", "1.2, 2.0")
    expect(page.locator("#arcs canvas:visible")).to_have_count(2)
    expect(page.locator("#arcs h3")).to_have_text([f"tiny {MARKUP}", "other"])
    expect(page.locator(".ranking caption")).to_have_text([f"tiny {MARKUP}", "other"])
    first, second = page.locator(".ranking").all()
    assert first.inner_text() != second.inner_text()
    texts = texts_in(saved(page, "#svg", tmp_path))
    assert {"1.2", "2.0", "other"} <= set(texts), "which colour is which head"
    assert any("line strength" in (text or "") for text in texts)


def test_all_heads_as_a_file(opened: Opened, model: AttentionModel, tmp_path: Path) -> None:
    page = opened(off="0.1")
    rows = rows_in(saved(page, "#all-csv", tmp_path))
    weights = expected_outputs(model, TEXT, off=(0, 1))[0]
    assert [(row["layer"], row["head"]) for row in rows] == [
        (str(layer), str(head)) for layer in range(LAYERS) for head in range(HEADS)
    ]
    assert [float(row["largest"]) for row in rows] == pytest.approx(
        weights.max(axis=(2, 3)).ravel(), abs=1e-4
    )
    assert [row["off"] for row in rows].count("1") == 1
    drawing = saved(page, "#all-svg", tmp_path)
    images = list(ElementTree.parse(drawing).getroot().iter("{http://www.w3.org/2000/svg}image"))
    assert len(images) == LAYERS * HEADS + LAYERS
    assert {"mean", "off", "0", "2"} <= set(texts_in(drawing))
    assert saved(page, "#all-png", tmp_path).read_bytes().startswith(b"\x89PNG")


def test_differences_have_a_scale_of_their_own(
    opened: Opened, model: AttentionModel, other: AttentionModel
) -> None:
    """The deepest colour is the largest difference of all heads, so that small ones are seen."""
    largest = np.abs(expected_outputs(other, TEXT)[0] - expected_outputs(model, TEXT)[0]).max()
    page = opened(show="difference")
    expect(page.locator("#legend span").last).to_have_text(f"+{largest:.2f}")
    page = opened(show="change", off="0.1", heads="2.0")
    changed = np.abs(
        expected_outputs(model, TEXT, off=(0, 1))[0] - expected_outputs(model, TEXT)[0]
    )
    shows(page, f"to\u00a0{changed.max():.2f}")


def test_the_mean_of_a_layer_is_of_the_heads_that_are_on(
    opened: Opened, model: AttentionModel, tmp_path: Path
) -> None:
    page = opened(heads="1.mean", off="1.2")
    shows(page, "1.mean of the 3 of 4 heads that are on")
    expect(page.locator("#name")).to_have_text("layer 1, mean of the 3 of 4 heads that are on")
    weights = expected_outputs(model, TEXT, off=(1, 2))[0][1]
    np.testing.assert_allclose(
        numbers_in(saved(page, "#csv", tmp_path)),
        np.delete(weights, 2, axis=0).mean(axis=0),
        atol=ROUNDING,
    )


def test_a_map_of_many_tokens_fits_and_counts_them(opened: Opened, tmp_path: Path) -> None:
    page = opened(text="the old cat sat " * 127, heads="1.2")
    shows(page, "1.2")
    page.click("#in")
    page.click("#fit")
    page.wait_for_function(
        """() => { const box = document.querySelector('#maps .scroller');
            return box.scrollWidth <= box.clientWidth && box.scrollHeight <= box.clientHeight; }"""
    )
    labels = [
        text
        for text in texts_in(saved(page, "#svg", tmp_path))
        if text and re.fullmatch(r"sat \d+", text)
    ]
    assert len(labels) > 20, (
        "where not every token has a label, those that have one say which it is"
    )


def test_on_a_phone_the_heads_begin_on_the_first_screen(
    browser: Browser, explorer: Explorer
) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844})
    page = context.new_page()
    page.goto(f"{explorer.url}#{urlencode({'text': TEXT})}")
    drawn(page)
    box = page.locator(".overview").first.bounding_box()
    assert box is not None
    assert box["y"] < 844 - 100, "its first rows are seen, also below a name of two lines"
    expect(page.locator("#order")).to_be_hidden()
    page.click("#fold")
    expect(page.locator("#order")).to_be_visible()
    context.close()


def test_arcs_of_several_heads_and_exports(opened: Opened, tmp_path: Path) -> None:
    page = opened(text=HOSTILE, heads="1.2,2.0", view="arcs")
    shows(page, "1.2, 2.0")
    expect(page.locator(".chip")).to_have_count(2)
    for view in ("arcs", "map"):
        page.locator(f'input[name="view"][value="{view}"]').check(force=True)
        drawing = ElementTree.parse(saved(page, "#svg", tmp_path)).getroot()
        texts = [node.text for node in drawing.iter("{http://www.w3.org/2000/svg}text")]
        assert TEMPLATE in texts
        assert not list(drawing.iter("{http://www.w3.org/2000/svg}img"))
        assert saved(page, "#png", tmp_path).read_bytes().startswith(b"\x89PNG")
    with saved(page, "#csv", tmp_path).open(encoding="utf-8", newline="") as lines:
        words = {row["key_text"] for row in csv.DictReader(lines)}
    assert {MARKUP, TEMPLATE, "'=2+3"} <= words  # no spreadsheet takes it for a formula


def test_by_keyboard_alone(opened: Opened) -> None:
    page = opened()
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "text"
    page.keyboard.press("Escape")
    while not page.evaluate("document.activeElement.classList.contains('thumb')"):
        page.keyboard.press("Tab")
    for key in ("ArrowDown", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "1.2"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("o")
    expect(page.locator("#off")).to_contain_text("1.2")
    page.keyboard.press("u")
    expect(page.locator("#off")).to_contain_text("are on")
    page.keyboard.press("Enter")
    shows(page, "1.2")
    page.keyboard.press("]")
    shows(page, "1.3")
    page.keyboard.press("a")
    expect(page.locator("#arcs")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#head")).to_be_hidden()
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "1.3"
    page.keyboard.press("?")
    expect(page.locator("#keys")).to_be_visible()


def test_the_help_opens_at_its_heading(opened: Opened) -> None:
    page = opened()
    page.set_viewport_size({"width": 1366, "height": 768})
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()
    assert page.evaluate(
        "document.getElementById('help').scrollHeight > document.getElementById('help').clientHeight"
    )
    assert page.evaluate("document.getElementById('help').scrollTop") == 0
    assert page.evaluate("document.activeElement.id") == "help-title"


def test_the_address_holds_the_state(opened: Opened) -> None:
    page = opened()
    page.click(head_of("1.2"))
    shows(page, "1.2")
    for key in "ows":
        page.keyboard.press(key)
    page.locator("#texts .unit", has_text="mat").click()
    shows(page, "1.2", "words", "special tokens hidden")
    drawn(page)
    question, caption, off = (page.inner_text(name) for name in ("#asked", "#caption", "#off"))
    assert "mat" in question
    page.reload()
    shows(page, "1.2", "words", "special tokens hidden")
    drawn(page)
    assert [page.inner_text(name) for name in ("#asked", "#caption", "#off")] == [
        question,
        caption,
        off,
    ]
    page.go_back()
    expect(page.locator("#head")).to_be_hidden()


def test_hostile_tokens_are_text(opened: Opened) -> None:
    page = opened(text=HOSTILE, heads="0.0")
    shows(page, "0.0")
    texts = page.locator("#texts .unit").all_inner_texts()
    assert {MARKUP, TEMPLATE, "⟨202E⟩gnihtemos⟨202C⟩"} <= set(texts)
    assert page.inner_text("#model").startswith(f"tiny {MARKUP}")
    assert "<b>perhaps</b>" in shares(page)
    assert page.evaluate("window.__pwned === undefined && document.images.length === 0")


def test_the_study_is_shown_next_to_the_maps(opened: Opened) -> None:
    page = opened(order="role")
    expect(page.locator(".overview .group").first).to_be_visible()
    assert page.locator(".frame:visible .thumb").count() == LAYERS * HEADS
    page.click(head_of("0.2"))
    expect(page.locator("#card")).to_contain_text("Role")


def test_errors_are_shown_and_the_page_recovers(opened: Opened, watched: Watched) -> None:
    page = opened()
    page.fill("#text", "the cat " * 300)
    expect(page.locator("#error")).to_contain_text("at most 512 tokens")
    page.fill("#text", "")
    expect(page.locator("#empty")).to_be_visible()
    expect(page.locator("#error")).to_be_hidden()
    page.click("#example")
    expect(page.locator("#grids")).to_be_visible()
    drawn(page)
    assert all(
        "422" in complaint for complaint in watched.complaints
    )  # the browser's own note of the refusal
    watched.complaints.clear()


def test_an_encoder_decoder_shows_its_stacks(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "headscope.explorer.session.translate", lambda model, batch: [[5, 6]]
    )  # it would never end
    with serve(translator(), port=0, browser=False, wait=False) as running:
        context = browser.new_context(viewport={"width": 1440, "height": 900})
        seen = Watched(context.new_page(), home=running.url)
        page = seen.page
        page.goto(f"{running.url}#{urlencode({'text': 'the cat sat', 'stack': 'cross'})}")
        expect(page.locator("#missing")).to_be_visible()
        page.click("#add-second")
        page.fill("#second", "a dog ran .")
        expect(page.locator("#missing")).to_be_hidden()
        page.click(head_of("cross.1.0"))
        shows(page, "cross.1.0")
        expect(page.locator("#texts .flow")).to_have_count(2)
        expect(page.locator(".answer")).to_contain_text("Log-probability of the target")
        page.get_by_text("Generate translation").click()
        expect(page.locator(".translation")).to_have_count(1)
        page.keyboard.press("w")  # drawn anew: it stays
        expect(page.locator(".translation")).to_have_count(1)
        with page.expect_response("**/api/translate") as answer:
            page.keyboard.press("o")  # it follows the switches
            expect(page.locator(".translated.stale .remark").last).to_have_text(
                "translating again …"
            )
        assert answer.value.json()["off"] == "cross.1.0"
        expect(page.locator(".translated.stale")).to_have_count(0)
        expect(page.locator(".translated")).to_contain_text("with these heads off")
        page.reload()
        expect(page.locator(".translated")).to_contain_text("with these heads off")
        page.get_by_text("Generate translation").click()
        expect(page.locator(".translated")).to_have_count(0)
        seen.assert_quiet()
        context.close()


def test_two_encoders_are_compared_by_their_vectors(browser: Browser) -> None:
    whole, small = worded(BertModel), headscope.prune(worded(BertModel), "0.1").model
    state = {"text": "the old cat sat", "second": "a dog ran", "off": "0.1,1.0"}
    with serve(
        whole, compare=small, port=0, browser=False, wait=False, log=lambda line: None
    ) as running:
        for width in (1024, 390):
            context = browser.new_context(viewport={"width": width, "height": 844})
            page = context.new_page()
            page.goto(f"{running.url}#{urlencode(state)}")
            drawn(page)
            # 0.1 is off in both: whole without it is small
            expect(page.locator(".together b")).to_have_text(["1.000", "1.000"])
            expect(page.locator(".answer").nth(1)).to_contain_text("does not have 0.1")
            expect(page.locator(".answer").nth(0)).to_contain_text(
                "Each text is embedded by itself"
            )
            edges = page.locator(".figure > *").evaluate_all(
                """all => { const end = document.querySelector('.prediction').getBoundingClientRect().right;
                    return all.map(one => one.getBoundingClientRect().right - end); }"""
            )
            assert max(edges) <= 0, f"a number spills at {width}"
            context.close()


def test_the_next_token_before_and_after(browser: Browser) -> None:
    kind = KINDS["causal"]
    with serve(kind.make(), port=0, browser=False, wait=False, log=lambda line: None) as running:
        page = browser.new_context(viewport={"width": 1366, "height": 768}).new_page()
        page.goto(f"{running.url}#{urlencode({'text': kind.text})}")
        drawn(page)
        expect(page.locator(".said")).to_have_text("Probability of the next token")
        expect(page.locator(".shares th")).to_have_count(0)
        before = page.locator(".shares tbody tr").all_inner_texts()
        top = page.locator(".shares td").first.inner_text()
        grid = page.locator(".overview").first.bounding_box()
        page.goto(f"{running.url}#{urlencode({'text': kind.text, 'off': '0.*,1.*'})}")
        expect(page.locator(".shares th")).to_have_text(["", "", "now", "all on", "change (pp)"])
        drawn(page)
        assert page.locator(".overview").first.bounding_box() == grid, "nothing jumps"
        rows = {
            cells[0]: cells
            for cells in page.locator(".shares tbody tr").evaluate_all(
                "all => all.map(row => [...row.cells].map(cell => cell.textContent))"
            )
        }
        assert rows[top][3] in before[0], "the one that was most likely is still there"
        now = next(iter(rows))
        if now != top:
            expect(page.locator(".turned")).to_contain_text("changed: ")
        assert page.locator(".changed").count() == sum(
            abs(float(cells[4].replace("−", "-"))) >= 1
            for cells in rows.values()
            if cells[4] != "no change"
        )
        page.context.close()


@pytest.mark.parametrize(
    ("width", "scheme"), [(1400, "light"), (390, "dark"), slow(1400, "dark"), slow(390, "light")]
)
def test_axe_finds_nothing_serious(
    browser: Browser, explorer: Explorer, scheme: str, width: int
) -> None:
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True
    )
    page = context.new_page()
    for state in (
        {"off": "0.1"},
        {"heads": "1.2", "off": "0.1"},
        {"heads": "1.2,2.0", "view": "arcs"},
        {"show": "both", "order": "role"},
        {"lens": "gradient", "heads": "1.2"},
        {"lens": "knock-out"},
    ):
        page.goto("about:blank")
        page.goto(f"{explorer.url}#{urlencode({'text': TEXT, **state})}")
        drawn(page)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (
            f"{state} spills at {width}"
        )
        assert not serious(page), state
    context.close()


def test_dark_and_light(browser: Browser, explorer: Explorer) -> None:
    context = browser.new_context(viewport={"width": 1440, "height": 900}, color_scheme="dark")
    page = context.new_page()
    page.goto(explorer.url)
    drawn(page)
    paper = "getComputedStyle(document.documentElement).backgroundColor"
    dark = page.evaluate(paper)
    page.keyboard.press("t")
    light = page.evaluate(paper)
    assert (
        sum(map(int, re.findall(r"\d+", dark)))
        < 150
        < 600
        < sum(map(int, re.findall(r"\d+", light)))
    )
    page.reload()
    drawn(page)
    assert page.evaluate(paper) == light  # it was kept
    context.close()
