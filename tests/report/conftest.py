"""A browser page for tests of what the project draws: offline, watched, or skipped with the reason."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

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
class Watched:
    """A page, and everything it did that a self-contained file must not do."""

    page: Page
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)

    def open(self, file: Path, fragment: str = "") -> Page:
        """Open a file anew (a changed fragment alone would only move within the page)."""
        self.page.goto("about:blank")
        self.page.goto(file.as_uri() + fragment)
        return self.page

    def assert_quiet(self) -> None:
        abroad = [url for url in self.requests if not url.startswith(("file:", "data:", "blob:", "about:"))]
        assert not abroad, f"the page asked the network for {abroad}"
        assert not self.complaints, self.complaints
        assert not self.dialogs, self.dialogs


# One browser a module, not a session: while it runs, asyncio.run fails in every other test.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no chromium on this machine")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield running
        running.close()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    made = browser.new_context(viewport={"width": 1440, "height": 900}, accept_downloads=True)
    made.set_offline(True)
    yield made
    made.close()


@pytest.fixture
def watched(context: BrowserContext) -> Iterator[Watched]:
    """An offline page; after the test it must have asked for nothing, complained of nothing, said nothing."""
    seen = Watched(context.new_page())
    seen.page.on("request", lambda request: seen.requests.append(request.url))
    seen.page.on("pageerror", lambda error: seen.complaints.append(str(error)))
    seen.page.on(
        "console",
        lambda message: seen.complaints.append(message.text) if message.type in ("error", "warning") else None,
    )
    seen.page.on("dialog", lambda dialog: (seen.dialogs.append(dialog.message), dialog.dismiss()))
    yield seen
    seen.assert_quiet()
