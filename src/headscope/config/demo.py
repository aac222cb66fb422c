"""Options of `demo`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headscope.config.option import Config
from headscope.config.shared import Run
from headscope.config.texts import TextData


@dataclass(frozen=True)
class DemoConfig(Config):
    """A real model on a corpus and a treebank that come with headscope: statistics, relations, importances, pages."""

    command = "demo"
    group = "Look"
    examples = (
        "headscope demo",
        "headscope demo --limit 50 --out demo",
    )
    python = 'headscope.demo("demo")'
    uses = {Run: ("out",), TextData: ("limit",)}
    defaults = {"out": Path("demo"), "limit": 200}
    helps = {
        "out": "Output directory; the result of an earlier demo is replaced",
        "limit": "Number of pairs of paragraphs to analyse",
    }
