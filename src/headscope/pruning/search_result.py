"""What a search found: a plan, and a study of everything that was tried and reported on the way."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from headscope.ablation.noninferiority import Margin, advice_of, verdict_in
from headscope.heads import HeadSet
from headscope.model import latency as speed
from headscope.pruning.pareto_front import Report, Speeds
from headscope.pruning.plan import Plan
from headscope.pruning.search_config import Asked
from headscope.pruning.subset_evaluator import Selection, State
from headscope.pruning.target import Target
from headscope.study.run_record import build_record
from headscope.study.schema.names import CUT
from headscope.study.schema.record import Section
from headscope.study.schema.tables import TABLES
from headscope.study.study import Study
from headscope.tables import Row, to_frame
from headscope.tasks import Judged

if TYPE_CHECKING:
    import pandas as pd

Front = list[dict[str, Any]]  # the rows of the table
CLOCK = (
    "time",
    "time_low",
    "time_high",
    "is_front",
)  # of a row: by the clock, which is never twice the same


@dataclass
class Search:
    """What was found.

    plan    the heads to remove, with how they were chosen
    study   all of it as a study, with `cut` (1 removed, 0 kept) as a statistic of every head
    speeds  the whole model's and the cut one's, as measured for the table `front`
    judged  both on the report split
    is_kept whether the set is shown to stay within the allowed loss there
    """

    plan: Plan
    study: Study
    speeds: Speeds
    judged: tuple[Judged, Judged]
    is_kept: bool

    @property
    def front(self) -> pd.DataFrame:
        """A row for every size that was reported: what is lost on the other split, what is gained."""
        return self.study.tables["front"]

    @property
    def tried(self) -> pd.DataFrame:
        """A row for every set that was evaluated on the selection split."""
        return self.study.tables["search"]


def found(
    asked: Asked,
    report: Report,
    front: Front,
    best: State,
    seconds: float,
    more: Mapping[str, Any] | None = None,
) -> Search:
    """The set that was chosen, as a plan and as a study. more: what else is to be known of how it was found."""
    selection = report.selection
    heads = selection.heads(best.removed)
    record = _record(asked, report, front, best) | dict(more or {})
    timeless = deepcopy(record)  # a plan is the same whenever it is made
    timeless["after"]["report"] = {
        key: one for key, one in record["after"]["report"].items() if key not in CLOCK
    }
    plan = Plan.of(asked.model, heads, timeless)
    study = _study(asked, selection, heads, front, {**record, "seconds": round(seconds, 1)})
    verdict = verdict_in(
        record["after"]["report"], _margin(asked, front), len(asked.reported_on.items)
    )
    judged = report.intact, report.judged(best)
    return Search(plan, study, report.speeds(best), judged, is_kept=verdict.kind == "kept")


def _record(asked: Asked, report: Report, front: Front, best: State) -> Section:
    selection, model = report.selection, asked.model
    heads = selection.heads(best.removed)
    row = next(
        one
        for one in front
        if one["removed"] == len(heads) and one["draw"] == 0 and not one["repair"]
    )
    select_on, report_on = asked.splits
    return {
        "task": asked.task.name,
        "data": asked.files,
        "selected_on": {"split": select_on, "examples": len(asked.chosen_on.items)},
        "reported_on": {"split": report_on, "examples": len(asked.reported_on.items)},
        "unknown": asdict(asked.reported_on.counts.unknown),
        **asked.settings(),
        "metric": asked.task.metrics[0],
        "intact": {"selection": asdict(selection.intact), "report": report.metrics},
        **({} if report.knows_nothing is None else {"knows_nothing": report.knows_nothing}),
        "removed": str(heads),
        "count": len(heads),
        "of": len(model.heads),
        "after": {"selection": asdict(best.outcome), "report": row},
        "warning": warning_of(asked.target, front, report_on),
        "advice": _advice(asked, front),
        "timed": f"{speed.TIMED[0]} sequences of {speed.longest(model, speed.TIMED[1])} tokens",
        "evaluations": round(selection.spent, 2),
    }


def warning_of(target: Target, front: Front, report_on: str) -> str | None:
    """A set that keeps the metric where it was chosen may not keep it elsewhere."""
    if target.keep_metric is None:
        return None
    plain = {
        row["removed"]: row["metric"] for row in front if row["draw"] == 0 and not row["repair"]
    }
    left = (
        next(row["metric"] for row in front if row["is_chosen"]) / plain[0]
        if plain[0]
        else float("nan")
    )
    if not left < target.keep_metric:
        return None
    return (
        f"{left:.4f} of the metric is left on {report_on}, not {target.keep_metric:g}: the choice fits its own "
        "examples; choose on more of them"
    )


def _advice(asked: Asked, front: Front) -> str:
    """What can be recommended by the examples that nothing was chosen on."""
    first = [row for row in front if row["draw"] == 0]
    return advice_of(first, _margin(asked, front), len(asked.reported_on.items), asked.splits[1])


def _margin(asked: Asked, front: Front) -> Margin:
    intact = next(row["metric"] for row in front if not row["removed"])
    return Margin.of(intact, asked.target.keep_metric)


def _study(
    asked: Asked, selection: Selection, heads: HeadSet, front: Front, pruning: Section
) -> Study:
    nothing = float("nan")
    rows = [
        Row(
            head.stack,
            head.layer,
            head.head,
            CUT,
            float(head in heads),
            nothing,
            nothing,
            selection.count,
        )
        for head in asked.model.heads
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
    record = build_record(asked.model_now, {"pruning": pruning}, seed=asked.options.seed)
    tables = {"front": TABLES["front"].frame(front), "search": TABLES["search"].frame(tried)}
    return Study(to_frame(rows), {}, record, tables)
