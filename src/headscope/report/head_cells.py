"""Cells that a table of heads is made of: the head itself, counts, p-values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headscope.report.cards import Place
from headscope.report.cells import NONE, Cell, is_missing
from headscope.report.grids import plain, stacks_of

if TYPE_CHECKING:
    from headscope.study.study import Study


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
    """Three decimals, or a power of ten where that would be 0."""
    if is_missing(value):
        return Cell(NONE)
    return Cell(f"{value:.3f}" if value >= 0.001 or value == 0 else f"{value:.0e}".replace("-", "−"), float(value))


def count_cell(value: Any) -> Cell:
    return Cell(NONE) if is_missing(value) else Cell(f"{int(value):,}".replace(",", "\u202f"), float(value))
