"""Options of `report`."""

from __future__ import annotations

from dataclasses import dataclass

from headscope.config.option import Config
from headscope.config.shared import Run


@dataclass(frozen=True)
class ReportConfig(Config):
    """One page for several studies."""

    command = "report"
    examples = (
        "headscope report study which small --out index.html",
        "headscope report before after --out index.html",
    )
    python = 'headscope.join(["study", "which", "small"]).write("index.html")'
    uses = {Run: ("out", "overwrite")}
    helps = {
        "out": "The page to write; must not exist yet",
        "overwrite": "Replace a page that is already there",
    }
    required = ("out",)
