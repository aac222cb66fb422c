"""The look page in a browser, from disk, without network: what it shows must be what numpy says."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import numpy as np
import pytest
from numpy.typing import NDArray
from playwright.sync_api import Browser, Page, expect
from test_look import maps_in, plain_side, raw, softmax_maps

from browsers import serious
from headscope.report.look.lens_view import StackMaps
from headscope.report.look.token_axis import TokenAxis
from headscope.report.look.view import Look
from sampling import slow

if TYPE_CHECKING:
    from browsers import Watched

pytestmark = pytest.mark.browser

PLANTED = "</script><img src=x onerror=window.__pwned=1><svg onload=alert(1)>"
SOURCE = TokenAxis(
    tokens=("[CLS]", "light", "##house", "keeper", PLANTED, "row", "##ed", "##.", "=2+3", "[SEP]"),
    special=(True, *[False] * 8, True),
    words=(None, 0, 0, 1, 2, 3, 3, 3, 4, None),
)
TARGET = TokenAxis(
    ("<pad>", "▁Le", "▁magni", "fique", "▁עולם"), (True, *[False] * 4), (None, 0, 1, 1, 2)
)
LAYERS, HEADS = 3, 4


def strongly_special(weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """As in real models: most weight on the first token."""
    weights = weights.copy()
    weights[..., 0] += 2
    return weights / weights.sum(axis=-1, keepdims=True)


@pytest.fixture(scope="module")
def look() -> Look:
    encoder = strongly_special(softmax_maps(LAYERS, HEADS, 10, 10, seed=1, spread=2))
    cross = softmax_maps(2, 3, 5, 10, seed=2, spread=2)
    stacks = (
        StackMaps("encoder", SOURCE, SOURCE, encoder),
        StackMaps("cross", TARGET, SOURCE, cross),
    )
    return Look(f"toy {PLANTED}", (f"lighthouse {PLANTED}", "Le magnifique"), (raw(*stacks),))


@pytest.fixture(scope="module")
def file(look: Look, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return look.save(tmp_path_factory.mktemp("look") / "look.html")


def drawn(page: Page) -> Page:
    page.wait_for_selector("html[data-drawn]", state="attached")
    return page


def opened(page: Page, *words: str) -> Page:
    """Wait until the enlarged head's caption holds these words."""
    expect(page.locator("html")).to_have_attribute(
        "data-head", re.compile(".*".join(map(re.escape, words)))
    )
    return page


def choose(page: Page, option: str, value: str) -> None:
    page.locator(f'input[name="{option}"][value="{value}"]').check(force=True)


def hide(page: Page, special: str) -> None:
    if special != "show":
        page.locator('input[name="special"]').check(force=True)
    if special == "renormalise":
        page.locator('input[name="renormalise"]').check(force=True)


def saved(page: Page, button: str, folder: Path) -> Path:
    with page.expect_download() as download:
        page.click(button)
    goal = folder / download.value.suggested_filename
    download.value.save_as(goal)
    return goal


def numbers_in(table: Path) -> NDArray[np.float64]:
    with table.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    queries = len({row["query"] for row in rows})
    return np.array([float(row["weight"]) for row in rows]).reshape(queries, -1)


def expected(
    weights: NDArray[np.float64], query: TokenAxis, key: TokenAxis, level: str, special: str
) -> NDArray[np.float64]:
    """Words, then hiding, then renormalising, in loops: sums over a key's pieces, means over a query's."""

    def groups(side: TokenAxis) -> list[list[int]]:
        units = side.units() if level == "words" else tuple(range(len(side.tokens)))
        every = [
            [at for at, unit in enumerate(units) if unit == wanted] for wanted in sorted(set(units))
        ]
        return [group for group in every if special == "show" or not side.special[group[0]]]

    result = np.array(
        [
            [np.mean([sum(weights[q, k] for k in keys) for q in queries]) for keys in groups(key)]
            for queries in groups(query)
        ]
    )
    return result / result.sum(axis=1, keepdims=True) if special == "renormalise" else result


