"""Explorers of tiny models that read words; a module starts each of them once."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

sys.path.insert(0, str(Path(__file__).parents[1] / "report"))

import pytest
import torch
from asking import Asking
from kinds import KINDS
from pages import TEXT, Opened, drawn
from playwright.sync_api import Browser, Page

from browsers import Watched
from headscope.explorer.serving import Explorer, serve

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def start() -> Iterator[Callable[..., Explorer]]:
    """Start an explorer that ends with the module."""
    with ExitStack() as running:

        def started(model: Any, **options: Any) -> Explorer:
            options = {
                "browser": False,
                "wait": False,
                "port": 0,
                "log": lambda line: None,
            } | options
            return running.enter_context(serve(model, **options))

        yield started


@pytest.fixture(scope="module")
def ask_kind(start: Callable[..., Explorer]) -> Callable[[str], Asking]:
    """Whom to ask about a kind of model."""
    started: dict[str, Asking] = {}

    def asking(name: str) -> Asking:
        if name not in started:
            model = KINDS[name].make()
            started[name] = Asking(start(model), model)
        return started[name]

    return asking


@pytest.fixture(scope="module")
def ask(ask_kind: Callable[[str], Asking]) -> Asking:
    """A classifier to ask, where the kind of model does not matter."""
    return ask_kind("classifier")


@pytest.fixture
def watched(browser: Browser, explorer: Explorer) -> Iterator[Watched]:
    """A page of the explorer; after the test it must have asked nobody else, complained of nothing, said nothing."""
    context = browser.new_context(viewport={"width": 1440, "height": 900}, accept_downloads=True)
    seen = Watched(context.new_page(), home=explorer.url)
    yield seen
    seen.assert_quiet()
    context.close()


@pytest.fixture
def opened(watched: Watched, explorer: Explorer) -> Opened:
    """Opens the module's explorer in a state and waits until it is drawn."""

    def at(**state: str) -> Page:
        watched.page.goto("about:blank")
        watched.page.goto(f"{explorer.url}#{urlencode({'text': TEXT, **state})}")
        return drawn(watched.page)

    return at
