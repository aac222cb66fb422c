"""The explorer's page as tests use it: waiting for what it draws, reading what it tells."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
from hostile import LABELS
from numpy.typing import NDArray
from playwright.sync_api import Page, expect

TEXT = "the old cat sat on the mat ."
Opened = Callable[..., Page]  # opened(heads="1.2") is the page in that state


def drawn(page: Page) -> Page:
    """Until the model's latest answer is drawn: the thumbnails, or the open head."""
    page.wait_for_function(
        """() => {
            const { answer, drawn, head } = document.documentElement.dataset;
            const isOpen = document.getElementById('main').dataset.view === 'head';
            return answer && !document.body.classList.contains('asking') && (isOpen ? head : drawn === answer || drawn);
        }"""
    )
    return page


def shows(page: Page, *words: str) -> Page:
    """Until the open head's caption holds these words."""
    expect(page.locator("html")).to_have_attribute(
        "data-head", re.compile(".*".join(map(re.escape, words)))
    )
    return page


def saved(page: Page, button: str, folder: Path) -> Path:
    with page.expect_download() as download:
        page.click(button)
    goal = folder / download.value.suggested_filename
    download.value.save_as(goal)
    return goal


def numbers_in(table: Path) -> NDArray[np.float64]:
    with table.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    return np.array([float(row["weight"]) for row in rows]).reshape(
        len({row["query"] for row in rows}), -1
    )


def shares(page: Page) -> dict[str, str]:
    """The first model's classes as they are written."""
    rows = page.locator(".answer").first.locator("tbody tr").all()
    return {
        row.locator("td").nth(0).inner_text(): row.locator("td").nth(2).inner_text() for row in rows
    }


def as_written(probabilities: list[float]) -> dict[str, str]:
    return {
        label: f"{100 * share:.1f} %" for label, share in zip(LABELS, probabilities, strict=True)
    }


def head_of(name: str) -> str:
    return f'.thumb[aria-label="{name}"]'