def test_the_overview_of_144_heads_and_128_tokens_is_light_and_soon_there(
    watched: Watched, tmp_path: Path
) -> None:
    weights = softmax_maps(12, 12, 128, 128)
    weights[3, 2] = np.roll(np.eye(128, dtype=np.float32), 1, axis=1)  # attends to the next token
    side = plain_side(128)
    file = Look("random", ("text",), (raw(StackMaps("encoder", side, side, weights)),)).save(
        tmp_path / "look.html"
    )
    page = drawn(watched.open(file))
    first_paint = page.evaluate(
        "performance.getEntriesByName('first-contentful-paint')[0].startTime"
    )
    assert (
        first_paint < 2000
    )  # wanted: 1000 ms on a laptop; twice that, since test machines are shared
    assert page.evaluate("document.querySelectorAll('*').length") <= 1000
    names = page.locator(".thumb").evaluate_all(
        "all => all.map(one => one.getAttribute('aria-label'))"
    )
    every = [
        [*(f"{layer}.{head}" for head in range(12)), f"mean of layer {layer}"]
        for layer in range(12)
    ]
    assert names == [name for row in every for name in row]
    pixels = (
        page.get_by_label("3.2", exact=True)
        .locator("canvas")
        .evaluate(
            "one => [one.width, ...one.getContext('2d').getImageData(0, 0, one.width, one.height).data]"
        )
    )
    width, red = pixels[0], np.array(pixels[1:]).reshape(pixels[0], -1, 4)[..., 0]
    darkest = red == red.min()
    assert (
        width == 64
    )  # two tokens a pixel, the larger one shown: the diagonal and the cell right of it
    assert darkest[np.arange(64), np.arange(64)].all()
    assert darkest[np.arange(63), np.arange(1, 64)].all()
    assert darkest.sum() == 64 + 63 + 1  # and, after the last token, the first


@pytest.mark.parametrize("special", ["show", "hide", "renormalise"])
@pytest.mark.parametrize("level", ["tokens", "words"])
@pytest.mark.parametrize("head", ["encoder.1.2", "cross.0.1"])
def test_the_numbers_are_numpy_s(
    watched: Watched, file: Path, look: Look, tmp_path: Path, head: str, level: str, special: str
) -> None:
    page = opened(watched.open(file, f"#heads={head}"), head)
    choose(page, "level", level)
    hide(page, special)
    state = {"show": "all tokens shown", "hide": "hidden", "renormalise": "hidden, renormalised"}[
        special
    ]
    opened(page, head, level, state)
    assert state in page.inner_text("#caption")
    shown = numbers_in(saved(page, "#csv", tmp_path))

    name, layer, number = head.split(".")
    position = ["encoder", "cross"].index(name)
    stack = look.stacks[position]
    stored = maps_in(look.page(), int(layer), name).values[int(number)]
    true = stack.weights[int(layer), int(number)].astype(np.float64)
    np.testing.assert_allclose(
        shown, expected(stored, stack.query, stack.key, level, special), rtol=0.005, atol=1e-7
    )
    left = (
        expected(true, stack.query, stack.key, level, "hide").sum(axis=1).min()
        if special == "renormalise"
        else 1
    )
    np.testing.assert_allclose(
        shown, expected(true, stack.query, stack.key, level, special), atol=0.006 / left
    )
    if special != "hide":
        np.testing.assert_allclose(shown.sum(axis=1), 1, atol=0.02)


def test_a_click_opens_a_head_and_hovering_tells_the_pair_and_its_weight(
    watched: Watched, file: Path, look: Look
) -> None:
    page = drawn(watched.open(file))
    page.get_by_label("encoder.2.3", exact=True).click()
    opened(page, "encoder.2.3", "tokens", "all tokens shown", "square root")
    assert page.inner_text("#name") == "encoder.2.3"
    assert "heads=encoder.2.3" in page.url
    box = page.locator("#maps canvas").first.bounding_box()
    assert box is not None
    for share in (0.35, 0.5, 0.65):
        page.mouse.move(box["x"] + box["width"] * share, box["y"] + box["height"] * (share + 0.2))
        pair, weight = page.inner_text("#tip .pair"), page.inner_text("#tip b")
        query, key = (
            SOURCE.token_labels().index(text.strip("\u2068\u2069")) for text in pair.split(" → ")
        )
        assert float(weight) == pytest.approx(look.stacks[0].weights[2, 3, query, key], abs=0.006)
    page.mouse.move(1, 1)
    expect(page.locator("#tip")).to_be_hidden()


