"""The parts of the page about masks: those that were learned, and what a task loses under each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headscope.report.study_access import recorded
from headscope.report.table_cells import Cell, Part, measured, number
from headscope.report.text import plain

if TYPE_CHECKING:
    from headscope.study.study import Study


def learned_masks(study: Study) -> Part | None:
    table = study.tables.get("learned_masks")
    if table is None or not len(table):
        return None
    hard = "sparsity" in table
    rows = [
        [
            Cell(plain(row["aim"], 40), plain(row["aim"], 40)),
            Cell(str(int(row["seed"])), int(row["seed"])),
            *([number(row["sparsity"], decimals=3)] if hard else []),
            measured(row["metric"], row["metric_low"], row["metric_high"], 4),
            measured(row["metric_change"], row["change_low"], row["change_high"], 4),
            measured(row["loss_change"], row["loss_low"], row["loss_high"], 4),
        ]
        for row in table.to_dict("records")
    ]
    metric = plain(recorded(study.record, "learned_masks", "metric") or "the metric", 30)
    splits = recorded(study.record, "learned_masks", "splits") or ["one split", "another"]
    frozen = recorded(study.record, "learned_masks", "options", "frozen")
    note = (
        f"Masks are reported on {plain(splits[1], 30)}: {metric}, its change and that of the loss against the model "
        "without a mask, example by example, with 95 % intervals. "
        + (
            "Only the mask was trained."
            if frozen
            else "The weights were trained with the mask: a change is of both."
        )
    )
    columns = (
        "aim",
        "seed",
        *(["forbidden share"] if hard else []),
        metric,
        "change",
        "change of loss",
    )
    name, figures = "learned-masks", ("learned-mask",)
    heading = "Which positions matter"
    return Part(name, heading, note, columns, rows, "learned_masks.csv", figures, frozenset({0}))


def mask_table(study: Study) -> Part | None:
    table = study.tables.get("mask_table")
    if table is None or not len(table):
        return None
    rows = [
        [
            Cell(plain(row["mask"], 60), plain(row["mask"], 60)),
            Cell(plain(row["mode"], 20), plain(row["mode"], 20)),
            number(row["sparsity"], decimals=3),
            number(row["metric"], decimals=4),
            measured(row["metric_change"], row["change_low"], row["change_high"], 4),
            number(row["loss_change"], decimals=4, sign=True),
            Cell(str(int(row["seeds"])), int(row["seeds"])),
        ]
        for row in table.to_dict("records")
    ]
    metric = plain(recorded(study.record, "mask_table", "metric") or "the metric", 30)
    split = plain(recorded(study.record, "mask_table", "reported_on", "split") or "one split", 30)
    note = (
        f"Reported on {split}. A change is that from the same training without a mask and with the same seed, on the "
        "same examples: of one seed with the paired 95 % interval over examples, of several the mean with Student's "
        "interval over seeds."
    )
    columns = ("mask", "trained", "forbidden share", metric, "change", "change of loss", "seeds")
    name, figures = "mask-table", ("mask-table",)
    return Part(
        name, "What masks cost", note, columns, rows, "mask_table.csv", figures, frozenset({0, 1})
    )
