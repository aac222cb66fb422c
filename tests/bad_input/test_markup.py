"""Nothing from a text, a token, a directory or a file name becomes markup in a page."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest
from command_result import MALICE, WORDS, Run, save_tokenizer

from headscope.report.write import write_report


class Elements(HTMLParser):
    """What a browser would make of a page: elements that load or run something, and attributes that run."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.images: list[str] = []
        self.handlers: list[str] = []
        self.scripts = 0
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handlers += [name for name, _ in attributes if name.startswith("on")]
        self.scripts += tag == "script"
        if tag in ("img", "image", "iframe", "object", "embed", "link"):
            self.images += [
                value or "" for name, value in attributes if name in ("src", "href", "data")
            ]


def assert_inert(page: Path, plain: Path) -> None:
    """The page has the elements of one with harmless names, and none that asks for x or runs an attribute."""
    result, usual = Elements(page.read_text("utf-8")), Elements(plain.read_text("utf-8"))
    assert result.handlers == []
    assert [source for source in result.images if not source.startswith("data:")] == [
        source for source in usual.images if not source.startswith("data:")
    ]
    assert result.scripts == usual.scripts
    assert MALICE not in page.read_text("utf-8")


@pytest.fixture
def malicious(work_folder: Path) -> Path:
    """A model in `x<` / `script><img …>`, whose path reads as an end of script; its tokens are no better."""
    model = work_folder / f"x{MALICE}"
    model.parent.mkdir()
    (work_folder / "bert").rename(model)
    save_tokenizer(model, words=[*WORDS, "<img", MALICE.lower(), "[/red]"])
    return model.relative_to(work_folder)


def test_look_shows_malice_as_text(
    work_folder: Path, models_folder: Path, malicious: Path, run: Run
) -> None:
    assert run("look", models_folder / "bert", "the cat", "--out", "plain.html").status == 0
    output = run(
        "look", malicious, f"the {MALICE} cat", "--out", "<img src=x onerror=alert(1)>.html"
    )
    assert output.status == 0, output.err
    assert_inert(work_folder / "<img src=x onerror=alert(1)>.html", work_folder / "plain.html")


def test_the_study_page_shows_malice_as_text(
    work_folder: Path,
    models_folder: Path,
    malicious: Path,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from headscope.report import write as writer

    corpus = work_folder / f"c{MALICE}.txt"
    corpus.parent.mkdir()
    corpus.write_text(f"the {MALICE} cat\n{MALICE}\n")
    monkeypatch.setattr(writer, "write_report", write_report)  # with figures, this once
    options = ("--statistics", "entropy")
    plain = run(
        "analyze", models_folder / "bert", "--corpus", "good.txt", "--out", "plain", *options
    )
    assert plain.status == 0, plain.err
    output = run("analyze", malicious, "--corpus", corpus, "--out", f"s{MALICE}", *options)
    assert output.status == 0, output.err
    assert_inert(work_folder / f"s{MALICE}" / "index.html", work_folder / "plain" / "index.html")
    for figure in (work_folder / f"s{MALICE}" / "figures").glob("*.svg"):
        assert MALICE not in figure.read_text("utf-8")
