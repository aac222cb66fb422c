"""The page in a real browser: from disk, offline, with a pointer and with keys."""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
import pytest
from studies import RECORD, THREE, made_up, roled

from headscope.report.write import write_report
from headscope.study.study import Study
from headscope.tables import Row, to_frame

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on the path"),
]
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@dataclass
class Visit:
    """An open page and what went wrong or out while it was open."""

    page: sync_api.Page
    study: Study
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def value(self, head: str, statistic: str, stack: str = "encoder") -> float:
        layer, number = (int(part) for part in head.split("."))
        rows = self.study.heads
        row = rows[(rows["stack"] == stack) & (rows["layer"] == layer) & (rows["head"] == number)]
        return float(row[row["statistic"] == statistic]["value"].iloc[0])

    def choose(self, statistic: str) -> None:
        value = self.page.get_attribute(f"#statistic option[data-name='{statistic}']", "value")
        self.page.select_option("#statistic", value)

    def column(self, number: int) -> list[str]:
        return self.page.locator(f"#heads tbody td:nth-child({number})").all_text_contents()


@pytest.fixture(scope="module")
def browser() -> Iterator[sync_api.Browser]:
    with sync_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Study, Path]]:
    result = {}
    for name, study in (("one stack", made_up()), ("three stacks", made_up(THREE))):
        folder = tmp_path_factory.mktemp("study")
        write_report(study, folder)
        result[name] = (study, folder)
    return result


def _visit(browser: sync_api.Browser, study: Study, folder: Path) -> Iterator[Visit]:
    context = browser.new_context(offline=True, viewport={"width": 1200, "height": 900})
    visit = Visit(context.new_page(), study)
    visit.page.on("console", lambda message: visit.complaints.append(message.text))
    visit.page.on("pageerror", lambda error: visit.complaints.append(str(error)))
    visit.page.on("request", lambda request: visit.requests.append(request.url))
    visit.page.goto((folder / "index.html").as_uri())
    yield visit
    context.close()
    assert visit.complaints == []
    assert [url for url in visit.requests if not url.startswith(("file:", "data:", "blob:"))] == []


@pytest.fixture
def visit(browser: sync_api.Browser, folders: dict[str, tuple[Study, Path]]) -> Iterator[Visit]:
    yield from _visit(browser, *folders["one stack"])


@pytest.fixture
def wide_visit(
    browser: sync_api.Browser, folders: dict[str, tuple[Study, Path]]
) -> Iterator[Visit]:
    yield from _visit(browser, *folders["three stacks"])


def test_the_page_opens_from_disk_with_one_request(visit: Visit) -> None:
    assert visit.page.title() == "tiny · attention heads"
    assert len([url for url in visit.requests if url.startswith("file:")]) == 1
    assert visit.page.locator("#grids td[data-head]").count() == 8


def test_another_statistic_changes_grid_definition_and_table(visit: Visit) -> None:
    visit.choose("entropy")
    assert (
        visit.page.locator("td[data-head='1.2']").text_content()
        == f"{visit.value('1.2', 'entropy'):.1f}"
    )
    assert visit.page.text_content("#table-name") == "Entropy of attention entropy"
    assert visit.column(2) == [
        f"{v:.3f}" for v in sorted((visit.value(h, "entropy") for h in _all()), reverse=True)
    ]
    visit.choose("previous")
    assert (
        visit.page.text_content("#definition")
        == "previous Share of attention to the token before the query token, averaged over queries."
    )


def test_worse_has_one_colour_whether_a_loss_rises_or_a_metric_falls(
    browser: sync_api.Browser, tmp_path: Path
) -> None:
    changes = {
        "ablation-loss": 1.0,
        "ablation-metric": -1.0,
    }  # worse, and as far as the scale reaches
    rows = [
        Row("encoder", 0, head, name, sign * change, math.nan, math.nan, 9)
        for name, sign in changes.items()
        for head, change in enumerate((0.3, -0.3, 0.0))
    ]
    study = Study(to_frame(rows), {}, RECORD)
    write_report(study, tmp_path)
    for visit in _visit(browser, study, tmp_path):
        shown = {}
        for name in changes:
            visit.choose(name)
            cells = visit.page.locator("#grids td[data-head] button, #grids td[data-head]")
            look = "cells => cells.map(cell => getComputedStyle(cell).backgroundColor)"
            shown[name] = cells.evaluate_all(look)
        assert shown["ablation-loss"] == shown["ablation-metric"]
        assert len(set(shown["ablation-loss"])) >= 3


