"""The explorer in a real browser: what is shown, what is said of it and what was asked for stay in step."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode
from xml.etree import ElementTree

import pandas as pd
import pytest
from beside import full, model, of, role
from pages import TEXT, Opened, drawn, head_of, saved, shows
from playwright.sync_api import Browser, Route, expect

import headscope
from browsers import Watched
from headscope.explorer.serving import Explorer, serve
from worded import translator

pytestmark = pytest.mark.browser

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def explorer() -> Iterator[Explorer]:
    """A classifier with a study, and the same without one of its heads."""
    made, small = model(), headscope.prune(model(), "0.2").model
    small.name = "small"
    study = full(made)
    roles = [role("1.3", "syntactic: nsubj", 1.0), role("1.3", "next token"), role("1.3", "broad")]
    study.tables["roles"] = pd.DataFrame(roles)
    shown = {"role": "next token", "kind": "counter", "direction": "", "weight": 0.834}
    places = {
        "words": json.dumps(["the", "ca", "##t", "sat"]),
        "query": 2,
        "key": 1,
        "expected": 3.0,
    }
    study.tables["examples"] = pd.DataFrame([of("1.3") | shown | places])
    with serve(
        made, study=study, compare=small, port=0, browser=False, wait=False, log=lambda line: None
    ) as running:
        yield running


def texts_in(drawing: Path) -> list[str | None]:
    return [node.text for node in ElementTree.parse(drawing).getroot().iter(f"{SVG}text")]


def test_a_resting_pointer_does_not_choose_another_token(
    opened: Opened, explorer: Explorer
) -> None:
    page = opened(heads="1.3")
    shows(page, "1.3")
    box = page.locator("#texts .unit", has_text="old").bounding_box()
    assert box is not None
    at = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.evaluate(
        "window.told = 0; addEventListener('pointermove', () => { window.told += 1; }, true)"
    )
    page.mouse.move(*at)
    expect(page.locator("#texts .unit.source")).to_have_text("old")
    page.evaluate(
        f"location.hash = {json.dumps(urlencode({'text': TEXT, 'heads': '1.3', 'token': '7'}))}"
    )
    expect(page.locator("#texts .unit.source")).to_have_text("mat")
    record = page.evaluate("window.told")
    page.mouse.move(
        *at
    )  # what the browser does by itself: it says once more what lies under the pointer
    assert page.evaluate("window.told") > record
    expect(page.locator("#texts .unit.source")).to_have_text("mat")
    page.mouse.move(at[0] + 2, at[1] + 1)
    expect(page.locator("#texts .unit.source")).to_have_text("old")


def test_what_is_old_is_dim_and_explained_as_what_it_is(opened: Opened) -> None:
    page = opened()
    held: list[Route] = []
    how = page.inner_text("#how")
    page.route("**/api/attend", lambda route: held.append(route))
    page.select_option("#lens", "norm")
    expect(page.locator("#status")).to_have_text(re.compile(r"^running .* …$"))
    for part in ("#grids", "#answers"):
        expect(page.locator(part)).to_have_css("opacity", "0.45")
    assert page.inner_text("#how") == how, "the pictures are still those of the other lens"
    for item in held:
        item.continue_()
    page.unroute("**/api/attend")
    expect(page.locator("#how")).to_contain_text("Kobayashi")
    expect(page.locator("#grids")).to_have_css("opacity", "1")
    expect(page.locator("#status")).to_contain_text("10 tokens")


def test_typing_makes_old_what_stands_there(opened: Opened) -> None:
    page = opened()
    record = page.evaluate(
        """() => { const box = document.getElementById('text');
            box.value += ' cat';
            box.dispatchEvent(new Event('input', { bubbles: true }));
            const status = document.getElementById('status').textContent;
            return [document.body.classList.contains('asking'), status, box.value]; }"""
    )
    assert record == [True, "running worded …", f"{TEXT} cat"], "at once, before anything is asked"
    expect(page.locator("#status")).to_contain_text("11 tokens")
    drawn(page)


def test_thumbnails_change_together(opened: Opened) -> None:
    page = opened()
    page.evaluate(
        """() => { const put = CanvasRenderingContext2D.prototype.putImageData;
            let turn = 0, now = 0;
            window.turns = new Set();
            window.painted = new Set();
            performance.now = () => (now += 20);  // as on a slow machine: a rest after each picture
            const next = () => { turn += 1; setTimeout(next, 0); }; next();
            CanvasRenderingContext2D.prototype.putImageData = function (...all) {
                if (this.canvas.closest?.('.thumb')) { window.turns.add(turn); window.painted.add(this.canvas); }
                return put.apply(this, all); }; }"""
    )
    page.select_option("#colours", "one linear")
    page.wait_for_function(
        "() => window.painted.size === document.querySelectorAll('.thumb canvas').length"
    )
    assert page.evaluate("window.turns.size") == 1


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (0.99996, ["0.99996", "−0.00004"]),
        (0.9999996, ["1.000", "no change"]),
        (0.81234, ["0.812", "−0.188"]),
    ],
)
def test_a_number_has_the_digits_that_its_change_needs(
    opened: Opened, after: float, expected: list[str]
) -> None:
    page = opened()

    def answer(route: Route) -> None:
        record = route.fetch()
        prediction = {"kind": "encoder", "of": "itself", "before": 1, "after": after}
        route.fulfill(response=record, json=record.json() | {"prediction": prediction})

    page.route("**/api/attend", answer)
    page.route("**/api/alike/**", lambda route: route.fulfill(json={"cosines": [-0.0001]}))
    page.fill("#text", "the cat")
    expect(page.locator(".answer").first.locator(".figure > *")).to_have_text(expected)
    expect(page.locator(".together b")).to_have_text("0.000")
    page.unroute_all()


def test_only_what_was_copied_is_marked_as_copied(opened: Opened) -> None:
    page = opened(off="0.1")
    for change in ("u", "text", "show"):
        page.click("#copy")
        expect(page.locator("#copied")).to_be_visible()
        if change == "text":
            page.fill("#text", "the cat")
        elif change == "show":
            page.locator('input[name="show"][value="b"]').check(force=True)
        else:
            page.locator(".cell .switch[aria-label='0.3 on']").first.click(force=True)
        expect(page.locator("#copied")).to_be_hidden()


def test_a_difference_says_of_what_and_where_there_is_none(opened: Opened) -> None:
    page = opened(show="difference", off="0.1")
    expect(page.locator(".frame:visible h3")).to_have_text("small minus worded")
    same = page.locator(".frame:visible .cell:has(.same:visible) .thumb")
    names = same.evaluate_all("all => all.map(one => one.getAttribute('aria-label'))")
    assert names == ["0.0", "0.1", "0.3", "mean of layer 0"], "nothing below these was cut"
    expect(page.locator(".frame:visible .cell.moved")).to_have_count(0)


def test_the_card_says_all_once(opened: Opened) -> None:
    page = opened(heads="1.3", show="both")
    shows(page, "1.3")
    card = page.locator("#card")
    expect(card.locator("h3").first).to_have_text("From the study of tiny")
    expect(card).to_contain_text("syntactic: nsubj: 1.000 [0.900, 1.100]")
    expect(card).to_contain_text("1, with 3 other heads")
    expect(card).to_contain_text(
        "when this head is ablated0.200 [0.100, 0.300] (uncorrected interval); p 0.010, p (Holm) 0.020: ★ significant"
    )
    expect(card.locator("dd").last).to_contain_text(re.compile(r"distance \d\S* nats$"))
    expect(page.locator("#role")).to_have_text("syntactic: nsubj, next token +1")
    expect(page.locator("#role")).to_have_attribute(
        "title", "syntactic: nsubj, next token, diffuse"
    )
    names = card.locator("dt").all_inner_texts()
    assert len(set(names)) == len(names)
    example = card.locator(".example")
    expect(example.locator("b.query")).to_have_text("##t")
    expect(example.locator("mark")).to_have_text("ca")
    expect(example.locator(".expected")).to_have_text("sat")
    expect(example.locator(".weight")).to_have_text("0.83")
    first, second = (card.locator(name).first.bounding_box() for name in ("dt", "dd"))
    assert first is not None
    assert second is not None
    assert second["y"] >= first["y"] + first["height"] - 1, "a label stands above what it is of"


def test_the_map_stays_while_the_card_scrolls_and_fills_the_space(opened: Opened) -> None:
    page = opened(heads="1.3", text="the old cat sat on a mat . " * 3)
    shows(page, "1.3")
    page.evaluate(
        "document.querySelector('.reading').style.minHeight = '3000px'; scrollTo(0, 1500)"
    )
    below = """() => document.querySelector('.drawings').getBoundingClientRect().top
        - document.getElementById('controls').offsetHeight"""
    assert 0 <= page.evaluate(below) <= 20
    box = page.locator("#maps canvas").first.bounding_box()
    assert box is not None
    assert box["y"] + box["height"] <= 900
    page = opened(heads="1.3", view="arcs", show="both", text="the old cat sat on a mat . " * 3)
    shows(page, "1.3")
    spills = (
        "() => { const one = document.querySelector('#arcs .scroller');"
        " return one.scrollHeight - one.clientHeight; }"
    )
    assert page.evaluate(spills) <= 1, "26 tokens are seen at once"


def test_pictures_of_all_heads_say_what_was_cut_and_what_is_what(
    opened: Opened, tmp_path: Path
) -> None:
    page = opened(show="b")
    drawing = saved(page, "#all-svg", tmp_path)
    texts = texts_in(drawing)
    assert texts.count("pruned") == 1
    assert "layer ↓ head →" in texts
    page.click(head_of("0.1"))
    shows(page, "0.1")
    root = ElementTree.parse(saved(page, "#svg", tmp_path)).getroot()
    (moved,) = (one.get("transform", "") for one in root.findall(f"{SVG}g"))
    assert min(map(float, re.findall(r"[\d.]+", moved))) >= 10, "axis titles do not touch the edge"


def test_an_address_with_unknown_names_is_corrected_with_a_message(opened: Opened) -> None:
    page = opened(heads="9.9,1.3", lens="wishful", off="77.1,0.1")
    shows(page, "1.3")
    expect(page.locator("#ignored")).to_have_text(
        "Ignored in the address, because worded does not have them: heads 9.9; lens wishful; off 77.1."
    )
    assert "wishful" not in page.url
    assert "77" not in page.url.partition("#")[2], "the port may hold it"
    assert "off=0.1" in page.url
    page.keyboard.press("w")
    expect(page.locator("#ignored")).to_be_hidden()


def test_no_exports_without_maps_and_no_jump_when_they_come(browser: Browser) -> None:
    gap = """() => document.getElementById('grids').getBoundingClientRect().top
        - document.getElementById('controls').getBoundingClientRect().bottom"""
    with serve(translator(), port=0, browser=False, wait=False, log=lambda line: None) as running:
        context = browser.new_context(viewport={"width": 1300, "height": 900})
        page = context.new_page()
        page.goto(f"{running.url}#{urlencode({'text': 'the cat sat', 'stack': 'cross'})}")
        expect(page.locator("#missing")).to_be_visible()
        expect(page.locator("#all-png")).to_be_hidden()
        page.goto("about:blank")
        held: list[Route] = []
        page.route("**/api/attend", lambda route: held.append(route))
        page.goto(f"{running.url}#{urlencode({'text': 'the cat sat'})}")
        expect(page.locator("#grids")).to_be_visible()
        before = page.evaluate(gap)
        for item in held:
            item.continue_()
        drawn(page)
        expect(page.locator("#all-png")).to_be_visible()
        assert math.isclose(before, page.evaluate(gap), abs_tol=1)
        context.close()


def test_a_text_that_is_too_long_for_a_lens_is_reported_in_place_of_maps(
    opened: Opened, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headscope.explorer.session.LONGEST_PER_TOKEN", 4)
    page = opened()
    page.select_option("#lens", "value-zeroing")
    expect(page.locator("#refused")).to_contain_text("at most 4 tokens, since")
    expect(page.locator("#error")).to_be_hidden()
    expect(page.locator("#all-png")).to_be_hidden()
    page.select_option("#lens", "raw")
    expect(page.locator("#refused")).to_be_hidden()
    drawn(page)
    watched.complaints.clear()  # the browser's own note of the refusal


def test_on_a_phone_the_lens_is_seen(browser: Browser, explorer: Explorer) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844})
    page = context.new_page()
    page.goto(f"{explorer.url}#{urlencode({'text': TEXT, 'lens': 'norm'})}")
    drawn(page)
    expect(page.locator("#lens")).to_be_visible()
    expect(page.locator('input[name="special"]')).to_be_hidden()
    context.close()
