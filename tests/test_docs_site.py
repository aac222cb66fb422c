"""The documentation site: every link and anchor leads somewhere, and reading it needs no network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import headscope

ROOT = Path(__file__).parent.parent
EXTERNAL = re.compile(
    r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=[\"']?(?:https?:)?//[^\s\"'>]+"
)
CSS_EXTERNAL = re.compile(r"(?:@import\s+|url\()[\"']?(?:https?:)?//")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="the site is built by mkdocs: pip install '.[docs]'")
    pytest.importorskip("material", reason="the site needs mkdocs-material: pip install '.[docs]'")
    out = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--quiet",
        "--site-dir",
        str(out),
    ]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def test_every_page_is_built_and_every_link_leads_somewhere(site: Path) -> None:
    """A broken link, a missing anchor or a page outside the navigation fails the strict build."""
    pages = {p.relative_to(ROOT / "docs").with_suffix("") for p in (ROOT / "docs").rglob("*.md")}
    built = {p.relative_to(site).with_suffix("") for p in site.rglob("*.html")}
    assert {p.with_name("index") if p.name == "README" else p for p in pages} <= built


def test_every_public_name_is_on_the_page_of_python(site: Path) -> None:
    page = (site / "reference" / "python.html").read_text("utf-8")
    missing = [name for name in headscope._WHERE if f'<h3 id="{name.lower()}' not in page]
    assert missing == []


def test_the_site_loads_nothing_from_a_network(site: Path) -> None:
    loaded = [
        match
        for page in site.rglob("*.html")
        for match in EXTERNAL.findall(page.read_text("utf-8"))
    ]
    styles = [
        file.name for file in site.rglob("*.css") if CSS_EXTERNAL.search(file.read_text("utf-8"))
    ]
    assert (loaded, styles) == ([], [])


def test_search_works_from_disk(site: Path) -> None:
    index = (site / "search" / "search_index.js").read_text("utf-8")
    assert "tutorials/first-result.html" in index
    assert (site / "javascripts" / "iframe-worker.js").stat().st_size > 1_000
