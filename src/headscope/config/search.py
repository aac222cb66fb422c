"""Options of a search for heads that a task can do without."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from headscope.config.checks import check_keep_metric, repair_names
from headscope.config.names import OBJECTIVES, REPAIRS, RULES, SCORES, SEARCHES, SEARCHES_BY
from headscope.config.option import ADVANCED, SEARCH, Config, option
from headscope.config.parsing import names, sizes
from headscope.config.shared import Reading, Run, TaskData
from headscope.errors import HeadscopeError
from headscope.heads import check_heads, format_heads

FRONT = 12  # number of sizes that are evaluated on the report split and timed
BY = "gradient-second"  # importance for the searches that take one
STEP = 0.1  # share of the heads that an iterative search removes before it computes the importance again
DRAWS = 3  # random orders
WIDTH, EXPANSION = 3, 12  # beam width, and number of heads to try to add to the best set
SWAPS = 4  # removed heads that a swap may restore, and heads that it may remove instead of each
KEEP_METRIC = 0.99  # default target
TARGETS = ("remove", "sparsity", "keep_metric", "speedup")
SPLITS = ("task", "data", "select_on", "report_on", "limit", "report_limit")


def parse_heads(value: Any) -> str:
    """Heads as text in their usual form: [(3, 2), "4.*"] becomes "3.2,4.*"."""
    heads = format_heads(value)
    check_heads(heads)
    return heads


def _check_try_repairs(values: tuple[str, ...]) -> None:
    for value in values:
        words = value.split("+")
        if not set(words) <= set(REPAIRS) or "+".join(repair_names(words)) != value:
            raise HeadscopeError(
                f'`try_repairs` must be some of fold, refit and fold+refit, got "{value}"'
            )


@dataclass(frozen=True)
class SearchConfig(Config):
    """Search for the heads that a task can do without: one target, and the options of the search.

    swaps  number of removed heads that a beam tries to restore at each step, and of heads to remove instead of each
    """

    command = "search"
    rules_of = "prune"
    uses = {
        TaskData: (*SPLITS, "max_length", "columns", "labels"),
        Reading: ("pooling", "prompt"),
        Run: ("seed", "revision", "device", "dtype"),
    }
    defaults = {"select_on": "dev:half-a", "report_on": "dev:half-b"}

    remove: int | None = option(
        None, "Number of heads to remove; a search selects which", at_least=1, show_default=False
    )
    sparsity: float | None = option(
        None,
        "Share of all heads to remove (0 to 1); a search selects which",
        above=0,
        below=1,
        show_default=False,
    )
    keep_metric: float | None = option(
        None,
        "Share of the unpruned model's metric to keep, e.g. 0.99; a search removes as many heads as this allows",
        check=check_keep_metric,
        show_default=f"{KEEP_METRIC} if no other target is given",
    )
    speedup: float | None = option(
        None, "Speed-up to reach, e.g. 1.2 for 1.2 times as fast; a search selects the heads to remove", above=1
    )  # fmt: skip
    search: str = option("beam", f"Search method: {', '.join(SEARCHES)}", choices=SEARCHES)
    by: str = option(
        BY,
        f"With --search {' or '.join(SEARCHES_BY)}: importance that orders the heads: {', '.join(SCORES)}",
        choices=SCORES,
        panel=SEARCH,
    )
    relevance_rules: Literal["voita", "attnlrp"] = option(
        "voita",
        "With --by relevance: rules of relevance propagation, voita or attnlrp",
        choices=RULES,
        panel=SEARCH,
    )
    objective: str | None = option(
        None,
        "Quantity that the search optimises: loss or metric",
        choices=OBJECTIVES,
        show_default="loss; metric for similarity and stsb",
        panel=SEARCH,
    )
    min_heads_per_layer: int = option(
        0, "Minimum number of heads to keep per layer", at_least=0, panel=SEARCH
    )
    candidates: str | None = option(
        None,
        "Heads that the search may remove, e.g. encoder.*.*",
        parse=parse_heads,
        show_default="all",
        panel=SEARCH,
    )
    step: float = option(
        STEP,
        "With --search iterative: share of the heads (0 to 1) to remove per step",
        above=0,
        at_most=1,
        panel=SEARCH,
    )
    beam_width: int = option(
        WIDTH,
        "With --search beam: beam width, the number of sets of heads that are kept at each size",
        at_least=1,
        panel=SEARCH,
    )
    expansion: int = option(
        EXPANSION,
        "With --search beam: number of heads to try to add to the best set",
        at_least=1,
        panel=SEARCH,
    )
    draws: int = option(
        DRAWS, "With --search random: number of random orders of heads", at_least=1, panel=SEARCH
    )
    sizes: int | tuple[int, ...] | None = option(
        None,
        "Numbers of removed heads to report results for, e.g. 3,10,20,30",
        parse=sizes("sizes"),
        show_default=f"{FRONT} numbers, evenly spaced",
        panel=SEARCH,
    )
    try_repairs: tuple[str, ...] = option(
        (),
        "Also report every size after these repairs, e.g. fold,refit,fold+refit",
        parse=names,
        check=_check_try_repairs,
        show_default="none",
        panel=SEARCH,
    )
    batch_size: int = option(32, "Sequences per batch", at_least=1, panel=ADVANCED)
    swaps: int = SWAPS

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.swaps < 0:
            raise HeadscopeError(f"`swaps` must be at least 0, got {self.swaps}")
        self._check_target()

    def _check_target(self, *others: str) -> None:
        """Refuse several targets. Without any, set `keep_metric` to its default.

        others  fields that name the heads, in place of a target
        """
        names = [name for name in (*others, *TARGETS) if getattr(self, name) is not None]
        if len(names) > 1:
            command = type(self).command
            raise HeadscopeError(
                f"{command} takes one target, got {' and '.join(f'`{name}`' for name in names)}",
                fix="Leave all but one of them out",
            )
        if not names:
            object.__setattr__(self, "keep_metric", KEEP_METRIC)

    @property
    def target(self) -> dict[str, float | None]:
        """The four targets by name; all but one are None."""
        return {name: getattr(self, name) for name in TARGETS}

    @property
    def front_sizes(self) -> int | tuple[int, ...]:
        """The numbers of removed heads to report, or the number of such sizes."""
        return FRONT if self.sizes is None else self.sizes


def splits_of(data: TaskData) -> tuple[str, str]:
    """The selection split and the report split."""
    return data.select_on or "dev:half-a", data.report_on or "dev:half-b"
