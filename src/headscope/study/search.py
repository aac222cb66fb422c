"""search, the verb: which heads to cut for a task. Chosen on one split, reported on another."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headscope.data.records import find_split
from headscope.errors import HeadscopeError, choices
from headscope.heads import HeadSet
from headscope.importances.significance import metrics_of
from headscope.model.attention_model import AttentionModel
from headscope.model.surgery import read_heads
from headscope.pruning import searches, speed
from headscope.pruning.front import Report
from headscope.pruning.plan import Plan
from headscope.pruning.repair import names
from headscope.pruning.scores import IMPORTANCES, scores_by
from headscope.pruning.searches import SEARCHES
from headscope.pruning.selection import Memory, Selection, State
from headscope.pruning.target import Pursuit, Target
from headscope.study.evaluate import loaded_for
from headscope.study.importance import code_of
from headscope.study.journal import Journal
from headscope.study.record import describe_files, describe_model, versions
from headscope.study.study import SCHEMA, Study
from headscope.tables import Row, to_frame
from headscope.tasks import Task, task_named
from headscope.tasks.base import check_apart, two_files

if TYPE_CHECKING:
    import pandas as pd

CALIBRATION = 256  # examples that a repair learns from
FRONT = 12  # sizes of the front that are reported on the other split, and timed
DRAWS = 3  # random orders

Told = Callable[[str], None]


@dataclass
class Search:
    """What was found.

    plan    the heads to remove, with how they were chosen
    study   all of it as a study, with `cut` (1 removed, 0 kept) as a statistic of every head
    """

    plan: Plan
    study: Study

    @property
    def front(self) -> pd.DataFrame:
        """A row for every size that was reported: what is lost on the other split, what is gained."""
        return self.study.tables["front"]

    @property
    def tried(self) -> pd.DataFrame:
        """A row for every set that was evaluated on the selection split."""
        return self.study.tables["search"]


class JournalMemory(Memory):
    """Finished work that outlives the process."""

    def __init__(self, journal: Journal) -> None:
        super().__init__()
        self.journal = journal
        self._known = {unit["key"]: unit["value"] for unit in journal.units}

    def add(self, key: str, value: Any) -> None:
        super().add(key, value)
        self.journal.add({"key": key, "value": value})


@dataclass(frozen=True)
class SearchOptions:
    """How to search.

    how        beam, greedy, iterative, rank or random
    by         the importance that rank and iterative go by
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
    objective: str | None = None
    at_least: int = 0
    among: str | None = None
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
        if self.how in ("rank", "iterative") and self.by not in IMPORTANCES:
            raise HeadscopeError(f'"{self.by}" is no importance', where="--by", expected=choices(self.by, IMPORTANCES))
        if not 0 < self.step <= 1:
            raise HeadscopeError(f"{self.step} is no share", where="--step", expected="more than 0, at most 1")
        for repair in self.repairs:
            if "+".join(names(repair.split("+"))) != repair:
                raise HeadscopeError(
                    f'"{repair}" is no way to mend', where="--try-repairs", expected="fold, refit or fold+refit"
                )
        for name in ("width", "expansion", "draws"):
            if getattr(self, name) < 1:
                raise HeadscopeError(f"{getattr(self, name)} is too few", where=f"--{name}", expected="1 or more")


