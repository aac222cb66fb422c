"""A random importance, as the control for the other estimates."""

from __future__ import annotations

import numpy as np

from headscope.ablation.estimates import Estimate, EstimateInputs
from headscope.statistics.base import Definition
from headscope.tables import Row

DEFINITIONS = {
    "random": Definition("share", "Random", "A random number from 0 to 1, as a control.")
}
COST = 0.0


def estimate(inputs: EstimateInputs) -> Estimate:
    scores = np.random.default_rng(inputs.seed).random(len(inputs.heads))
    rows = [
        Row.without_interval(head, "random", score, 1)
        for head, score in zip(inputs.heads, scores.tolist(), strict=True)
    ]
    return Estimate(inputs.heads, rows, {"random": scores})
