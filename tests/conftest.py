"""Real weights for tests: `zoo_model("minilm")` is a directory, or the test is skipped with the reason.

`safe_bfloat16` is for tests that compute in bfloat16: some CPUs fault there, and headscope's own probe tells.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import typer.main
import typer.testing

from headscope.errors import HeadscopeError
from headscope.model import zoo
from sampling import mark_products

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mark_products(items)


@pytest.hookimpl(tryfirst=True)  # before fixtures are made
def pytest_runtest_setup() -> None:
    """Every test starts from the same random state, whatever ran before it."""
    random.seed(0)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


# Typer builds the parsers of all commands for each call. They do not change, so one set serves all tests.
typer.main.get_command = typer.testing._get_command = cache(typer.main.get_command)  # type: ignore[attr-defined]


@pytest.fixture(scope="session")
def zoo_model() -> Callable[..., Path]:
    """Finds a zoo model, and fetches it when it is small; a large one must already be in the cache."""

    def directory_of(name: str, large: bool = False) -> Path:
        if (cached := zoo.find(name)) is not None:
            return cached
        if large:
            pytest.skip(
                f"{name} is not in the cache, and {zoo.MODELS[name].download_mb} MB is much for a test"
            )
        try:
            return zoo.fetch(name)
        except HeadscopeError as reason:
            pytest.skip(f"{name} cannot be had: {reason}")

    return directory_of


@pytest.fixture(scope="session")
def safe_bfloat16() -> None:
    """oneDNN is off where bfloat16 faults, also for models that a test runs without headscope."""
    from headscope.model.bfloat16 import ensure_bfloat16

    ensure_bfloat16()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A Chromium. One a module and not a session: while it runs, asyncio.run fails in every other test."""
    from browsers import chromium

    with chromium() as running:
        yield running
