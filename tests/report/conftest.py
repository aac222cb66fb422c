"""A browser page for tests of what the project draws: offline, watched, or skipped with the reason."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext

from browsers import Watched


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
    yield seen
    seen.assert_quiet()