def test_rows_are_queries_and_columns_are_keys(watched: Watched, file: Path, look: Look) -> None:
    page = opened(watched.open(file, "#heads=cross.1.2"), "cross.1.2")
    page.locator("#maps canvas").first.focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    assert page.inner_text("#tip .pair") == "\u2068magni\u2069 → \u2068light\u2069"
    assert float(page.inner_text("#tip b")) == pytest.approx(
        look.stacks[1].weights[1, 2, 2, 1], abs=0.006
    )


def test_heads_that_are_off_are_hatched_and_named(
    watched: Watched, tmp_path: Path, look: Look
) -> None:
    page = drawn(
        watched.open(replace(look, off="encoder.0.1,encoder.2.*").save(tmp_path / "look.html"))
    )
    expect(page.locator(".edits")).to_have_text(
        "Heads switched off (ablated): encoder.0.1, encoder.2.*. Their maps are hatched."
    )
    off = page.locator(".cell.off .thumb")
    expect(off).to_have_count(1 + HEADS)
    assert "switched off" in (off.first.get_attribute("title") or "")
    assert "repeating-linear-gradient" in off.first.evaluate(
        "(one) => getComputedStyle(one).backgroundImage"
    )
    page = drawn(watched.open(look.save(tmp_path / "on.html")))
    expect(page.locator(".cell.off")).to_have_count(0)
    expect(page.locator(".edits")).to_have_count(0)


@pytest.mark.parametrize("direction", ["to", "by"])
def test_the_text_is_read_in_both_directions(
    watched: Watched, file: Path, look: Look, direction: str
) -> None:
    page = opened(watched.open(file, f"#heads=encoder.0.1&direction={direction}"), "encoder.0.1")
    page.locator("#texts .unit", has_text="keeper").click()
    assert "token=3" in page.url
    weights = look.stacks[0].weights[0, 1]
    row = weights[3] if direction == "to" else weights[:, 3]
    table = page.locator("#ranking tr").evaluate_all(
        "all => all.map(one => [...one.cells].map(cell => cell.textContent))"
    )
    best = [int(position) for _, position, _, _ in table]
    assert [float(number) for *_, number in table] == pytest.approx(
        sorted(row, reverse=True)[:8], abs=0.006
    )
    assert row[best[0]] == pytest.approx(row.max(), abs=0.004)
    expect(page.locator("#asked")).to_have_text(
        re.compile("keeper.* attends to|keeper.* is attended to by")
    )


def test_the_planted_token_is_text_and_nothing_else(
    watched: Watched, file: Path, tmp_path: Path
) -> None:
    for fragment in ("", "#heads=encoder.1.1", "#heads=cross.1.1&level=words&direction=by"):
        page = watched.open(file, fragment)
        drawn(page)
        assert page.evaluate("window.__pwned") is None
        assert page.locator("img, svg, iframe").count() == 0
        assert page.inner_text("h1") == f"toy {PLANTED}"
    assert page.locator("#texts .unit", has_text=PLANTED).count() == 1
    assert page.locator("#texts .unit", has_text="rowed.").get_attribute("title") == "row ##ed ##."
    page.locator("#texts .unit", has_text=PLANTED).hover()
    drawing = ElementTree.parse(saved(page, "#svg", tmp_path))
    tags = {element.tag.split("}")[1] for element in drawing.iter()}
    assert tags <= {"svg", "title", "g", "rect", "text"}
    assert any((element.text or "").startswith("</script><img") for element in drawing.iter())
    assert page.evaluate("window.__pwned") is None


