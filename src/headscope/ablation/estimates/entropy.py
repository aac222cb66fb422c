"""Entropy as an estimate of importance: heads that spread their attention count as less important."""

from __future__ import annotations

from headscope.ablation.estimates import FORWARD, Estimate, EstimateInputs, confidence
from headscope.statistics.base import Definition

DEFINITIONS: dict[str, Definition] = {}  # it is defined as a statistic: `statistics/entropy.py`
COST = FORWARD


def estimate(inputs: EstimateInputs) -> Estimate:
    return confidence.estimate(inputs, "entropy", sign=-1)
