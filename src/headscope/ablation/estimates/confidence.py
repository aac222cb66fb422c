"""Confidence as an estimate of importance (Voita et al. 2019): heads that concentrate on one token matter more."""

from __future__ import annotations

import numpy as np

from headscope.ablation.estimates import FORWARD, Estimate, EstimateInputs
from headscope.heads import Head
from headscope.statistics.base import Definition

DEFINITIONS: dict[str, Definition] = {}  # it is defined as a statistic: `statistics/confidence.py`
COST = FORWARD


def estimate(inputs: EstimateInputs, name: str = "confidence", sign: int = 1) -> Estimate:
    """Importance from a statistic of attention. sign: 1 if larger values mean more important, -1 if smaller ones do."""
    rows = inputs.measure(name)
    values = {Head(row.stack, row.layer, row.head): row.value for row in rows}
    scores = sign * np.array([values.get(head, np.nan) for head in inputs.heads])
    return Estimate(inputs.heads, rows, {name: scores})