def test_a_formula_in_the_table_is_marked_as_text(
    watched: Watched, file: Path, tmp_path: Path
) -> None:
    page = opened(watched.open(file, "#heads=encoder.0.0"), "encoder.0.0")
    table = saved(page, "#csv", tmp_path)
    assert table.name == "encoder.0.0-map-tokens.csv"
    with table.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert list(rows[0]) == ["head", "query", "query_text", "key", "key_text", "weight"]
    assert {row["key_text"] for row in rows if row["key"] == "8"} == {"'=2+3"}
    assert {row["key_text"] for row in rows if row["key"] == "4"} == {PLANTED}


def test_pictures_are_saved_with_their_state_written_in_them(
    watched: Watched, file: Path, tmp_path: Path
) -> None:
    page = opened(
        watched.open(file, "#heads=encoder.1.0&level=words&hide=special,renormalise"),
        "renormalised",
    )
    assert saved(page, "#png", tmp_path).read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    drawing = ElementTree.parse(saved(page, "#svg", tmp_path))
    texts = [element.text or "" for element in drawing.iter() if element.tag.endswith("}text")]
    assert any(
        "encoder.1.0 · words · special tokens hidden, renormalised" in text for text in texts
    )
    assert "lighthouse" in texts
    assert "[CLS]" not in texts


def test_the_address_of_the_page_keeps_the_view(watched: Watched, file: Path) -> None:
    page = drawn(watched.open(file))
    page.get_by_label("encoder.0.3", exact=True).click()
    choose(page, "level", "words")
    page.select_option("#colours", "head linear")
    opened(page, "encoder.0.3", "words", "linear")
    address = page.url
    caption = page.inner_text("#caption")
    page.go_back()
    expect(page.locator("#head")).to_be_hidden()
    watched.open(file, "#" + address.split("#")[1])
    opened(page, "encoder.0.3", "words", "linear")
    assert page.inner_text("#caption") == caption


@pytest.mark.parametrize(
    "fragment",
    [
        "#heads=encoder.99.0",
        "#heads=nothing",
        "#heads=1.2",
        "#level=%3Cb%3E&token=-1",
        "#heads=a.0.0&token=99",
        "#show=b&off=0.1&order=role&text=other",
    ],
)
def test_a_wrong_address_shows_the_overview(watched: Watched, file: Path, fragment: str) -> None:
    page = drawn(watched.open(file, fragment))
    expect(page.locator("#head")).to_be_hidden()


@pytest.mark.parametrize("fragment", ["#heads=1.2", "#heads=encoder.1.2"])
def test_a_head_of_the_only_stack_is_written_without_it_and_found_either_way(
    watched: Watched, look: Look, tmp_path: Path, fragment: str
) -> None:
    file = Look("toy", ("text",), (raw(look.stacks[0]),)).save(tmp_path / "look.html")
    page = opened(watched.open(file, fragment), "1.2")
    assert page.inner_text("#name") == "1.2"
    choose(page, "level", "words")
    opened(page, "1.2", "words")
    assert page.url.endswith("#heads=1.2&level=words")
    with page.expect_download() as download:
        page.click("#csv")
    assert download.value.suggested_filename == "1.2-map-words.csv"


def test_everything_can_be_reached_by_keyboard(watched: Watched, file: Path) -> None:
    page = drawn(watched.open(file))
    page.get_by_label("encoder.0.0", exact=True).focus()
    for key in (
        "ArrowRight",
        "ArrowDown",
        "ArrowDown",
        "ArrowLeft",
        "ArrowLeft",
        "ArrowRight",
        "Enter",
    ):
        page.keyboard.press(key)
    opened(page, "encoder.2.1")
    page.keyboard.press("Escape")
    expect(page.locator("#head")).to_be_hidden()


def test_stacks_have_their_own_overview(watched: Watched, file: Path) -> None:
    page = drawn(watched.open(file))
    assert page.locator(".thumb").count() == LAYERS * (HEADS + 1)
    choose(page, "stack", "cross")
    assert page.locator(".thumb").count() == 2 * (3 + 1)
    page.get_by_label("cross.1.0", exact=True).click()
    opened(page, "cross.1.0")
    assert page.locator("#texts .side").count() == 2
    assert page.locator("#texts .flow").first.get_attribute("dir") == "ltr"


