"""Small made-up studies for the tests of the report: known shapes, known numbers, no model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from headscope.study.study import Study
from headscope.tables import Row, to_frame

STATISTICS = [
    "self",
    "previous",
    "next",
    "distance",
    "cls",
    "sep",
    "punctuation",
    "special",
    "entropy",
    "cls-entropy",
    "confidence",
    "confidence-content",
    "argmax-share",
    "argmax-offset",
]
NOT_IN_CROSS = ("self", "previous", "next", "distance", "argmax-share", "argmax-offset")
SMALL = {"encoder": (2, 4)}
THREE = {"encoder": (3, 4), "decoder": (3, 4), "cross": (3, 4)}
RECORD: dict[str, Any] = {
    "schema": 1,
    "command": "headscope analyze tiny --corpus texts.txt",
    "versions": {"headscope": "0.1.0", "torch": "2.13.0"},
    "model": {"name": "tiny", "class": "BertModel", "family": "bert", "sha256": "ab" * 32},
    "data": {
        "files": [{"path": "texts.txt", "sha256": "cd" * 32, "format": "text"}],
        "read": 1503,
        "used": 1500,
        "truncated": 7,
        "skipped": {"empty": 3},
        "tokens": 52000,
        "max_length": 128,
        "pairs": False,
    },
    "seed": 0,
    "lens": "raw",
    "durations": {"load": 1.2, "pass": 9.8},
}


def record_for(heads: pd.DataFrame, sha256: str) -> dict[str, Any]:
    """The record with the shape of the model that these rows are of."""
    ends = heads.groupby("stack")[["layer", "head"]].max() + 1
    shape = {"layers": ends["layer"].to_dict(), "heads": ends["head"].to_dict()}
    return {**RECORD, "model": {**RECORD["model"], **shape, "sha256": sha256}}


def made_up(
    stacks: dict[str, tuple[int, int]] | None = None,
    statistics: list[str] | tuple[str, ...] = tuple(STATISTICS),
    *,
    positions: int = 20,
    reach: int = 12,
    record: dict[str, Any] | None = None,
    has_maps: bool = True,
) -> Study:
    """A study with a value for every head and statistic, the same in every run."""
    random = np.random.default_rng(7)
    rows: list[Row] = []
    maps: dict[str, Any] = {}
    for stack, (layers, heads) in (stacks or SMALL).items():
        for name in statistics:
            if stack == "cross" and name in NOT_IN_CROSS:
                continue
            for layer in range(layers):
                for head in range(heads):
                    rows.append(_row(random, stack, layer, head, name))
        weights = random.dirichlet(np.full(positions, 0.1), size=(layers, heads, positions))
        weights[:, :, -2:] = np.nan  # no text was that long
        maps[f"map/{stack}"] = weights
        if stack != "cross":
            maps[f"offset/{stack}"] = random.dirichlet(np.ones(2 * reach + 1), size=(layers, heads))
    return Study(to_frame(rows), maps if has_maps else {}, RECORD if record is None else record)


def _row(random: np.random.Generator, stack: str, layer: int, head: int, name: str) -> Row:
    if name == "argmax-offset":
        return Row(stack, layer, head, name, float(random.integers(-20, 20)), np.nan, np.nan, 1500)
    largest = {"entropy": 4.8, "cls-entropy": 4.8, "distance": 60.0}.get(name, 1.0)
    value = largest * float(random.beta(0.6, 2.0))
    half = 0.02 * value
    return Row(stack, layer, head, name, value, value - half, value + half, 1500)


def roled(head: int, role: str, value: float) -> dict[str, Any]:
    """A row of roles.csv: what a head of layer 0 does for sure."""
    key = {"stack": "encoder", "layer": 0, "head": head, "role": role}
    numbers = {
        "value": value,
        "low": value - 0.01,
        "high": value + 0.01,
        "baseline": np.nan,
        "threshold": 0.5,
    }
    return key | numbers | {"is_sure": True, "rule": "over 0.5", "count": 99}
