"""The map of heads as a table that needs no script: a cell for each head, coloured by its main role."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MOST_WITH_TEXT = (
    16  # largest number of heads per layer for text in cells; as in web/src/report/head_grid.js
)
DARK, LIGHT = "#14212d", "#fdfdfd"


def static_map(numbers: Mapping[str, Any]) -> dict[str, Any] | None:
    """The variables of the template for the first colouring in the payload of a page; None if there is no colouring.

    definition  how to read the map
    legend      list of entries with text, colour, pale and heads
    stacks      list of stacks with name, is_dense, columns (labels) and rows of cells. A cell is None, or has label,
                colour, ink (colour of its text), pale, text and brief
    """
    if not numbers["colourings"]:
        return None
    colouring = numbers["colourings"][0]
    stacks = [
        _stack(stack, cells, colouring["labels"])
        for stack, cells in zip(numbers["stacks"], colouring["stacks"], strict=True)
        if cells
    ]
    return {
        "title": colouring["title"],
        "definition": colouring["definition"],
        "legend": [{"pale": False, **label} for label in colouring["labels"]],
        "stacks": stacks,
    }


def _stack(
    stack: Mapping[str, Any], cells: list[Any], labels: list[dict[str, Any]]
) -> dict[str, Any]:
    width, is_dense = stack["heads"], stack["heads"] > MOST_WITH_TEXT
    shown = [None if cell is None else _cell(cell, labels, is_dense) for cell in cells]
    return {
        "name": stack["name"],
        "is_dense": is_dense,
        "columns": ["" if is_dense and head % 4 else head for head in range(width)],
        "rows": [shown[start : start + width] for start in range(0, len(shown), width)],
    }


def _cell(cell: list[Any], labels: list[dict[str, Any]], is_dense: bool) -> dict[str, Any]:
    label = labels[cell[0]]
    return {
        "label": label["text"],
        "colour": label["colour"],
        "ink": _ink(label["colour"]),
        "pale": label.get("pale", False),
        "text": "" if is_dense else cell[1],
        "brief": "" if is_dense or len(cell) < 3 else cell[2],
    }


def _ink(colour: str) -> str:
    """The colour of text on this background: the one with more contrast."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return DARK if luminance > 0.21 else LIGHT
