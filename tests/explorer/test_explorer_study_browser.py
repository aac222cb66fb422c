"""The explorer in a real browser: with a study beside it, when the server forgets and when it is gone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from beside import EVIL, full, model
from pages import Opened, drawn, head_of, shows
from playwright.sync_api import Page, expect

from browsers import Watched
from headscope.explorer.serving import Explorer, serve
from headscope.study.study_dir import write_tables

pytestmark = pytest.mark.browser


@pytest.fixture
def explorer(tmp_path: Path) -> Iterator[Explorer]:
    made = model()
    write_tables(full(made), tmp_path)
    with serve(
        made, study=tmp_path, port=0, browser=False, wait=False, log=lambda line: None
    ) as running:
        yield running


@pytest.fixture
def page(opened: Opened) -> Page:
    return opened()


def test_all_unimportant_heads_are_switched_off_at_once_and_back(page: Page) -> None:
    choice = page.locator("#unimportant button").first
    expect(choice).to_have_text(
        "Switch off 2 heads that raise the loss by less than 0.01 each (100 examples)"
    )
    expect(choice).to_have_attribute(
        "title", re.compile(r"^0\.1, 0\.2: .*Together they may cost more")
    )
    choice.click()
    expect(page.locator("#off")).to_contain_text("2 of 8 heads off")
    expect(page.locator("#off .list")).to_have_text("0.1, 0.2")
    assert "off=0.1%2C0.2" in page.url
    page.click("#undo")
    expect(page.locator("#off")).to_contain_text("All 8 heads are on")


def test_an_example_of_the_corpus_opens_in_the_map(page: Page) -> None:
    page.click(head_of("1.3"))
    shows(page, "1.3")
    expect(page.locator("#card")).to_contain_text("syntactic: nsubj")
    example = page.locator("#card .example").first
    assert example.locator("b").inner_text() == "cat"
    assert example.locator("mark").inner_text() == "<b>", "markup in a study is text"
    example.click()
    expect(page.locator("#text")).to_have_value("the cat <b>")
    drawn(page)
    expect(page.locator("#texts .unit.source")).to_have_text("cat")
    expect(page.locator("#asked")).to_contain_text("cat")
    expect(page.locator("#card .of-role")).to_have_text(["syntactic: nsubj"])
    assert page.input_value('input[name="level"]:checked') == "words"


def test_heads_in_the_order_of_a_number_show_it(page: Page) -> None:
    page.select_option("#order", "ablation-loss")
    notes = page.locator(".frame:visible .tag.note")
    expect(notes).to_have_count(8)
    numbers = [float(text.replace("−", "-")) for text in notes.all_inner_texts()]
    assert numbers == sorted(numbers, reverse=True)
    assert len(set(numbers)) > 1


def test_a_card_links_to_the_similar_head_and_shows_markup_as_text(page: Page) -> None:
    page.click(head_of("0.1"))
    expect(page.locator("#card")).to_contain_text(EVIL)
    expect(page.locator("#card")).to_contain_text("distance 0.25 nats")
    page.locator("#card button.link").click()
    shows(page, "1.2")


def test_what_the_server_has_forgotten_is_asked_again(
    page: Page, explorer: Explorer, watched: Watched
) -> None:
    explorer.server.states._states.clear()
    page.click(head_of("1.1"))
    shows(page, "1.1")
    expect(page.locator("#error")).to_be_hidden()
    assert all(
        "404" in complaint for complaint in watched.complaints
    )  # the browser's own note of the refusal
    watched.complaints.clear()


def test_a_server_that_was_stopped_is_reported(
    page: Page, explorer: Explorer, watched: Watched
) -> None:
    explorer.stop()
    page.fill("#text", "a dog ran .")
    expect(page.locator("#error")).to_contain_text("start it again: headscope serve")
    assert all("ERR_CONNECTION" in complaint for complaint in watched.complaints)
    watched.complaints.clear()
