"""Roles and tables in a real browser: a role leads to its head, tables sort, examples are text."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page
from test_head_cards import EVIL, full

from browsers import Watched
from headscope.report.write import write_report


def unfold(page: Page) -> None:
    """Opens what is folded in the parts of the page."""
    page.evaluate("for (const fold of document.querySelectorAll('details.fold')) fold.open = true")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study")
    write_report(full(), folder)
    return folder / "index.html"


def test_a_role_opens_the_head_with_its_evidence(watched: Watched, report: Path) -> None:
    page = watched.open(report)
    unfold(page)
    page.click("#part-roles a[data-head='1.3'] >> nth=0")
    assert page.text_content("#card h3") == "All statistics of head 1.3"
    assert page.text_content("#does h3") == "Head 3 of layer 1 (1.3)"
    first = page.locator("#does details.role").first
    assert (
        first.locator("summary").text_content()
        == "syntactic: nsubj 0.700 [0.600, 0.800], baseline 0.400"
    )
    example = first.locator(".example").first
    assert example.text_content() == "The nsubj sleeps here . 0.90"
    assert example.locator(".query").text_content() == "nsubj"
    assert example.locator(".key").text_content() == "sleeps"
    assert first.locator(".example").nth(1).locator(".expected").text_content() == "sleeps"
    assert (
        page.text_content("#does li >> nth=0")
        == "most similar head: 0.1 (Jensen–Shannon divergence 0.01 nats)"
    )
    page.click("#does li a")
    assert page.text_content("#card h3") == "All statistics of head 0.1"


def test_tables_sort_both_ways_and_leave_gaps_last(watched: Watched, report: Path) -> None:
    page = watched.open(report)
    unfold(page)
    column = page.locator("#part-relations tbody td:first-child")
    page.click("#part-relations th:last-child button")
    assert column.all_text_contents() == ["nsubj", "vocative"]
    page.click("#part-relations th:last-child button")
    assert column.all_text_contents() == ["vocative", "nsubj"]
    for _ in range(2):
        page.click("#part-relations th:nth-child(4) button")
        assert column.all_text_contents() == ["nsubj", "vocative"]
    assert page.get_attribute("#part-relations th:nth-child(4)", "aria-sort") == "ascending"


def test_words_of_the_data_are_text_and_nothing_is_wider_than_a_telephone(
    watched: Watched, tmp_path: Path
) -> None:
    write_report(full(word=EVIL), tmp_path)
    watched.page.set_viewport_size({"width": 390, "height": 800})
    page = watched.open(tmp_path / "index.html")
    page.click("#grids td[data-head='1.3']")
    assert page.locator("#does img").count() == 0
    assert EVIL[:20] in (page.text_content("#does .example") or "")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
