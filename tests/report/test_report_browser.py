"""The report in a real browser: from disk, offline, with hostile names, on a phone, on paper, for a screen reader."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from every_table import every_table
from playwright.sync_api import Browser, Page
from test_report import two_models

from browsers import Watched, serious
from headscope.analysis.join import join
from headscope.report.write import write
from sampling import slow

pytestmark = pytest.mark.browser
HOSTILE = "</script><img src=x onerror=alert(1)>\u202egnp{{7*7}}<!--"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(join(two_models(HOSTILE)), tmp_path_factory.mktemp("report") / "index.html")


def saved(page: Page, selector: str, into: Path) -> pd.DataFrame:
    page.evaluate("for (const fold of document.querySelectorAll('details.fold')) fold.open = true")
    with page.expect_download() as waiting:
        page.click(selector)
    waiting.value.save_as(into)
    return pd.read_csv(into)


def test_hostile_names_stay_text(watched: Watched, report: Path) -> None:
    page = watched.open(report)
    assert page.locator("img[src='x']").count() == 0
    assert "{{7*7}}" in (page.text_content("body") or "")
    assert "\u202e" not in (page.text_content("main") or "")
    page.select_option("#statistic", label="main role")
    page.click("#grids td[data-head='1.3']")
    assert "{{7*7}}" in (page.text_content("#does") or "")


def test_files_hold_what_the_study_does(watched: Watched, report: Path, tmp_path: Path) -> None:
    page, study = watched.open(report), every_table(HOSTILE)
    heads = saved(page, "#figure-heat-entropy a.csv", tmp_path / "heads.csv")
    expected = study.heads[study.heads["statistic"] == "entropy"]
    assert list(heads["value"]) == pytest.approx(list(expected["value"]), rel=1e-5)
    front = saved(page, "#part-front p a.csv", tmp_path / "front.csv")
    assert list(front["metric"]) == [0.8, 0.8]
    other = saved(
        page, "section:has-text('mixes tokens · study 2') p a.csv", tmp_path / "mixing.csv"
    )
    assert list(other["value"]) == [0.9]
    offsets = saved(page, "#figure-offsets-encoder a.csv", tmp_path / "offsets.csv")
    assert offsets.query("layer == 1 and head == 2")["mass"].sum() == pytest.approx(1, abs=1e-3)
    maps = saved(page, "#figure-mean-map-encoder a.csv", tmp_path / "maps.csv")
    row = maps.query("layer == 1 and head == 2 and query == 5").filter(like="key_").iloc[0]
    assert list(row) == pytest.approx(list(study.maps["map/encoder"][1, 2, 5]), abs=0.01)
    layers = saved(page, "#figure-c0-compare-layers-encoder a.csv", tmp_path / "layers.csv")
    assert set(layers["statistic"]) == {"previous", "entropy", "cls"}


def test_each_model_has_an_explorer_of_its_own(watched: Watched, report: Path) -> None:
    page = watched.open(report)
    page.select_option("#m1-statistic", label="Entropy of attention")
    page.click("#m1-grids td[data-head='0.2']")
    assert page.text_content("#m1-card h3") == "All statistics of head 0.2"
    assert page.text_content("#card h3") != "All statistics of head 0.2"
    link = page.locator("#findings a.head[data-chapter='1']").first
    link.evaluate("link => { link.closest('details, ol').open = true; }")
    link.click()
    assert (
        page.text_content("#m1-card h3")
        == f"All statistics of head {link.get_attribute('data-head')}"
    )


def test_lenses_are_folded_on_a_card(watched: Watched, report: Path) -> None:
    page = watched.open(report)
    groups = page.locator("#card details")
    named = ["importance (1)", "attention (4)", "patterns (2)", "lens norm (1)"]
    assert groups.locator("summary").all_text_contents() == named
    assert [groups.nth(i).get_attribute("open") is not None for i in range(4)] == [
        True,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("width", "scheme"), [(1400, "light"), (390, "dark"), slow(1400, "dark"), slow(390, "light")]
)
def test_axe_finds_nothing_serious(browser: Browser, report: Path, scheme: str, width: int) -> None:
    viewport = {"width": width, "height": 900}
    context = browser.new_context(
        viewport=viewport, color_scheme=scheme, bypass_csp=True, offline=True
    )  # type: ignore[arg-type]
    page = Watched(context.new_page()).open(report)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (
        f"it spills at {width}"
    )
    assert not serious(page)
    context.close()


def test_on_paper_nothing_is_folded_and_nothing_spills(watched: Watched, report: Path) -> None:
    page = watched.open(report)
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 718, "height": 1000})  # A4 less its margins
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open])").count() == 0
    assert not page.locator("nav").is_visible()
    assert not page.locator("#explore .tools").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.locator("details:not([open])").count() > 0
