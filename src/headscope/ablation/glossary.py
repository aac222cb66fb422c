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
        "State change by value zeroing",
        "How far the states of all tokens at the layer's output turn (1 − cosine, mean over these states) if one "
        "token's values are zeroed in this head, summed over the zeroed tokens.",
    ),
    "knock-out": Definition(
        "number",
        "State change by knock-out, renormalised",
        "How far the states after the last layer turn (1 − cosine) if the head cannot attend to the class of tokens "
        "that --to names; its rows are renormalised.",
    ),
    "knock-out-gone": Definition(
        "number",
        "State change by knock-out, not renormalised",
        "How far the states after the last layer turn (1 − cosine) if the head's weights on the class of tokens that "
        "--to names are zeroed.",
    ),
    "knock-out-random": Definition(
        "number",
        "State change by random knock-out, renormalised",
        "Control for knock-out: the same number of other tokens, chosen at random; rows are renormalised.",
    ),
    "knock-out-random-gone": Definition(
        "number",
        "State change by random knock-out, not renormalised",
        "Control for knock-out without renormalisation: the same number of other tokens, chosen at random.",
    ),
    "cut": Definition("share", "Pruned by the plan", "1 if the head is pruned, 0 if it is kept."),
}
