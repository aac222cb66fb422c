"""Options of `fixed-patterns`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headscope.config.checks import check_keep_metric, check_patterns
from headscope.config.option import ADVANCED, Config, Output, option
from headscope.config.parsing import sizes
from headscope.config.search import SPLITS, parse_heads
from headscope.config.shared import Reading, Run, TaskData

SIZES = 12


@dataclass(frozen=True)
class FixedPatternsConfig(Config):
    """Replace the attention of heads by fixed patterns, and measure the loss on a task."""

    command = "fixed-patterns"
    group = "Prune"
    examples = (
        "headscope fixed-patterns minilm --task stsb --data stsb_dev.tsv --out fixed",
        "headscope fixed-patterns opus-mt-en-fr --task translation --data val.en,val.fr"
        " --heads 'encoder.*.*' --keep-metric 0.99 --out fixed",
        "headscope fixed-patterns minilm --task stsb --data stsb_dev.tsv --patterns '*.0-6=raganato' --out fixed",
    )
    python = "headscope.fixed_patterns"
    splits = ("select_on", "report_on")
    output = Output("cut.json", ("alone", "reported", "journal.jsonl"))
    uses = {
        TaskData: (*SPLITS, "columns", "labels", "max_length"),
        Reading: ("pooling", "prompt"),
        Run: ("out", "seed", "revision", "device", "dtype", "resume", "overwrite", "no_figures"),
    }
    defaults = {"select_on": "dev:half-a", "report_on": "dev:half-b"}
    helps = {
        "limit": "Maximum number of examples to select on, evenly spaced over the file",
        "out": "Output directory of the model; must not exist yet",
        "select_on": "Split to select on: the pattern of each head, and the order in which heads are fixed",
        "report_on": "Split to report on",
        "seed": "Random seed (order of examples)",
    }
    required = ("out",)

    heads: str | None = option(
        None,
        "Heads that may get a fixed pattern, e.g. encoder.*.*",
        parse=parse_heads,
        show_default="all heads of self-attention",
    )
    patterns: str | Mapping[Any, str] | None = option(
        None,
        "Patterns as HEADS=PATTERN, e.g. 3.2=previous,4.*=first or *.0-6=raganato (the seven patterns of "
        "Raganato et al., one per head), or a file of such lines",
        check=check_patterns("`patterns`"),
        show_default="the nearest pattern of each head",
    )
    keep_metric: float | None = option(
        None,
        "Share of the original model's metric to keep, e.g. 0.99; only as many heads are fixed as this allows",
        check=check_keep_metric,
        show_default="fix all of --heads",
    )
    sizes: int | tuple[int, ...] | None = option(
        None,
        "Numbers of fixed heads to report results for, e.g. 3,10,20",
        parse=sizes("sizes"),
        show_default=f"{SIZES} numbers, evenly spaced",
        panel=ADVANCED,
    )
    batch_size: int = option(32, "Sequences per batch", at_least=1, panel=ADVANCED)

    @property
    def reported_sizes(self) -> int | tuple[int, ...]:
        """The numbers of fixed heads to report, or the number of such sizes."""
        return SIZES if self.sizes is None else self.sizes
