"""What the importances in heads.csv mean."""

from __future__ import annotations

from headscope.statistics.base import Definition

DEFINITIONS = {
    "ablation-loss": Definition(
        "nats",
        "Change of loss without the head",
        "Mean change of the task's loss when the head is removed.",
    ),
    "ablation-metric": Definition(
        "points",
        "Change of the metric without the head",
        "Change of the task's metric when the head is removed.",
    ),
    "gradient": Definition(
        "nats",
        "Change of loss predicted by the gradient",
        "First-order prediction of the change of loss.",
    ),
    "gradient-absolute": Definition(
        "nats",
        "Sensitivity an example",
        "Mean over examples of the gradient's absolute term (Michel's paper).",
    ),
    "gradient-tokens": Definition(
        "nats",
        "Sensitivity a token",
        "Mean over tokens of the gradient's absolute term (Michel's code).",
    ),
    "gradient-fisher": Definition(
        "nats", "Fisher information", "Half the mean square of the gradient's term."
    ),
    "gradient-second": Definition(
        "nats",
        "Change of loss predicted to second order",
        "The gradient's prediction plus the Fisher term.",
    ),
    "gradient-batch": Definition(
        "nats",
        "Sensitivity a batch",
        "Mean over batches of 32 of the absolute mean term (TextPruner).",
    ),
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
    "relevance": Definition(
        "share",
        "Relevance",
        "The head's share of its layer's relevance for what the model says, by absolute values.",
    ),
    "relevance-signed": Definition(
        "number",
        "Signed relevance",
        "How much of what the model says came through the head; below 0: against it.",
    ),
    "output-norm": Definition(
        "length", "Length of what the head adds", "Mean norm after the output projection."
    ),
    "cut": Definition(
        "share", "Removed by the plan", "1 where the head is removed, 0 where it stays."
    ),
    "random": Definition("share", "Random", "A number from 0 to 1 by chance: the control."),
}
