"""The numbers of a study for the script of its page: columns as JSON, maps with one byte per weight."""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from headscope.report.drawing.palette import DIVERGING_STOPS, SEQUENTIAL_STOPS
from headscope.report.head_cards import cards_of
from headscope.report.map_colours import colourings_of
from headscope.report.page.templates import to_json
from headscope.report.scale import group_of, scale_of, sentence_of, title_of
from headscope.report.study_access import (
    Column,
    grid_of,
    maps_of,
    shape_of,
    stacks_of,
    stacks_with,
    statistics_of,
    uniform_shares,
)
from headscope.report.text import csv_text, plain
from headscope.study.schema.names import StatisticName

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from headscope.study.study import Study

PAGE_BYTES = 2_950_000  # a page is to be mailable: below 3 MB
MOST_MAP_BYTES = 1_300_000
MOST_TABLE_BYTES = 900_000
POSITIONS = (128, 96, 64, 48, 32, 24, 16)
NO_WEIGHT = 255
COLUMNS: tuple[Column, ...] = ("value", "low", "high", "count")


def payload(
    study: Study, tables: Mapping[str, pd.DataFrame], taken: int = 0, most: int = PAGE_BYTES
) -> dict[str, Any]:
    """The data of the page's script.

    Names from the data are values and never keys of JSON objects, since a name such as __proto__ is a special key in
    JavaScript.

    tables  by name, for download
    taken   bytes of the rest of the page; maps are cropped to fit into the remaining ones
    most    largest number of bytes of the entire page
    """
    names = stacks_of(study)
    shapes = [(plain(stack), *shape_of(study, stack)) for stack in names]
    numbers = {
        "stacks": [{"name": s, "layers": layers, "heads": heads} for s, layers, heads in shapes],
        "statistics": [_statistic(study, name, names) for name in statistics_of(study)],
        "offsets": _offsets(study, names),
        "cards": cards_of(study),
        "colourings": colourings_of(study),
        "tables": pack_tables(tables),
        "colours": {"sequential": SEQUENTIAL_STOPS, "diverging": DIVERGING_STOPS},
    }
    remaining = most - taken - len(to_json(numbers))
    return {**numbers, "maps": pack_maps(study, names, min(remaining, MOST_MAP_BYTES))}


def pack_maps(study: Study, stacks: list[str], most_bytes: int) -> dict[str, Any]:
    """Mean maps by stack and head. Each is compressed separately, so that the page can unpack one at a time.

    A byte b is the weight (b / 254)², so the resolution is finest near 0, where most weights are; 255 means no weight.
    Maps are cropped to the largest number of positions of POSITIONS with which all of them fit into `most_bytes`.
    """
    no_maps = np.zeros((0, 0, 0, 0))
    of_stacks = maps_of(study, "map", 4)
    maps = [of_stacks.get(stack, no_maps) for stack in stacks]  # [layer, head, query, key]
    for positions in POSITIONS:
        data = [[_pack_map(head, positions) for layer in stack for head in layer] for stack in maps]
        if sum(len(text) for stack in data for text in stack) <= most_bytes:
            break
    return {
        "shapes": [[min(side, positions) for side in stack.shape[2:]] for stack in maps],
        "heads": [stack.shape[1] for stack in maps],
        "data": data,
        "cut": any(max(stack.shape[2:]) > positions for stack in maps),
    }


def pack_tables(tables: Mapping[str, pd.DataFrame]) -> list[dict[str, Any]]:
    """Tables as compressed csv files, small ones first; those beyond MOST_TABLE_BYTES in total are left out."""
    packed = {name: _compress(csv_text(table).encode("utf-8"), 9) for name, table in tables.items()}
    fitting, room = [], MOST_TABLE_BYTES
    for name, text in sorted(packed.items(), key=lambda item: (len(item[1]), item[0])):
        room -= len(text)
        if room >= 0:
            fitting.append({"name": plain(name), "csv": text})
    return fitting


def _pack_map(weights: NDArray[Any], positions: int) -> str:
    weights = np.asarray(weights[:positions, :positions], dtype=np.float64)
    has_weight = np.isfinite(weights)
    roots = np.sqrt(np.clip(np.where(has_weight, weights, 0.0), 0.0, 1.0))
    codes = np.where(has_weight, np.rint(roots * 254), NO_WEIGHT).astype(np.uint8)
    return _compress(codes.tobytes(), 6)


def _compress(content: bytes, level: int) -> str:
    return base64.b64encode(zlib.compress(content, level)).decode("ascii")


def _statistic(study: Study, name: str, stacks: list[str]) -> dict[str, Any]:
    present = stacks_with(study, name)
    values = [grid_of(study, name, stack).ravel() for stack in stacks if stack in present]
    return {
        **describe_statistic(name, np.concatenate(values) if values else np.array([])),
        "stacks": [_columns(study, name, s) if s in present else None for s in stacks],
        "uniform": [_uniform(study, name, stack) for stack in stacks],
    }


def _columns(study: Study, name: str, stack: str) -> dict[str, list[float | int | None]]:
    """The columns of a statistic in a stack, one number per head."""
    grids = {column: grid_of(study, name, stack, column) for column in COLUMNS}
    return {column: [_number(x) for x in grid.ravel().tolist()] for column, grid in grids.items()}


def _uniform(study: Study, name: str, stack: str) -> list[float | int | None]:
    """[layer]: the value that uniform attention would have; empty if it is not defined for this statistic."""
    shares = uniform_shares(study, name, stack)
    layers = range(shape_of(study, stack)[0]) if shares else ()
    return [_number(shares.get(layer, math.nan), 4) for layer in layers]


def describe_statistic(name: str, values: NDArray[Any]) -> dict[str, Any]:
    """The name, title, definition and colour scale of a statistic, from its values over all stacks."""
    scale = scale_of(name, values)
    return {
        "name": plain(name),
        "group": plain(group_of(name)),
        "lens": plain(StatisticName.parse(name).lens),
        "title": plain(title_of(name)),
        "definition": plain(sentence_of(name), 600),
        "unit": scale.unit,
        "kind": scale.kind,
        "low": _number(scale.low),
        "high": _number(scale.high),
        "diverging": scale.is_diverging,
        "reversed": scale.is_reversed,
    }


def _offsets(study: Study, stacks: list[str]) -> list[list[list[float | int | None]]]:
    """[stack, head, offset]: mean attention by offset; empty for a stack without these values."""
    profiles = maps_of(study, "offset", 3)  # [layer, head, offset]
    return [
        [[_number(x, 4) for x in head] for layer in profiles.get(stack, ()) for head in layer]
        for stack in stacks
    ]


def _number(value: float, digits: int = 6) -> float | int | None:
    """A number with `digits` significant digits in few characters; None for NaN, which JSON does not have."""
    if not math.isfinite(value):
        return None
    short = float(f"{value:.{digits}g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short
