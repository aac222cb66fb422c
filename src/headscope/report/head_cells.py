"""Cells that a table of heads is made of: the head itself, counts, p-values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headscope.report.head_cards import Place
from headscope.report.study_access import stacks_of
from headscope.report.table_cells import NONE, Cell, is_missing, p_text
from headscope.report.text import plain

if TYPE_CHECKING:
    from headscope.study.study import Study

UNCORRECTED = (
    "Intervals are 95 % for each row by itself, without correction for multiple testing: one can exclude 0 beside a "
    "large p (Holm)."
)


def place_of(row: dict[Any, Any]) -> Place | None:
    """None where no head was chosen."""
    if is_missing(row["layer"]) or is_missing(row["head"]):
        return None
    return str(row["stack"]), int(row["layer"]), int(row["head"])


def head_cell(study: Study, place: Place | None) -> Cell:
    if place is None:
        return Cell(NONE)
    stack, layer, head = place
    address = f"{layer}.{head}"
    label = address if len(stacks_of(study)) == 1 else f"{plain(stack)}.{address}"
    return Cell(label, layer + head / 1000, label)


def named_cell(study: Study, name: Any) -> Cell:
    """The head of a name as in `encoder.3.2` or `3.2`."""
    stack, layer, head = ["", *str(name).split(".")][-3:]
    return head_cell(study, (stack or stacks_of(study)[0], int(layer), int(head)))


def p_cell(value: Any) -> Cell:
    return Cell(NONE) if is_missing(value) else Cell(p_text(value), float(value))


def count_cell(value: Any) -> Cell:
    return (
        Cell(NONE)
        if is_missing(value)
        else Cell(f"{int(value):,}".replace(",", "\u202f"), float(value))
    )