def test_pointing_at_a_head_tells_value_interval_and_count(visit: Visit) -> None:
    visit.choose("cls")
    visit.page.hover("td[data-head='0.3']")
    value = visit.value("0.3", "cls")
    message = f"{value:.3f} [{0.98 * value:.3f}, {1.02 * value:.3f}]"
    expected = (
        f"Head 3 of layer 0 (0.3) Attention to the classification token: {message} from 1500 texts"
    )
    assert visit.page.text_content("#readout") == expected


def test_a_clicked_head_opens_its_card_with_the_numbers_of_the_table(visit: Visit) -> None:
    visit.page.click("td[data-head='1.1']")
    assert visit.page.text_content("#card h3") == "All statistics of head 1.1"
    for statistic in ("self", "previous", "entropy", "confidence"):
        shown = visit.page.text_content(f"#card tr[data-statistic='{statistic}'] b")
        assert shown == f"{visit.value('1.1', statistic):.3f}"
    visit.page.wait_for_selector("#pictures canvas[data-ready=yes]")
    assert visit.page.locator("#pictures svg.profile rect").count() == 25


def test_the_mean_map_tells_the_weight_under_the_pointer(visit: Visit) -> None:
    visit.page.click("td[data-head='0.2']")
    visit.page.wait_for_selector("#pictures canvas[data-ready=yes]")
    box = visit.page.locator("#pictures canvas").bounding_box()
    assert box is not None
    side = box["width"] / 20
    visit.page.locator("#pictures canvas").hover(position={"x": 4.5 * side, "y": 7.5 * side})
    weight = visit.study.maps["map/encoder"][0, 2, 7, 4]
    shown = visit.page.text_content("#pictures .map-readout") or ""
    assert shown.startswith("query position 7, key position 4: ")
    assert float(shown.rpartition(" ")[2]) == pytest.approx(weight, abs=0.011)


def test_keys_move_between_heads_and_open_one(visit: Visit) -> None:
    visit.page.focus("td[data-head='0.0']")
    for key in ("ArrowRight", "ArrowDown", "ArrowRight", "Enter"):
        visit.page.keyboard.press(key)
    assert visit.page.text_content("#card h3") == "All statistics of head 1.2"
    assert visit.page.locator("#grids td[tabindex='0']").count() == 1


def test_the_table_sorts_by_any_column_both_ways(visit: Visit) -> None:
    visit.choose("self")
    visit.page.click("#heads button[data-sort=head]")
    assert visit.column(1) == _all()
    visit.page.click("#heads button[data-sort=head]")
    assert visit.column(1) == _all()[::-1]
    visit.page.click("#heads button[data-sort=value]")
    assert visit.column(1) == sorted(_all(), key=lambda head: -visit.value(head, "self"))
    visit.page.click("#heads button[data-sort=value]")
    assert visit.column(1) == sorted(_all(), key=lambda head: visit.value(head, "self"))
    assert visit.page.get_attribute("#heads th:nth-child(2)", "aria-sort") == "ascending"


def test_the_table_is_filtered_by_head_and_by_value(visit: Visit) -> None:
    visit.choose("self")
    visit.page.fill("#filter", "1.*, 0.2")
    assert sorted(visit.column(1)) == ["0.2", "1.0", "1.1", "1.2", "1.3"]
    visit.page.fill("#filter", "")
    middle = sorted(visit.value(head, "self") for head in _all())[4]
    visit.page.fill("#least", f"{middle - 1e-6:.7f}")
    assert len(visit.column(1)) == 4
    assert visit.page.text_content("#shown") == "4 of 8 heads"
    visit.page.fill("#filter", "(")
    assert visit.column(1) == []


