"""A real browser for tests of what the project draws, watched; or skipped with the reason."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
AXE = Path(__file__).parents[1] / "web" / "node_modules" / "axe-core" / "axe.min.js"
INSIDE = ("file:", "data:", "blob:", "about:")
PATIENCE = 120_000  # ms: a limit against hanging on a busy machine; how fast it is, benchmarks ask


@contextmanager
def chromium() -> Iterator[Browser]:
    """A running Chromium, or the test is skipped."""
    candidates = (
        shutil.which("chromium")
        or shutil.which("chromium-browser")
        or shutil.which("google-chrome")
    )
    if candidates is None:
        pytest.skip("no chromium on this machine")
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=candidates, args=FLAGS)
        yield running
        running.close()


def serious(page: Page) -> list[tuple[str, list[str]]]:
    """What axe-core finds serious on a page (one that lets scripts in): rule and elements; skipped without axe-core."""
    if not AXE.is_file():
        pytest.skip("axe-core is not installed: make web")
    page.add_script_tag(path=str(AXE))
    result = page.evaluate("axe.run().then(found => found.violations)")
    grave = [one for one in result if one["impact"] in ("serious", "critical")]
    return [(one["id"], [node["html"][:160] for node in one["nodes"][:3]]) for one in grave]


@dataclass
class Watched:
    """A page, and everything it did that it must not do: requests elsewhere, complaints, dialogs.

    home  the one server it may ask; empty: none, as for a self-contained file
    """

    page: Page
    home: str = ""
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.set_default_timeout(PATIENCE)
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on(
            "console",
            lambda message: (
                self.complaints.append(message.text)
                if message.type in ("error", "warning")
                else None
            ),
        )
        self.page.on(
            "dialog", lambda dialog: (self.dialogs.append(dialog.message), dialog.dismiss())
        )

    def open(self, file: Path, fragment: str = "") -> Page:
        """Open a file anew (a changed fragment alone would only move within the page)."""
        self.page.goto("about:blank")
        self.page.goto(file.as_uri() + fragment)
        return self.page

    def assert_quiet(self) -> None:
        allowed = (*INSIDE, self.home) if self.home else INSIDE
        abroad = [url for url in self.requests if not url.startswith(allowed)]
        assert not abroad, f"the page asked the network for {abroad}"
        assert not self.complaints, self.complaints
        assert not self.dialogs, self.dialogs
