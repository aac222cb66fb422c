"""Definitions of the importances in heads.csv."""

from __future__ import annotations

from headscope.ablation.estimates import definitions
from headscope.statistics.base import Definition

DEFINITIONS = {
    "ablation-loss": Definition(
        "nats",
        "Change of loss when ablated",
        "Mean change of the task's loss when the head is ablated.",
    ),
    "ablation-metric": Definition(
        "points",
        "Change of the metric when ablated",
        "Change of the task's metric when the head is ablated.",
    ),
    **definitions(),
    "value-zeroing": Definition(
        "number",
        "Turn by value zeroing",
        "How far states at the layer's output turn (1 − cosine) without a token's values here, summed over tokens.",
    ),
    "knock-out": Definition(
        "number",
        "Turn by knock-out, weight given to others",
        "How far last states turn (1 − cosine) when the head does not see the chosen tokens and renormalises.",
    ),
    "knock-out-gone": Definition(
        "number",
        "Turn by knock-out, weight gone",
        "How far last states turn (1 − cosine) when the head's weights on the chosen tokens are zero.",
    ),
    "knock-out-random": Definition(
        "number",
        "Turn by knock-out of others, weight given",
        "The same for as many other tokens, drawn by chance, with renormalisation.",
    ),
    "knock-out-random-gone": Definition(
        "number",
        "Turn by knock-out of others, weight gone",
        "The same for as many other tokens, without.",
    ),
    "cut": Definition("share", "Pruned by the plan", "1 if the head is pruned, 0 if it is kept."),
}
