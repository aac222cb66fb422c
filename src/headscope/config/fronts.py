"""Options of `fronts`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headscope.config.option import Config, Output, option
from headscope.config.shared import Run


@dataclass(frozen=True)
class FrontsConfig(Config):
    """Compare the results of several searches and gates of one model and task."""

    command = "fronts"
    group = "Prune"
    examples = (
        "headscope fronts cut-beam cut-greedy gated --out fronts",
        "headscope fronts cut-beam gated --roles study --out fronts",
    )
    python = 'headscope.fronts(["cut-beam", "gated"])'
    output = Output()
    uses = {Run: ("out", "overwrite")}
    helps = {"out": "Study to write; must not exist yet"}
    required = ("out",)

    roles: Path | None = option(
        None,
        "Study of the same model by analyze: names the roles of the heads that are kept",
        show_default="none",
    )
