"""The parts of the page about smaller models: heads that were cut, and heads that follow fixed patterns."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from headscope.ablation.noninferiority import Margin, verdict_in
from headscope.report.cells import NONE, Cell, Part, is_missing, measured, number
from headscope.report.finding import margin_of
from headscope.report.grids import plain, recorded
from headscope.report.head_cells import count_cell

if TYPE_CHECKING:
    from headscope.study.study import Study


def front(study: Study) -> Part | None:
    table = study.tables.get("front")
    if table is None or not len(table):
        return None
    several = table["draw"].nunique() > 1
    table = table.sort_values("removed", kind="stable")
    mended = table["repair"].nunique() > 1
    rows = [
        [
            Cell(
                f"{int(row['removed'])}{' (cut)' if row['is_chosen'] else ''}", int(row["removed"])
            ),
            *([Cell(str(int(row["draw"])), int(row["draw"]))] if several else []),
            *([Cell(plain(row["repair"], 20), plain(row["repair"], 20))] if mended else []),
            Cell("on it" if row["is_front"] else "dominated", float(row["is_front"])),
            count_cell(row["parameters"]),
            _speedup(row),
            number(row["selection_metric"], decimals=4),
            measured(row["metric"], row["metric_low"], row["metric_high"], 4),
            measured(row["metric_change"], row["change_low"], row["change_high"], 4),
            _verdict(study, row),
            measured(row["loss_change"], row["loss_low"], row["loss_high"], 4),
        ]
        for row in table.to_dict("records")
    ]
    splits = [
        recorded(study.record, "pruning", side, "split") for side in ("selected_on", "reported_on")
    ]
    timed = recorded(study.record, "pruning", "timed")
    note = (
        f"Sets of heads were chosen on {plain(splits[0] or 'one split', 30)} and are reported on "
        f"{plain(splits[1] or 'another', 30)}: the metric, its change and that of the loss against the whole model, "
        "example by example, with 95 % intervals. Times as fast is against the whole model, measured on this machine"
        f"{' with ' + plain(timed, 60) if timed else ''}. A row is dominated where another one "
        "has no more heads and parameters, a metric as high and no time that is longer beyond the intervals, and is "
        "better in one of these; the others are the front."
    )
    margin = _margin(study, table.to_dict("records")[0])
    note += (
        f" Allowed loss: {margin} of the metric. A set is within it if the whole interval of its change is above "
        "it, each set by itself; where the interval reaches below, there are too few examples to tell."
    )
    if recorded(study.record, "pruning", "in_steps"):
        note += " Heads went in steps, and each was trained after it was cut."
    if removed := recorded(study.record, "pruning", "removed"):
        note += f" These heads are cut: {plain(removed, 1000)}."
    columns = (
        "removed",
        *(["draw"] if several else []),
        *(["repair"] if mended else []),
        "front",
        "parameters",
        "times as fast",
        "metric, chosen on",
        "metric",
        "change of metric",
        "allowed loss",
        "change of loss",
    )
    return Part("front", "What can be cut", note, columns, rows, "front.csv", ("front",))


WORDS = {"kept": ("within", 2.0), "unclear": ("cannot tell", 1.0), "lost": ("beyond", 0.0)}


def _verdict(study: Study, row: dict[Any, Any]) -> Cell:
    """Whether the change is within the allowed loss; the whole model has none."""
    if not row["removed"]:
        return Cell(NONE)
    count = recorded(study.record, "pruning", "reported_on", "examples")
    return Cell(
        *WORDS[verdict_in(row, _margin(study, row), count if isinstance(count, int) else None).kind]
    )


def _margin(study: Study, row: dict[Any, Any]) -> Margin:
    return margin_of(row, recorded(study.record, "pruning", "target", "keep_metric"))


def _speedup(row: dict[Any, Any]) -> Cell:
    """1 / time, as everywhere else that a speed is shown; the ends of the interval change places."""
    time, low, high = (
        math.nan if is_missing(row[name]) else row[name]
        for name in ("time", "time_low", "time_high")
    )
    return measured(1 / time, 1 / high, 1 / low, 2)


def fixing(study: Study) -> Part | None:
    table = study.tables.get("fixing")
    if table is None or not len(table):
        return None
    rows = [
        [
            Cell(plain(row["named"], 30) + (" (saved)" if row["is_chosen"] else ""), place),
            Cell(str(int(row["fixed"])), int(row["fixed"])),
            count_cell(row["parameters"]),
            _speedup(row),
            number(row["selection_metric"], decimals=4),
            measured(row["metric"], row["metric_low"], row["metric_high"], 4),
            measured(row["metric_change"], row["change_low"], row["change_high"], 4),
            measured(row["loss_change"], row["loss_low"], row["loss_high"], 4),
        ]
        for place, row in enumerate(table.to_dict("records"))
    ]
    how, timed = (recorded(study.record, "fixing", name) or "" for name in ("how", "timed"))
    note = (
        f"Heads that attend by fixed patterns: first ever more of them, then the layers one by one. {plain(how, 300)} "
        f"Reported on {plain(recorded(study.record, 'fixing', 'judged_on') or 'another split', 90)}: changes are "
        "paired with the whole model, example by example, with 95 % intervals. Times as fast is against the whole "
        f"model, measured on this machine{' with ' + plain(timed, 60) if timed else ''}."
    )
    columns = (
        "fixed",
        "heads",
        "parameters",
        "times as fast",
        "metric, chosen on",
        "metric",
        "change of metric",
        "change of loss",
    )
    return Part(
        "fixing",
        "What can be fixed",
        note,
        columns,
        rows,
        "fixing.csv",
        ("fixing",),
        frozenset({0}),
    )