def search(
    model: AttentionModel | str | Path | Callable[[str], AttentionModel],
    *,
    task: str | Task,
    data: str | Path,
    target: Target,
    options: SearchOptions | None = None,
    select_on: str = "dev:even",
    report_on: str = "dev:odd",
    report_limit: int | None = None,
    columns: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    max_length: int | None = None,
    batch_size: int = 32,
    journal: Callable[[dict[str, Any]], Journal] | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    say: Told = lambda line: None,
) -> Search:
    """Find the heads that a task can do without.

    target      Target(heads=20), Target(sparsity=0.3), Target(keep_metric=0.99) or Target(speedup=1.2)
    options     how to search: SearchOptions(how="greedy")
    select_on   the split that is chosen on; report_on: the split that is reported on, another one
    report_limit  only so many examples of it
    """
    started = time.perf_counter()
    options = options or SearchOptions()
    the_task = task_named(task, columns=columns, labels=labels) if isinstance(task, str) else task
    splits = (select_on, report_on)
    to_choose, to_report = (
        the_task.items(data, select_on, limit=options.limit),
        the_task.items(data, report_on, limit=report_limit),
    )
    check_apart(to_choose, to_report, "--report-on")
    loaded = loaded_for(model, the_task)
    loaded.canary()
    chosen_on, reported_on = (the_task.prepare(loaded, one, max_length=max_length) for one in (to_choose, to_report))
    files = two_files(data) or sorted({find_split(data, split, task=the_task.name) for split in splits})
    described, model_now = describe_files(files), describe_model(loaded)
    objective = options.objective or the_task.objective
    told_options = {
        "search": options.how,
        **{name: value for name, value in asdict(options).items() if name != "how"},
        "objective": objective,
        "target": asdict(target),
        "columns": the_task.columns,
        "labels": the_task.renamed,
        "report_limit": report_limit,
        "max_length": max_length,
        "batch_size": batch_size,
    }
    header = {
        "model": model_now["sha256"],
        "dtype": model_now["dtype"],
        "device": model_now["device"],
        "edits": model_now["edits"],
        "code": code_of("model", "data", "statistics", "tasks", "importances", "pruning"),
        "task": the_task.name,
        "data": described,
        "splits": list(splits),
        "options": told_options,
        "versions": {name: version for name, version in versions().items() if name != "python"},
    }
    memory = Memory() if journal is None else JournalMemory(journal(header))
    selection = Selection(
        loaded,
        the_task,
        chosen_on,
        objective=objective,  # type: ignore[arg-type]
        at_least=options.at_least,
        among=None if options.among is None else read_heads(loaded, options.among),
        max_length=max_length,
        batch_size=batch_size,
        seed=options.seed,
        memory=memory,
    )
    run = Pursuit(selection, target, say, progress)
    paths = [run.followed(path) for path in _paths(selection, options)]
    best = run.chosen(paths[0])
    few = the_task.items(data, select_on, limit=CALIBRATION) if options.repairs else []
    calibration = the_task.prepare(loaded, few, max_length=max_length) if few else None
    report = Report(selection, reported_on, repairs=options.repairs, calibration=calibration)
    table = report.front(paths, best, options.sizes, say)
    heads = selection.heads(best.removed)
    row = next(one for one in table if one["removed"] == len(heads) and one["draw"] == 0 and not one["repair"])
    warning = warning_of(target, table, report_on)
    if warning:
        say(f"note: {warning}")
    told = {
        "task": the_task.name,
        "data": described,
        "selected_on": {"split": select_on, "examples": len(chosen_on.items)},
        "reported_on": {"split": report_on, "examples": len(reported_on.items)},
        **told_options,
        "metric": the_task.metrics[0],
        "intact": {"selection": asdict(selection.intact), "report": metrics_of(the_task, report.intact)},
        "removed": str(heads),
        "count": len(heads),
        "of": len(loaded.heads),
        "after": {"selection": asdict(best.outcome), "report": row},
        "warning": warning,
        "timed": f"{speed.TIMED[0]} sequences of {speed.longest(loaded, speed.TIMED[1])} tokens",
        "evaluations": round(selection.spent, 2),
        "seconds": round(time.perf_counter() - started, 1),
    }
    study = _study(loaded, heads, table, selection, told, model_now, options.seed)
    timeless = {**told, "after": {**told["after"], "report": {k: v for k, v in row.items() if k != "time"}}}
    timeless.pop("seconds")  # a plan is the same whenever it is made
    return Search(Plan.of(loaded, heads, timeless), study)


def warning_of(target: Target, front: list[dict[str, Any]], report_on: str) -> str | None:
    """A set that keeps the metric where it was chosen may not keep it elsewhere: then, what did."""
    if target.keep_metric is None:
        return None
    plain = {row["removed"]: row["metric"] for row in front if row["draw"] == 0 and not row["repair"]}
    left = next(row["metric"] for row in front if row["is_chosen"]) / plain[0] if plain[0] else float("nan")
    if not left < target.keep_metric:
        return None
    most = max((size for size, metric in plain.items() if metric >= target.keep_metric * plain[0]), default=0)
    instead = f", or take --heads {most}, the most of those reported that kept it" if most else ""
    return (
        f"{left:.4f} of the metric is left on {report_on}, not {target.keep_metric:g}: the choice fits its own "
        f"examples; choose on more of them{instead}"
    )


def _paths(selection: Selection, options: SearchOptions) -> list[Iterator[State]]:
    """The way through the sets that was asked for; several where it is by chance."""
    if options.how == "beam":
        return [searches.beam(selection, options.width, options.expansion, options.swaps)]
    if options.how == "greedy":
        return [searches.greedy(selection)]
    if options.how == "random":
        return [searches.random(selection, options.seed + draw) for draw in range(options.draws)]
    scores = scores_by(selection, options.by)
    if options.how == "iterative":
        return [searches.iterative(selection, scores, options.step)]
    return [searches.rank(selection, scores)]


def _study(
    model: AttentionModel,
    heads: HeadSet,
    front: list[dict[str, Any]],
    selection: Selection,
    told: dict[str, Any],
    model_now: dict[str, Any],
    seed: int,
) -> Study:
    import pandas as pd

    nothing = float("nan")
    rows = [
        Row(head.stack, head.layer, head.head, "cut", float(head in heads), nothing, nothing, selection.count)
        for head in model.heads
    ]
    tried = [
        {
            "order": order,
            "removed": selection.size(removed),
            "loss": outcome.loss,
            "metric": outcome.metric,
            "examples": outcome.examples,
            "heads": str(selection.heads(removed)),
        }
        for order, (removed, outcome) in enumerate(selection.tried.items())
    ]
    record = {
        "schema": SCHEMA,
        "versions": versions(),
        "model": model_now,
        "pruning": told,
        "seed": seed,
        "lens": "raw",
    }
    return Study(to_frame(rows), {}, record, {"front": pd.DataFrame(front), "search": pd.DataFrame(tried)})
