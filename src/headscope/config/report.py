"""Options of `report`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headscope.config.option import Config, option
from headscope.config.shared import Run


@dataclass(frozen=True)
class ReportConfig(Config):
    """One page for several studies. Searches and gates of one task share the axes of their Pareto fronts."""

    command = "report"
    group = "Look"
    examples = (
        "headscope report study importances small --out index.html",
        "headscope report study --png pictures --out page.html",
        "headscope report beam greedy gated --tables fronts --out fronts.html",
    )
    python = 'headscope.join(["study", "importances", "small"]).write("index.html")'
    uses = {Run: ("out", "overwrite", "no_figures")}
    helps = {
        "out": "Page to write; must not exist yet",
        "overwrite": "Replace an existing page",
    }
    required = ("out",)

    tables: Path | None = option(
        None,
        "Directory to write the joined tables to, such as fronts.csv and survivors.csv",
        show_default="none",
        recorded=False,
    )
    png: Path | None = option(
        None,
        "Directory to write every figure to as PNG",
        show_default="none",
        recorded=False,
    )
