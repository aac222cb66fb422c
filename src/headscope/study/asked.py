"""What a search is asked: a model and its task, two splits of its data, how far to go and how."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from headscope.data.records import find_split
from headscope.errors import HeadscopeError, choices
from headscope.heads import Heads, written_heads
from headscope.model.attention_model import AttentionModel
from headscope.model.relevance.rules import Rules, check_rules
from headscope.model.surgery import read_heads
from headscope.pruning import searches
from headscope.pruning.repair import names
from headscope.pruning.scores import IMPORTANCES, RELEVANCES
from headscope.pruning.searches import SEARCHES
from headscope.pruning.selection import Memory, Selection
from headscope.pruning.target import Target
from headscope.study.evaluate import loaded_for
from headscope.study.record import code_of, describe_files, describe_model, versions
from headscope.tasks import Prepared, Task
from headscope.tasks.base import check_apart, check_count, two_files

CALIBRATION = 256  # examples that a repair learns from
FRONT = 12  # sizes of the front that are reported on the other split, and timed
DRAWS = 3  # random orders
OWN = {  # options that only some searches look at
    ("rank", "iterative"): ("by",),
    ("iterative",): ("step",),
    ("beam",): ("width", "expansion", "swaps"),
    ("random",): ("draws",),
}


@dataclass(frozen=True)
class SearchOptions:
    """How to search.

    how        beam, greedy, iterative, rank or random
    by         the importance that rank and iterative go by
    rules      of relevance, where they go by that: voita or attnlrp
    objective  loss or metric; by default what the task prefers
    at_least   so many heads stay in every layer
    among      only these heads may go, as in encoder.*.*; None: all
    step       the share of heads that iterative removes between two scorings
    width, expansion, swaps  the sets a beam keeps, the heads it tries to add, the heads that may come back
    draws      random orders
    limit      only so many examples to choose on
    sizes      the numbers of removed heads that are reported on the other split, and timed; or how many of them
    repairs    ways to mend that every reported set is tried with too: fold, refit, fold+refit
    """

    how: str = "beam"
    by: str = "gradient-second"
    rules: Rules = "voita"
    objective: str | None = None
    at_least: int = 0
    among: Heads | None = None
    step: float = 0.1
    width: int = searches.WIDTH
    expansion: int = searches.EXPANSION
    swaps: int = searches.SWAPS
    draws: int = DRAWS
    limit: int | None = None
    sizes: int | tuple[int, ...] = FRONT
    repairs: tuple[str, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        if self.how not in SEARCHES:
            raise HeadscopeError(f'"{self.how}" is no search', where="--search", expected=choices(self.how, SEARCHES))
        if self.by not in IMPORTANCES:
            raise HeadscopeError(f'"{self.by}" is no importance', where="--by", expected=choices(self.by, IMPORTANCES))
        check_rules(self.rules)
        if self.rules != "voita" and not (self.how in ("rank", "iterative") and self.by in RELEVANCES):
            raise HeadscopeError(
                "only relevance has rules", where="--rules", expected="--search rank or iterative --by relevance"
            )
        if not 0 < self.step <= 1:
            raise HeadscopeError(f"{self.step} is no share", where="--step", expected="more than 0, at most 1")
        for repair in self.repairs:
            if "+".join(names(repair.split("+"))) != repair:
                raise HeadscopeError(
                    f'"{repair}" is no way to mend', where="--try-repairs", expected="fold, refit or fold+refit"
                )
        for name in ("width", "expansion", "draws"):
            check_count(getattr(self, name), f"--{name}")
        if self.limit is not None:
            check_count(self.limit, "--limit")
        for size in (self.sizes,) if isinstance(self.sizes, int) else self.sizes:
            check_count(size, "--sizes")
        for name in ("at_least", "swaps"):
            if getattr(self, name) < 0:
                option = f"--{name.replace('_', '-')}"
                raise HeadscopeError(f"{getattr(self, name)} is too few", where=option, expected="0 or more")
        if self.among is not None:
            object.__setattr__(self, "among", written_heads(self.among))  # as it is recorded
        self._refuse_idle()

    def _refuse_idle(self) -> None:
        """Options that this search does not look at."""
        nothing = {one.name: one.default for one in fields(self)}
        for using, options in OWN.items():
            for name in options:
                if self.how not in using and getattr(self, name) != nothing[name]:
                    raise HeadscopeError(
                        f"--search {self.how} has no use for it",
                        where=f"--{name}",
                        expected=f"--search {' or '.join(using)}",
                    )


@dataclass(frozen=True)
class Asked:
    """What a search is asked: a model and its task, the examples to choose on and to report on, how far and how.

    splits   the names of the two: chosen on, reported on
    """

    model: AttentionModel
    task: Task
    data: str | Path
    splits: tuple[str, str]
    chosen_on: Prepared
    reported_on: Prepared
    target: Target
    options: SearchOptions
    report_limit: int | None = None
    max_length: int | None = None
    batch_size: int = 32

    @property
    def objective(self) -> str:
        return self.options.objective or self.task.objective

    @cached_property
    def model_now(self) -> dict[str, Any]:
        return describe_model(self.model)

    @cached_property
    def files(self) -> list[dict[str, str]]:
        found = two_files(self.data) or sorted(
            {find_split(self.data, split, task=self.task.name) for split in self.splits}
        )
        return describe_files(found)

    def settings(self) -> dict[str, Any]:
        """Every option by name, for the record."""
        return {
            "search": self.options.how,
            **{name: value for name, value in asdict(self.options).items() if name != "how"},
            "objective": self.objective,
            "target": asdict(self.target),
            "columns": dict(self.task.columns),
            "labels": dict(self.task.renamed),
            "report_limit": self.report_limit,
            "max_length": self.max_length,
            "batch_size": self.batch_size,
        }

    def header(self) -> dict[str, Any]:
        """What must be the same for a run that goes on."""
        return {
            **{name: self.model_now[name] for name in ("dtype", "device", "edits", "reading")},
            "model": self.model_now["sha256"],
            "code": code_of("model", "data", "statistics", "tasks", "importances", "pruning"),
            "task": self.task.name,
            "data": self.files,
            "splits": list(self.splits),
            "options": self.settings(),
            "versions": {name: version for name, version in versions().items() if name != "python"},
        }

    def selection(self, memory: Memory, model: AttentionModel | None = None) -> Selection:
        """The examples to choose on, for the model or for what has become of it."""
        return Selection(
            model or self.model,
            self.task,
            self.chosen_on,
            objective=self.objective,  # type: ignore[arg-type]
            at_least=self.options.at_least,
            among=None if self.options.among is None else read_heads(self.model, written_heads(self.options.among)),
            max_length=self.max_length,
            batch_size=self.batch_size,
            seed=self.options.seed,
            memory=memory,
        )

    def calibration(self) -> Prepared | None:
        """The examples that repairs learn from, where some are tried."""
        if not self.options.repairs:
            return None
        few = self.task.items(self.data, self.splits[0], limit=CALIBRATION)
        return self.task.prepare(self.model, few, max_length=self.max_length)


def ask(
    model: AttentionModel | str | Path | Callable[[str], AttentionModel],
    task: Task,
    data: str | Path,
    splits: tuple[str, str],
    target: Target,
    options: SearchOptions,
    *,
    report_limit: int | None = None,
    max_length: int | None = None,
    batch_size: int = 32,
) -> Asked:
    """Read the examples, refuse what is chosen on and reported on at once, then load the model."""
    limits = (options.limit, report_limit)
    items = [task.items(data, split, limit=limit) for split, limit in zip(splits, limits, strict=True)]
    check_apart(items[0], items[1], "--report-on")
    loaded = loaded_for(model, task)
    loaded.canary()
    chosen_on, reported_on = (task.prepare(loaded, one, max_length=max_length) for one in items)
    return Asked(
        loaded, task, data, splits, chosen_on, reported_on, target, options, report_limit, max_length, batch_size
    )
