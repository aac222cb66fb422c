"""Rows of front.csv and similar tables: a metric, its change against the unmodified model and that of the loss."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from headscope.ablation.noninferiority import Margin, verdict_in
from headscope.report.finding import HeadEstimate, finite, read_estimate
from headscope.report.study_access import entry_of
from headscope.report.table_cells import (
    Cell,
    Columns,
    count_cell,
    interval_cell,
    interval_column,
    is_missing,
    number_column,
)
from headscope.report.text import plain

if TYPE_CHECKING:
    from headscope.study.study import Study


def metric_name(study: Study, entry: str) -> str:
    """The metric in an entry of the run record: pruning, fixing, learned_masks or mask_table."""
    return plain(entry_of(study.record, entry, "metric") or "the metric", 30)


def examples_of(study: Study, entry: str) -> int | None:
    """The number of examples that results are reported on, if recorded."""
    count = entry_of(study.record, entry, "reported_on", "examples")
    return count if isinstance(count, int) else None


def speedup_cell(row: dict[Any, Any]) -> Cell:
    """The speedup, 1 / time. The lower end of the speedup comes from the upper end of the time."""
    names = ("time", "time_low", "time_high")
    time, low, high = (math.nan if is_missing(row[name]) else row[name] for name in names)
    return interval_cell(1 / time, 1 / high, 1 / low, 2)


SIZE_COLUMNS: Columns = {
    "parameters": lambda row: count_cell(row["parameters"]),
    "times as fast": speedup_cell,
    "metric, selection split": number_column("selection_metric", decimals=4),
}
METRIC = interval_column("metric", "metric_low", "metric_high", 4)
METRIC_CHANGE = interval_column("metric_change", "change_low", "change_high", 4)
LOSS_CHANGE = interval_column("loss_change", "loss_low", "loss_high", 4)


def metric_clause(study: Study, entry: str, row: dict[Any, Any]) -> str:
    """`accuracy is 0.8123`, from a row and the name of the metric in an entry of the run record."""
    return f"{metric_name(study, entry)} is {row['metric']:.4f}"


def change_of(row: dict[Any, Any]) -> HeadEstimate:
    """The change of the metric in a row."""
    return read_estimate(row, ("metric_change", "change_low", "change_high"), decimals=4)


def describe_change(row: dict[Any, Any], count: int | None, keep_metric: Any = None) -> str:
    """`change of −0.0045 [−0.0093, 0.0003]: within the allowed loss …`, from a row.

    count        number of examples that it was measured on, if known
    keep_metric  share of the metric to keep, if that was an option of the search
    """
    verdict = verdict_in(row, margin_of(row, keep_metric), count)
    return f"change of {change_of(row).text(sign=True)}: {verdict.sentence}"


def margin_of(row: dict[Any, Any], keep_metric: Any = None) -> Margin:
    """The allowed loss of the metric. The metric minus its change is the metric of the unpruned model."""
    keep = keep_metric if isinstance(keep_metric, int | float) else None
    return Margin.of(finite(row["metric"]) - finite(row["metric_change"]), keep)
