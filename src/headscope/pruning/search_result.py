"""The result of a search: a plan, and a study of all sets that were tried and reported."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headscope.ablation.noninferiority import Margin, advice_of, verdict_in
from headscope.config.option import record_options
from headscope.config.search import SearchConfig, splits_of
from headscope.heads import HeadSet
from headscope.model.latency import Speed
from headscope.model.pruning_record import PruningRecord
from headscope.pruning.pareto_front import UNTIMED, FrontRow, Report, timing_setup
from headscope.pruning.plan import Plan
from headscope.pruning.search_inputs import SearchInputs, describe_splits
from headscope.pruning.subset_evaluator import SubsetEvaluator, SubsetState
from headscope.study.result import Result
from headscope.study.run_record import build_record
from headscope.study.schema.names import CUT
from headscope.study.schema.record import RunRecord, Section
from headscope.study.schema.tables import TABLES
from headscope.study.study import Study
from headscope.tables import Row, to_frame
from headscope.tasks import Judged, Prepared

if TYPE_CHECKING:
    import pandas as pd

Front = list[FrontRow]
# columns that depend on measured times, so that they differ between equal runs
CLOCK = (*UNTIMED, "is_front")


@dataclass
class SearchResult(Result):
    """The result of a search.

    plan        the heads to remove, and how they were chosen
    study       a study with the tables and the record of the search; its statistic `cut` is 1 for removed heads, else 0
    speeds      speeds of the unpruned and the pruned model, as in the table `front`
    report_set  the examples of the report split
    judged      losses and scores of the unpruned and the pruned model on the report split
    is_kept     whether the change on the report split is shown to be within the allowed loss
    """

    plan: Plan
    study: Study
    speeds: list[Speed]
    report_set: Prepared
    judged: tuple[Judged, Judged]
    is_kept: bool

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """The tables of the study."""
        return self.study.tables

    @property
    def record(self) -> RunRecord:
        """The record of the study."""
        return self.study.record

    @property
    def front(self) -> pd.DataFrame:
        """A row for every set that was reported: its performance on the report split, its size and its time."""
        return self.study.tables["front"]

    @property
    def tried(self) -> pd.DataFrame:
        """A row for every set that was evaluated on the selection split."""
        return self.study.tables["search"]

    def __repr__(self) -> str:
        return f"SearchResult(removes {self.plan.heads})"

    def write(self, out: str | Path, *, overwrite: bool = False) -> Path:
        """Write the study with its figures and page."""
        return self.study.write(out, overwrite=overwrite)


def make_result(
    inputs: SearchInputs,
    report: Report,
    front: Front,
    best: SubsetState,
    seconds: float,
    training_options: dict[str, Any] | None = None,
) -> SearchResult:
    """The result of a search.

    front             rows of front.csv
    best              the set that was chosen
    training_options  options of the training between the steps of iterative pruning; None if nothing was trained
    """
    selection = report.selection
    heads = selection.heads(best.removed)
    record = _record(inputs, report, front, best)
    if training_options is not None:
        record["in_steps"] = training_options
    timeless = deepcopy(record)  # without measured times, so that equal runs write equal plans
    timeless["config"] = inputs.options
    row = record["after"]["report"]
    timeless["after"]["report"] = {key: row[key] for key in row if key not in CLOCK}
    plan = Plan.of(inputs.model, heads, timeless)
    study = _study(inputs, selection, heads, front, {**record, "seconds": round(seconds, 1)})
    is_kept = verdict_in(row, _margin(inputs, front), len(inputs.report_set.items)).kind == "kept"
    judged = report.intact, report.judge(best)
    return SearchResult(plan, study, report.speeds(best), inputs.report_set, judged, is_kept)


def _record(inputs: SearchInputs, report: Report, front: Front, best: SubsetState) -> PruningRecord:
    """How the heads were chosen, and the results on both splits."""
    selection, model = report.selection, inputs.model
    heads = selection.heads(best.removed)
    row = next(row for row in _plain(front) if row["removed"] == len(heads))
    report_on, count = splits_of(inputs.data)[1], len(inputs.report_set.items)
    first = [row for row in front if row["draw"] == 0]
    return {
        "task": inputs.task.name,
        "data": inputs.files,
        **describe_splits(inputs.data, inputs.selection_set, inputs.report_set),
        "unknown": asdict(inputs.report_set.counts.unknown),
        "search": inputs.config.search,
        "by": inputs.config.by,
        "objective": inputs.objective,
        "target": inputs.config.target,
        "metric": inputs.task.metrics[0],
        "intact": {"selection": asdict(selection.intact), "report": report.metrics},
        **({} if report.chance_note is None else {"knows_nothing": report.chance_note}),
        "removed": str(heads),
        "count": len(heads),
        "of": len(model.heads),
        "after": {"selection": asdict(best.outcome), "report": row},
        "warning": warning_of(inputs.config, front, report_on),
        "advice": advice_of(first, _margin(inputs, front), count, report_on),
        "timed": timing_setup(model),
        "evaluations": round(selection.spent, 2),
    }


def warning_of(config: SearchConfig, front: Front, report_on: str) -> str | None:
    """A warning if the chosen set keeps the metric on the selection split, but not on the report split; else None."""
    if config.keep_metric is None:
        return None
    intact = {row["removed"]: row["metric"] for row in _plain(front)}[0]
    left = next(row["metric"] for row in front if row["is_chosen"]) / (intact or float("nan"))
    if not left < config.keep_metric:
        return None
    return (
        f"{left:.4f} of the metric is left on {report_on}, not {config.keep_metric:g}: the choice fits its own "
        "examples; choose on more of them"
    )


def _plain(front: Front) -> Front:
    """The sets of the first path, without repairs."""
    return [row for row in front if row["draw"] == 0 and not row["repair"]]


def _margin(inputs: SearchInputs, front: Front) -> Margin:
    """The allowed loss of the metric on the report split."""
    intact = next(row["metric"] for row in front if not row["removed"])
    return Margin.of(intact, inputs.config.keep_metric)


def _study(
    inputs: SearchInputs, selection: SubsetEvaluator, heads: HeadSet, front: Front, pruning: Section
) -> Study:
    """The study of a search, with the tables `front` and `search`. pruning: a section of its run record."""
    rows = [
        Row.without_interval(head, CUT, float(head in heads), selection.count)
        for head in inputs.model.heads
    ]
    tried = [
        {
            "order": order,
            "removed": selection.size(removed),
            **asdict(outcome),
            "heads": str(selection.heads(removed)),
        }
        for order, (removed, outcome) in enumerate(selection.tried.items())
    ]
    record = build_record(inputs.model_record, {"pruning": pruning}, seed=inputs.run.seed)
    record["config"] = record_options(inputs.config, inputs.data, inputs.reading, inputs.run)
    tables = {"front": TABLES["front"].frame(front), "search": TABLES["search"].frame(tried)}
    return Study(to_frame(rows), {}, record, tables)