def test_a_layer_s_mean_and_the_sums_under_the_pointer(
    watched: Watched, file: Path, look: Look, tmp_path: Path
) -> None:
    page = drawn(watched.open(file))
    page.get_by_label("mean of layer 2", exact=True).click()
    opened(page, "encoder.2.mean")
    mean = look.stacks[0].weights[2].mean(axis=0)
    np.testing.assert_allclose(numbers_in(saved(page, "#csv", tmp_path)), mean, atol=0.005)
    page.locator("#maps canvas").first.focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):  # the first press leads to the first cell
        page.keyboard.press(key)
    row, column = re.findall(r"\d\.\d+", page.inner_text("#tip small"))
    assert float(row) == pytest.approx(1, abs=0.02)
    assert float(column) == pytest.approx(mean[:, 1].sum(), abs=0.02)


def test_a_row_that_is_stretched_to_1_says_what_from(
    watched: Watched, file: Path, look: Look, tmp_path: Path
) -> None:
    page = opened(
        watched.open(file, "#heads=encoder.1.2&hide=special,renormalise"),
        "encoder.1.2",
        "renormalised",
    )
    shown = numbers_in(saved(page, "#csv", tmp_path))
    np.testing.assert_allclose(shown.sum(axis=1), 1, atol=0.02)
    page.locator("#maps canvas").first.focus()
    page.keyboard.press("ArrowDown")
    sums = re.fullmatch(
        r"row sum 1 \((\d\.\d+) before renormalising\) · column sum (\d\.\d+)",
        page.inner_text("#tip small"),
    )
    assert sums is not None
    stack = look.stacks[0]
    kept = [at for at, is_special in enumerate(stack.key.special) if not is_special]
    first = next(at for at, is_special in enumerate(stack.query.special) if not is_special)
    assert float(sums[1]) == pytest.approx(stack.weights[1, 2][first, kept].sum(), abs=0.02)
    assert float(sums[2]) == pytest.approx(shown[:, 0].sum(), abs=0.02)


def test_arcs_of_several_heads(watched: Watched, file: Path, look: Look, tmp_path: Path) -> None:
    page = opened(watched.open(file, "#heads=encoder.1.2&view=arcs"), "encoder.1.2")
    page.get_by_label("encoder.0.3", exact=True).click(modifiers=["Shift"])
    opened(page, "encoder.1.2, encoder.0.3")
    expect(page.locator(".chip")).to_have_count(2)
    drawing = ElementTree.parse(saved(page, "#svg", tmp_path))
    colours = {element.get("stroke") for element in drawing.iter() if element.tag.endswith("}path")}
    assert len(colours) == 2
    with saved(page, "#csv", tmp_path).open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert [row["head"] for row in rows] == ["encoder.1.2"] * 100 + ["encoder.0.3"] * 100
    result = np.array([float(row["weight"]) for row in rows[100:]]).reshape(10, 10)
    np.testing.assert_allclose(result, look.stacks[0].weights[0, 3], atol=0.005)


def test_punctuation_and_itself_are_hidden_too(
    watched: Watched, file: Path, look: Look, tmp_path: Path
) -> None:
    page = opened(
        watched.open(file, "#heads=encoder.1.2&hide=special,itself,renormalise"),
        "diagonal hidden, renorm",
    )
    assert page.locator('input[name="punctuation"]').is_disabled()  # this text has none
    shown = numbers_in(saved(page, "#csv", tmp_path))
    weights = look.stacks[0].weights[1, 2][1:9, 1:9].astype(np.float64)
    np.fill_diagonal(weights, 0)
    np.testing.assert_allclose(shown, weights / weights.sum(axis=1, keepdims=True), atol=0.05)
    assert (np.diag(shown) == 0).all()


def test_what_needs_a_model_is_not_there(watched: Watched, file: Path) -> None:
    page = opened(
        watched.open(file, "#heads=encoder.1.2&off=encoder.0.0&show=change"), "encoder.1.2"
    )
    assert (
        page.locator(
            "textarea, .switch, #power, #shows, #order, #card, #answers, .off, .moved"
        ).count()
        == 0
    )
    for key in ("o", "u", "/"):
        page.keyboard.press(key)
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()
    assert "Switch a head off" not in page.inner_text("#help")
    assert page.locator("#keys dt").count() > 8
    assert "off" not in page.inner_text("#keys")


