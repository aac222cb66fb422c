"""The numbers of a study as the page carries them: columns of JSON, maps in one byte a weight."""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from headscope.report.drawing.palette import DIVERGING_STOPS, SEQUENTIAL_STOPS
from headscope.report.head_cards import cards_of
from headscope.report.map_colours import colourings_of
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
from headscope.report.text import plain
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
    """Everything the page's script needs. Lists, never objects keyed by names from data.

    tables  what can be downloaded, by name
    taken   bytes that the rest of the page needs; the maps are cut to fit into what is left
    most    bytes that all of it may need
    """
    names = stacks_of(study)
    numbers = {
        "stacks": [
            dict(zip(("name", "layers", "heads"), (plain(s), *shape_of(study, s)), strict=True))
            for s in names
        ],
        "statistics": [_statistic(study, name, names) for name in statistics_of(study)],
        "offsets": _offsets(study, names),
        "cards": cards_of(study),
        "colourings": colourings_of(study),
        "tables": pack_tables(tables),
        "colours": {"sequential": SEQUENTIAL_STOPS, "diverging": DIVERGING_STOPS},
    }
    left = most - taken - len(to_json(numbers))
    return {**numbers, "maps": pack_maps(study, names, min(left, MOST_MAP_BYTES))}


def to_json(value: object) -> str:
    """JSON for a script element: no sign in it can end the element or begin a comment."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def pack_maps(study: Study, stacks: list[str], most_bytes: int) -> dict[str, Any]:
    """Mean maps by stack and head, each deflated by itself so that one is unpacked when it is asked for.

    A byte b stands for the weight (b / 254)², which is fine near 0 where most weights are; 255 for no weight.
    Positions are cut to the most that fits into `most_bytes`.
    """
    found = maps_of(study, "map", 4)
    for positions in POSITIONS:
        packed = [
            [_pack(head, positions) for head in _heads(found[s])] if s in found else []
            for s in stacks
        ]
        if sum(len(text) for stack in packed for text in stack) <= most_bytes:
            break
    shapes = [
        [min(side, positions) for side in found[s].shape[2:]] if s in found else [0, 0]
        for s in stacks
    ]
    widths = [found[s].shape[1] if s in found else 0 for s in stacks]
    return {
        "shapes": shapes,
        "heads": widths,
        "data": packed,
        "cut": any(_is_cut(m, positions) for m in found.values()),
    }


def pack_tables(tables: Mapping[str, pd.DataFrame]) -> list[dict[str, Any]]:
    """Every table as its csv file, deflated, the small ones first; what the page has no room for is left out."""
    found, room = [], MOST_TABLE_BYTES
    packed = {name: _csv(table) for name, table in tables.items()}
    for name in sorted(packed, key=lambda one: (len(packed[one]), one)):
        room -= len(packed[name])
        if room >= 0:
            found.append({"name": plain(name), "csv": packed[name]})
    return found


def _csv(table: pd.DataFrame) -> str:
    text = table.to_csv(index=False, float_format="%.10g", lineterminator="\n")
    return base64.b64encode(zlib.compress(text.encode("utf-8"), 9)).decode("ascii")


def _is_cut(maps: NDArray[Any], positions: int) -> bool:
    return bool(max(maps.shape[2:]) > positions)


def _heads(maps: NDArray[Any]) -> NDArray[Any]:
    return maps.reshape(-1, *maps.shape[2:])


def _pack(weights: NDArray[Any], positions: int) -> str:
    weights = np.asarray(weights[:positions, :positions], dtype=np.float64)
    has_weight = np.isfinite(weights)
    roots = np.sqrt(np.clip(np.where(has_weight, weights, 0.0), 0.0, 1.0))
    codes = np.where(has_weight, np.rint(roots * 254), NO_WEIGHT).astype(np.uint8)
    return base64.b64encode(zlib.compress(codes.tobytes(), 6)).decode("ascii")


def _statistic(study: Study, name: str, stacks: list[str]) -> dict[str, Any]:
    present = set(stacks_with(study, name))
    grids = {
        s: {column: grid_of(study, name, s, column) for column in COLUMNS}
        for s in stacks
        if s in present
    }
    values = [grid["value"].ravel() for grid in grids.values()]
    return {
        **describe_statistic(name, np.concatenate(values) if values else np.array([])),
        "stacks": [
            {column: [_number(x) for x in grids[s][column].ravel().tolist()] for column in COLUMNS}
            if s in grids
            else None
            for s in stacks
        ],
        "uniform": [_uniform(study, name, s) for s in stacks],
    }


def _uniform(study: Study, name: str, stack: str) -> list[float | int | None]:
    """By layer, what uniform attention would give; empty where that is not known."""
    shares = uniform_shares(study, name, stack)
    return (
        [_number(shares.get(layer, math.nan), 4) for layer in range(shape_of(study, stack)[0])]
        if shares
        else []
    )


def describe_statistic(name: str, values: NDArray[Any]) -> dict[str, Any]:
    """A statistic in words, and how its values over all stacks are coloured."""
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


def _offsets(study: Study, stacks: list[str]) -> list[Any]:
    found = maps_of(study, "offset", 3)
    return [
        [
            [_number(x, 4) for x in head]
            for head in found[s].reshape(-1, found[s].shape[-1]).tolist()
        ]
        if s in found
        else []
        for s in stacks
    ]


def _number(value: float, digits: int = 6) -> float | int | None:
    """A number in as few signs as carry `digits` figures; None for NaN, which JSON does not have."""
    if not math.isfinite(value):
        return None
    short = float(f"{value:.{digits}g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short
