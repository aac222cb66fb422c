"""Is attention to a class of tokens a no-op? One sentence, with the numbers it rests on (Clark et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

NAMES = {"sep": "separators", "cls": "the classification token"}
SINK, SINK_OVER_UNIFORM = 0.1, 2.0  # a layer's attention goes there: so much of it, and so many times what is uniform
SMALL = 0.5  # a gradient is small below so much of that on other tokens, at the upper end of its interval


@dataclass(frozen=True)
class Verdict:
    """Whether the no-op claim holds for a class of tokens in one stack; None where it is not attended to."""

    stack: str
    kind: str
    holds: bool | None
    layers: tuple[int, ...]
    sentence: str


def verdicts(table: pd.DataFrame) -> list[Verdict]:
    """One for separators and one for the classification token of each stack that has them, from gradients.csv."""
    found = []
    for stack in dict.fromkeys(table["stack"]):
        for kind in NAMES:
            here = table[(table["stack"] == stack) & (table["class"] == kind)]
            if len(here):
                found.append(_verdict(stack, kind, here))
    return found


def _verdict(stack: str, kind: str, table: pd.DataFrame) -> Verdict:
    by_layer: dict[int, dict[str, Any]] = {}
    for row in table.to_dict("records"):
        by_layer.setdefault(int(row["layer"]), {})[row["measure"]] = row
    name = NAMES[kind]
    sinks = tuple(layer for layer, rows in sorted(by_layer.items()) if _is_sink(rows))
    if not sinks:
        layer, rows = max(by_layer.items(), key=lambda item: item[1]["attention"]["value"])
        most = rows["attention"]["value"]
        told = f"no layer sends more than {most * 100:.0f} % of its attention to {name} (layer {layer})"
        return Verdict(stack, kind, None, (), f"{stack.capitalize()}: the question does not arise, as {told}.")
    small = [layer for layer in sinks if _at(by_layer, layer, "gradient-ratio", "high") < SMALL]
    centred = [layer for layer in sinks if _at(by_layer, layer, "centred-ratio", "high") < SMALL]
    holds = len(small) == len(sinks)
    shares = [_at(by_layer, layer, "attention") for layer in sinks]
    raw = [_at(by_layer, layer, "gradient-ratio") for layer in sinks]
    moved = [_at(by_layer, layer, "centred-ratio") for layer in sinks]
    carried = [_at(by_layer, layer, "weighted-ratio") for layer in sinks]
    ends = [_at(by_layer, layer, "gradient-ratio", "high") for layer in sinks]
    said = "holds" if holds else f"holds in {len(small)} of these {len(sinks)} layers" if small else "does not hold"
    sentence = (
        f"{stack.capitalize()}: where {name} draw{'s' if kind == 'cls' else ''} attention "
        f"({_listed(sinks)}: {_range(shares, '%')} of it) the gradient by a weight there is {_range(raw)} times that "
        f"on other tokens (upper ends of the intervals: {_range(ends)}; small: below {SMALL}), so the no-op claim "
        f"{said}; centred, which counts where the weight goes instead, it is {_range(moved)} times, small in "
        f"{len(centred)} of {len(sinks)}; times the weight, what an edge there carries, {_range(carried)} times."
    )
    return Verdict(stack, kind, holds, sinks, sentence)


def _is_sink(rows: dict[str, Any]) -> bool:
    most = rows["attention"]["value"]
    return bool(most >= SINK and most >= SINK_OVER_UNIFORM * rows["uniform"]["value"])


def _at(by_layer: dict[int, dict[str, Any]], layer: int, measure: str, end: str = "value") -> float:
    row = by_layer[layer].get(measure)
    return float("nan") if row is None else float(row[end])


def _listed(layers: tuple[int, ...]) -> str:
    return f"layer{'s' if len(layers) > 1 else ''} {', '.join(map(str, layers))}"


def _range(values: list[float], unit: str = "") -> str:
    """`0.12 to 0.40`, `31 % to 46 %`, or one number where they are the same as written."""
    texts = [f"{value:.0%}".replace("%", " %") if unit else f"{value:.2f}" for value in (min(values), max(values))]
    return texts[0] if texts[0] == texts[1] else f"{texts[0]} to {texts[1]}"
