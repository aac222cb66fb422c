"""Is attention to separators, or to another sink, a no-op? (Clark et al. 2019)

It is a no-op if the gradient of the loss with respect to the weights on the sink is small, compared with the gradient
for weights on other tokens. The result is a verdict in words, and the numbers that it rests on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

NAMES = {"sep": "separators", "cls": "the classification token", "first": "the first token"}
# A class of tokens is a sink of a layer if it gets at least this share of the attention, and at least this multiple of
# what it would get from uniform attention.
SINK, SINK_OVER_UNIFORM = 0.1, 2.0
# A gradient is small if its ratio to the gradient on other tokens is below this, at the upper end of the interval.
SMALL = 0.5


@dataclass(frozen=True)
class SeparatorVerdict:
    """Whether attention to one sink of a stack is a no-op.

    kind      the class of tokens that is the sink; empty if the stack has no sink
    holds     whether it is a no-op in all layers where it is a sink; None if there is no sink
    layers    the layers where it is a sink
    sentence  the verdict and its interpretation, in words
    numbers   the numbers that the verdict rests on, in words; empty if there is no sink
    """

    stack: str
    kind: str
    holds: bool | None
    layers: tuple[int, ...]
    sentence: str
    numbers: str = ""


# {layer: {measure: row of gradients.csv}}, of one class of tokens
ByLayer = dict[int, dict[str, Any]]


def verdicts(table: pd.DataFrame) -> list[SeparatorVerdict]:
    """The verdicts from gradients.csv: one for each sink of each stack, and one for each stack without a sink."""
    every = []
    stacks = list(dict.fromkeys(table["stack"]))
    for stack in stacks:
        where = f"{str(stack).capitalize()}: " if len(stacks) > 1 else ""
        of_stack = _verdicts_of_stack(stack, table[table["stack"] == stack])
        every += [replace(verdict, sentence=where + verdict.sentence) for verdict in of_stack]
    return every


def _verdicts_of_stack(stack: str, table: pd.DataFrame) -> list[SeparatorVerdict]:
    classes = {kind: _by_layer(table, kind) for kind in NAMES}
    classes = {kind: by_layer for kind, by_layer in classes.items() if by_layer}
    sinks = {
        kind: tuple(layer for layer, rows in by_layer.items() if _is_sink(rows))
        for kind, by_layer in classes.items()
    }
    others = []
    for kind in (kind for kind in classes if not sinks[kind]):
        most = _share([max(rows["attention"]["value"] for rows in classes[kind].values())])
        others.append(f"{NAMES[kind]} draw{_s(kind)} at most {most} of attention here")
    listed = _capitalise(" and ".join(others))
    if classes and not any(sinks.values()):
        sentence = f"{listed}. They are not a sink, so there is no no-op attention to explain."
        return [SeparatorVerdict(stack, "", None, (), sentence)]
    aside = f"{listed}; " if others else ""
    return [
        _verdict(stack, kind, classes[kind], layers, aside)
        for kind, layers in sinks.items()
        if layers
    ]


def _verdict(
    stack: str, kind: str, by_layer: ByLayer, sinks: tuple[int, ...], aside: str
) -> SeparatorVerdict:
    """The verdict on one sink.

    sinks  the layers where the tokens are a sink
    aside  a clause about the tokens that are not sinks, to precede the verdict
    """
    small = [layer for layer in sinks if _at(by_layer, layer, "gradient-ratio", "high") < SMALL]
    centred = [layer for layer in sinks if _at(by_layer, layer, "centred-ratio", "high") < SMALL]
    holds = len(small) == len(sinks)
    shares, raw, moved, weighted = (
        [_at(by_layer, layer, measure) for layer in sinks]
        for measure in ("attention", "gradient-ratio", "centred-ratio", "weighted-ratio")
    )
    ends = [_at(by_layer, layer, "gradient-ratio", "high") for layer in sinks]
    lead = (
        f"the sink {'are' if kind == 'sep' else 'is'} {NAMES[kind]}"
        if aside
        else f"{NAMES[kind]} draw{_s(kind)} much attention"
    )
    answer = _answer("them" if kind == "sep" else "it", len(small), len(centred), len(sinks))
    sentence = (
        f"{_capitalise(aside + lead)}, and {answer} "
        f"({_share(shares)} of attention in {_layers(sinks)}). {_meaning(small, sinks, moved)}"
    )
    numbers = (
        f"The raw gradient for a weight on {NAMES[kind]} is {_range(raw)} times that for other tokens (upper ends of "
        f"the intervals: {_range(ends)}; it is small if below {SMALL}). Minus the mean of its row, it is "
        f"{_range(moved)} times that for other tokens, which is small in {len(centred)} of {len(sinks)} layers. "
        f"Multiplied by the weight, it is {_range(weighted)} times that for other tokens."
    )
    return SeparatorVerdict(stack, kind, holds, sinks, sentence, numbers)


def _answer(tokens: str, small: int, centred: int, sinks: int) -> str:
    """The verdict in a few words.

    small, centred  number of layers in which the raw gradient is small, and the gradient minus its row's mean
    sinks           number of layers where the tokens are a sink
    """
    if not small:
        return f"attention to {tokens} is not a no-op"
    if small < sinks:
        return f"attention to {tokens} is a no-op in {small} of {sinks} layers at most"
    return f"attention to {tokens} is a no-op{'' if centred == sinks else ' only in part'}"


def _meaning(small: list[int], sinks: tuple[int, ...], moved: list[float]) -> str:
    """The interpretation of the raw and the centred gradients, as a sentence.

    small  the layers with a small raw gradient
    moved  for each layer, the ratio of the centred gradient to that of other tokens
    """
    link = "and moving that weight elsewhere changes"
    if len(small) == len(sinks):
        extent = "small"
        if max(moved) >= SMALL:
            link = "but moving that weight elsewhere still changes"
    else:
        extent = f"small in {_layers(tuple(small))}" if small else "not small"
    return f"The raw gradient is {extent}, {link} the loss {_share(moved)} as much as for other tokens."


def _by_layer(table: pd.DataFrame, kind: str) -> ByLayer:
    """The rows of a class of tokens by layer and measure."""
    by_layer: ByLayer = {}
    for row in table[table["class"] == kind].to_dict("records"):
        by_layer.setdefault(int(row["layer"]), {})[row["measure"]] = row
    return dict(sorted(by_layer.items()))


def _is_sink(rows: dict[str, Any]) -> bool:
    """Whether a class of tokens is a sink of a layer."""
    most = rows["attention"]["value"]
    return bool(most >= SINK and most >= SINK_OVER_UNIFORM * rows["uniform"]["value"])


def _at(by_layer: ByLayer, layer: int, measure: str, end: str = "value") -> float:
    row = by_layer[layer].get(measure)
    return float("nan") if row is None else float(row[end])


def _capitalise(text: str) -> str:
    return text[:1].upper() + text[1:]


def _s(kind: str) -> str:
    return "" if kind == "sep" else "s"


def _layers(layers: tuple[int, ...]) -> str:
    """`layer 3`, `layers 0, 2`, `layers 1 to 5`."""
    if len(layers) > 2 and layers == tuple(range(layers[0], layers[-1] + 1)):
        return f"layers {layers[0]} to {layers[-1]}"
    return f"layer{'s' if len(layers) > 1 else ''} {', '.join(map(str, layers))}"


def _range(values: list[float]) -> str:
    """`0.12 to 0.40`, or one number if both are equal when rounded."""
    low, high = (f"{value:.2f}" for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def _share(values: list[float]) -> str:
    """`31 to 46 %`, or one number."""
    low, high = (f"{100 * value:.0f}" for value in (min(values), max(values)))
    return f"{low} %" if low == high else f"{low} to {high} %"
