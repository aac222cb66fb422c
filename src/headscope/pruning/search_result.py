"""The result of a search: a plan, and a study of all sets that were tried and reported."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from headscope.ablation.noninferiority import Margin, advice_of, verdict_in
from headscope.config.option import recorded
from headscope.config.search import SearchConfig, splits_of
from headscope.heads import HeadSet
from headscope.model import latency as speed
from headscope.pruning.pareto_front import Report, Speeds
from headscope.pruning.plan import Plan
from headscope.pruning.search_inputs import SearchInputs
from headscope.pruning.subset_evaluator import Selection, SubsetState
from headscope.study.run_record import build_record
from headscope.study.schema.names import CUT
from headscope.study.schema.record import Section
from headscope.study.schema.tables import TABLES
from headscope.study.study import Study
from headscope.tables import Row, to_frame
from headscope.tasks import Judged, Prepared

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
class SearchResult:
    """The result of a search.

    plan        the heads to remove, with how they were chosen
    study       all of it as a study, with `cut` (1 removed, 0 kept) as a statistic of every head
    speeds      of the unpruned and the pruned model, as measured for the table `front`
    report_set  the examples of the report split
    judged      the unpruned and the pruned model on them
    is_kept     whether the set is shown to stay within the allowed loss there
    """

    plan: Plan
    study: Study
    speeds: Speeds
    report_set: Prepared
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


def make_result(
    inputs: SearchInputs,
    report: Report,
    front: Front,
    best: SubsetState,
    seconds: float,
    more: Mapping[str, Any] | None = None,
) -> SearchResult:
    """The chosen set as a plan and as a study. more: further entries of the record."""
    selection = report.selection
    heads = selection.heads(best.removed)
    record = _record(inputs, report, front, best) | dict(more or {})
    timeless = deepcopy(record) | {"config": inputs.options}  # equal for every run: no times
    timeless["after"]["report"] = {
        key: one for key, one in record["after"]["report"].items() if key not in CLOCK
    }
    plan = Plan.of(inputs.model, heads, timeless)
    study = _study(inputs, selection, heads, front, {**record, "seconds": round(seconds, 1)})
    verdict = verdict_in(
        record["after"]["report"], _margin(inputs, front), len(inputs.report_set.items)
    )
    judged = report.intact, report.judged(best)
    return SearchResult(
        plan,
        study,
        report.speeds(best),
        inputs.report_set,
        judged,
        is_kept=verdict.kind == "kept",
    )


def _record(inputs: SearchInputs, report: Report, front: Front, best: SubsetState) -> Section:
    selection, model = report.selection, inputs.model
    heads = selection.heads(best.removed)
    row = next(
        one
        for one in front
        if one["removed"] == len(heads) and one["draw"] == 0 and not one["repair"]
    )
    select_on, report_on = splits_of(inputs.data)
    return {
        "task": inputs.task.name,
        "data": inputs.files,
        "selected_on": {"split": select_on, "examples": len(inputs.selection_set.items)},
        "reported_on": {"split": report_on, "examples": len(inputs.report_set.items)},
        "unknown": asdict(inputs.report_set.counts.unknown),
        "search": inputs.config.search,
        "by": inputs.config.by,
        "objective": inputs.objective,
        "target": inputs.config.target,
        "metric": inputs.task.metrics[0],
        "intact": {"selection": asdict(selection.intact), "report": report.metrics},
        **({} if report.knows_nothing is None else {"knows_nothing": report.knows_nothing}),
        "removed": str(heads),
        "count": len(heads),
        "of": len(model.heads),
        "after": {"selection": asdict(best.outcome), "report": row},
        "warning": warning_of(inputs.config, front, report_on),
        "advice": _advice(inputs, front),
        "timed": f"{speed.TIMED[0]} sequences of {speed.longest(model, speed.TIMED[1])} tokens",
        "evaluations": round(selection.spent, 2),
    }


def warning_of(config: SearchConfig, front: Front, report_on: str) -> str | None:
    """A set that keeps the metric where it was chosen may not keep it elsewhere."""
    if config.keep_metric is None:
        return None
    plain = {
        row["removed"]: row["metric"] for row in front if row["draw"] == 0 and not row["repair"]
    }
    left = (
        next(row["metric"] for row in front if row["is_chosen"]) / plain[0]
        if plain[0]
        else float("nan")
    )
    if not left < config.keep_metric:
        return None
    return (
        f"{left:.4f} of the metric is left on {report_on}, not {config.keep_metric:g}: the choice fits its own "
        "examples; choose on more of them"
    )


def _advice(inputs: SearchInputs, front: Front) -> str:
    """What can be recommended by the examples that nothing was chosen on."""
    first = [row for row in front if row["draw"] == 0]
    return advice_of(
        first, _margin(inputs, front), len(inputs.report_set.items), splits_of(inputs.data)[1]
    )


def _margin(inputs: SearchInputs, front: Front) -> Margin:
    intact = next(row["metric"] for row in front if not row["removed"])
    return Margin.of(intact, inputs.config.keep_metric)


def _study(
    inputs: SearchInputs, selection: Selection, heads: HeadSet, front: Front, pruning: Section
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
        for head in inputs.model.heads
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
    record = build_record(inputs.model_record, {"pruning": pruning}, seed=inputs.run.seed)
    record["config"] = recorded(inputs.config, inputs.data, inputs.reading, inputs.run)
    tables = {"front": TABLES["front"].frame(front), "search": TABLES["search"].frame(tried)}
    return Study(to_frame(rows), {}, record, tables)