def test_the_csv_holds_the_rows_as_shown(visit: Visit, tmp_path: Path) -> None:
    visit.choose("argmax-offset")
    visit.page.fill("#filter", "1.3")
    with visit.page.expect_download() as download:
        visit.page.click("#download")
    assert download.value.suggested_filename == "argmax-offset.csv"
    download.value.save_as(tmp_path / "rows.csv")
    assert (tmp_path / "rows.csv").read_text("utf-8").splitlines() == [
        "stack,layer,head,statistic,value,low,high,count",
        f"encoder,1,3,argmax-offset,{visit.value('1.3', 'argmax-offset'):.0f},,,1500",
    ]


def test_a_finding_leads_to_its_head(visit: Visit) -> None:
    visit.page.click("#findings summary")  # not among the first three
    link = visit.page.locator(".full a.head[data-statistic='entropy']").first
    label = link.get_attribute("data-head")
    link.click()
    assert visit.page.text_content("#card h3") == f"All statistics of head {label}"
    assert visit.page.text_content("#table-name code") == "entropy"


def test_three_stacks_have_three_grids_and_full_addresses(wide_visit: Visit) -> None:
    assert wide_visit.page.locator("#grids table").count() == 3
    wide_visit.choose("cls")
    wide_visit.page.click("td[data-head='cross.2.1']")
    shown = wide_visit.page.text_content("#card tr[data-statistic='cls'] b")
    assert shown == f"{wide_visit.value('2.1', 'cls', 'cross'):.3f}"
    wide_visit.choose("previous")
    assert wide_visit.page.locator("#grids table:visible").count() == 2
    assert (
        wide_visit.page.text_content("#readout")
        == "Head 1 of cross layer 2 (cross.2.1) Attention to the previous token: no value"
    )


def test_what_colours_is_chosen_by_its_plain_name_in_groups(visit: Visit) -> None:
    groups = visit.page.locator("#statistic optgroup")
    assert groups.evaluate_all("all => all.map(group => group.label)") == ["attention"]
    names = visit.page.locator("#statistic option").all_text_contents()
    assert "Attention to the previous token" in names
    assert not set(names) & set(visit.study.heads["statistic"])


def test_nothing_is_wider_than_a_telephone(visit: Visit) -> None:
    visit.page.set_viewport_size({"width": 390, "height": 800})
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= 390


def test_figures_stay_large_enough_to_read_on_a_telephone(visit: Visit) -> None:
    """As large as drawn, or 640 pixels wide, where words of 7 points are 10 pixels high; they are moved sideways."""
    visit.page.set_viewport_size({"width": 390, "height": 800})
    result = visit.page.eval_on_selector_all(
        ".plate svg",
        "all => all.map(svg => [parseFloat(svg.style.width), svg.getBoundingClientRect().width])",
    )
    assert result
    for drawn, seen in result:
        assert seen >= min(drawn, 640) - 1


def _small(browser: sync_api.Browser, folder: Path, width: int) -> Iterator[Visit]:
    """A study of small numbers and long words, in a window of this width."""
    study = made_up(
        {"encoder": (2, 12)}, ["gradient-fisher", "ablation-loss", "confidence-content"]
    )
    values = study.heads["statistic"].map(
        {"gradient-fisher": 1e-5, "ablation-loss": 2e-3, "confidence-content": 1.0}
    )
    for column in ("value", "low", "high"):
        study.heads[column] *= values
    study.heads.loc[study.heads["statistic"] == "gradient-fisher", "low"] *= -1
    study.tables["roles"] = pd.DataFrame([roled(head, "broad", 0.9) for head in range(12)])
    study.tables["ranks"] = pd.DataFrame(
        [{"importance": "gradient", "rank": float(rank)} for rank in range(20)]
    )
    write_report(study, folder)
    for visit in _visit(browser, study, folder):
        visit.page.set_viewport_size({"width": width, "height": 800})
        yield visit