@pytest.mark.parametrize(
    ("width", "scheme"), [(1400, "light"), (390, "dark"), slow(1400, "dark"), slow(390, "light")]
)
def test_axe_finds_nothing_serious_and_nothing_spills(
    browser: Browser, file: Path, scheme: str, width: int
) -> None:
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True
    )
    page = context.new_page()
    for fragment in (
        "",
        "#heads=encoder.1.2",
        "#heads=cross.1.0&view=arcs",
        "#stack=cross&level=words",
    ):
        page.goto("about:blank")
        page.goto(file.as_uri() + fragment)
        opened(page, "1.") if "heads" in fragment else drawn(page)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (
            f"{fragment} spills at {width}"
        )
        assert not serious(page), fragment
    context.close()


def test_hovering_answers_at_once_at_128_tokens(watched: Watched, tmp_path: Path) -> None:
    side = plain_side(128)
    stack = StackMaps("decoder", side, side, softmax_maps(1, 1, 128, 128))
    page = watched.open(Look("m", ("t",), (raw(stack),)).save(tmp_path / "look.html"), "#heads=0.0")
    opened(page, "0.0")
    record, painted = page.locator("#maps canvas").first.evaluate(
        """map => {
            const box = map.getBoundingClientRect(), told = [], put = CanvasRenderingContext2D.prototype.putImageData;
            let painted = 0;
            CanvasRenderingContext2D.prototype.putImageData = function (...all) { painted += 1; put.apply(this, all); };
            for (let step = 0; step < 40; step++) {
                const at = { clientX: box.left + 150 + 9 * step, clientY: box.top + 200 + 7 * step };
                map.dispatchEvent(new PointerEvent("pointermove", at));
                told.push(document.querySelector("#tip .pair").textContent);
            }
            return [told, painted];
        }"""
    )
    assert all(record), "the tip is there when the event is over"
    assert len(set(record)) > 20
    assert painted == 0, "the map itself is not drawn again"


def test_dark_and_light_differ_and_both_are_quiet(browser: Browser, file: Path) -> None:
    colours = []
    for scheme in ("light", "dark"):
        context = browser.new_context(color_scheme=scheme)
        page = context.new_page()
        page.goto(file.as_uri())
        drawn(page)
        colours.append(page.evaluate("getComputedStyle(document.documentElement).backgroundColor"))
        context.close()
    assert colours[0] != colours[1]


def test_dark_is_chosen_by_key(watched: Watched, file: Path) -> None:
    page = drawn(watched.open(file))
    paper = "getComputedStyle(document.documentElement).backgroundColor"
    light = page.evaluate(paper)
    page.keyboard.press("t")
    dark = page.evaluate(paper)
    assert (
        sum(map(int, re.findall(r"\d+", dark)))
        < 150
        < 600
        < sum(map(int, re.findall(r"\d+", light)))
    )


def test_in_a_notebook_the_page_works_inside_its_sandbox(
    watched: Watched, look: Look, tmp_path: Path
) -> None:
    notebook = tmp_path / "notebook.html"
    notebook.write_text(
        f"<!doctype html><meta charset=utf-8><body>{look._repr_html_()}</body>", "utf-8"
    )
    page = watched.open(notebook)
    frame = page.frame_locator("iframe")
    frame.get_by_label("encoder.1.3", exact=True).click()
    expect(frame.locator("#name")).to_have_text("encoder.1.3")
    frame.locator("#show-help").click()
    expect(frame.locator("#help")).to_be_visible()
    frame.locator("#close-help").click()
    frame.locator("#theme").click()
    with page.expect_download() as download:
        frame.locator("#csv").click()
    assert download.value.suggested_filename == "encoder.1.3-map-tokens.csv"
    assert json.loads(page.evaluate("JSON.stringify(window.__pwned ?? null)")) is None