@pytest.mark.parametrize("width", [1200, 390])
def test_strips_have_space_next_to_small_numbers(
    browser: sync_api.Browser, tmp_path: Path, width: int
) -> None:
    for visit in _small(browser, tmp_path, width):
        strips = visit.page.eval_on_selector_all(
            ".ranges svg", "all => all.map(one => one.getBoundingClientRect().width)"
        )
        assert min(strips) >= 60
        assert visit.page.eval_on_selector("#card", "card => card.scrollWidth <= card.clientWidth")
        shown = (
            visit.page.text_content("#card tr[data-statistic='gradient-fisher'] td:last-child")
            or ""
        )
        assert re.fullmatch(r"\d\.\d\d \[−?\d\.\d\d, \d+\.\d\d\] ×10⁻[⁵⁶⁷⁸]", shown)
        value = visit.value("0.0", "gradient-fisher")
        visit.page.click("td[data-head='0.0']")
        shown = visit.page.text_content("#card tr[data-statistic='gradient-fisher'] b") or ""
        assert float(shown) == pytest.approx(
            value / 10.0 ** math.floor(math.log10(1.02 * value)), abs=0.011
        )


def test_changes_of_the_loss_can_be_read_in_their_cells(
    browser: sync_api.Browser, tmp_path: Path
) -> None:
    study = made_up({"encoder": (1, 4)}, ["ablation-loss"])
    study.heads["value"] = [0.068, -0.012, -0.001, 0.2]
    write_report(study, tmp_path)
    for visit in _visit(browser, study, tmp_path):
        cells = [visit.page.text_content(f"td[data-head='0.{head}']") for head in range(4)]
        assert cells == [".07", "−.01", ".00", ".20"]


@pytest.mark.parametrize(("width", "shown"), [(1200, "diffuse"), (390, "dif")])
def test_a_word_is_on_one_line_of_its_cell(
    browser: sync_api.Browser, tmp_path: Path, width: int, shown: str
) -> None:
    for visit in _small(browser, tmp_path, width):
        cell = visit.page.locator("td[data-head='0.3']")
        brief = "cell => getComputedStyle(cell.querySelector('.brief'), '::before').content.slice(1, -1)"
        is_brief = cell.locator(".brief").evaluate(
            "span => getComputedStyle(span).display !== 'none'"
        )
        assert (cell.evaluate(brief) if is_brief else cell.inner_text()) == shown
        assert cell.evaluate("cell => cell.getClientRects()[0].height") <= 32
        assert cell.evaluate("cell => cell.scrollWidth <= cell.clientWidth + 1")
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
        right = visit.page.eval_on_selector(
            "#statistic", "select => select.getBoundingClientRect().right"
        )
        assert right <= width - 12


def test_on_paper_a_folded_table_is_short_and_says_so(
    browser: sync_api.Browser, tmp_path: Path
) -> None:
    for visit in _small(browser, tmp_path, 718):
        visit.page.emulate_media(media="print")
        visit.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        rows = visit.page.locator(".sheets tbody tr")
        assert [row.is_visible() for row in rows.all()] == [True] * 12 + [False] * 8
        assert visit.page.locator(".on-paper").is_visible()
        visit.page.emulate_media(media="screen")
        assert rows.last.is_visible()
        assert not visit.page.locator(".on-paper").is_visible()


def test_the_labels_of_the_offsets_are_inside_their_picture(visit: Visit) -> None:
    visit.page.click("td[data-head='0.2']")
    inside = """svg => { const all = svg.getBoundingClientRect();
        return [...svg.querySelectorAll("text")].every((text) => { const one = text.getBoundingClientRect();
            return one.left >= all.left && one.right <= all.right; }); }"""
    assert visit.page.eval_on_selector("#pictures svg.profile", inside)
    labels = visit.page.locator("#pictures svg.profile text").all_text_contents()
    assert labels[-1] == "+12"


def _all() -> list[str]:
    return [f"{layer}.{head}" for layer in range(2) for head in range(4)]
