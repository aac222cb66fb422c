"""Token maps the slow way: in loops over tokens, from nothing but attention weights by (stack, layer)."""

from __future__ import annotations

from collections import deque
from functools import cache

import numpy as np
from numpy.typing import NDArray

Weights = dict[tuple[str, int], NDArray[np.float64]]  # [head, query, key]
Node = tuple[str, int, int]  # side (encoder or decoder), how many of its sites were passed, token


def edges_down(weights: Weights, node: Node, layers: dict[str, int]) -> dict[Node, float]:
    """Where a token's state comes from, one site further down, and how much of it: halves of attention and residual."""
    side, passed, token = node
    has_cross = ("cross", 0) in weights
    if side == "decoder" and has_cross and passed % 2 == 0:
        stack, below = ("cross", passed // 2 - 1), ("encoder", layers["encoder"])
    elif side == "decoder" and has_cross:
        stack, below = ("decoder", passed // 2), ("decoder", passed - 1)
    else:
        stack, below = (side, passed - 1), (side, passed - 1)
    result: dict[Node, float] = {(side, passed - 1, token): 0.5}
    row = [
        float(np.mean([head[token][key] for head in weights[stack]]))
        for key in range(weights[stack].shape[2])
    ]
    for key, weight in enumerate(row):
        result[*below, key] = result.get((*below, key), 0.0) + 0.5 * weight / sum(row)
    return result


def top_of(weights: Weights, side: str, layer: int) -> int:
    """How many sites lie below the end of a layer."""
    return 2 * (layer + 1) if side == "decoder" and ("cross", 0) in weights else layer + 1


def rollout(
    weights: Weights, layers: dict[str, int], side: str, layer: int, query: int
) -> dict[tuple[str, int], float]:
    """The shares (side, token) -> share of the input tokens in one token, by following every way down."""

    @cache
    def shares(node: Node) -> tuple[tuple[tuple[str, int], float], ...]:
        if node[1] == 0:
            return (((node[0], node[2]), 1.0),)
        total: dict[tuple[str, int], float] = {}
        for below, part in edges_down(weights, node, layers).items():
            for name, share in shares(below):
                total[name] = total.get(name, 0.0) + part * share
        return tuple(total.items())

    return dict(shares((side, top_of(weights, side, layer), query)))


def flow(
    weights: Weights,
    layers: dict[str, int],
    side: str,
    layer: int,
    query: int,
    goal_side: str,
    goal: int,
) -> float:
    """The largest flow from a token's state down to an input token: shortest augmenting paths (Edmonds and Karp)."""
    source, sink = (side, top_of(weights, side, layer), query), (goal_side, 0, goal)
    left: dict[Node, dict[Node, float]] = {}
    waiting, met = deque([source]), {source}
    while waiting:
        node = waiting.popleft()
        for below, capacity in (edges_down(weights, node, layers) if node[1] else {}).items():
            left.setdefault(node, {})[below] = capacity
            left.setdefault(below, {}).setdefault(node, 0.0)
            if below not in met:
                met.add(below)
                waiting.append(below)
    total = 0.0
    while True:
        came: dict[Node, Node] = {}
        waiting = deque([source])
        while waiting and sink not in came:
            node = waiting.popleft()
            for other, space in left.get(node, {}).items():
                if space > 1e-12 and other not in came and other != source:
                    came[other] = node
                    waiting.append(other)
        if sink not in came:
            return total
        way = [sink]
        while way[-1] != source:
            way.append(came[way[-1]])
        pairs = list(zip(way[1:], way[:-1], strict=True))
        least = min(left[first][other] for first, other in pairs)
        for first, other in pairs:
            left[first][other] -= least
            left[other][first] += least
        total += least


def gradient_rollout(
    weights: Weights, gradients: Weights, layers: dict[str, int]
) -> dict[tuple[str, int], NDArray[np.float64]]:
    """Chefer's relevances after each layer, in loops, less the identity they start from."""

    def mean(site: tuple[str, int]) -> NDArray[np.float64]:
        heads, queries, keys = weights[site].shape
        cells = np.zeros((queries, keys))
        for head in range(heads):
            for query in range(queries):
                for key in range(keys):
                    product = weights[site][head][query][key] * gradients[site][head][query][key]
                    cells[query][key] += max(product, 0.0) / heads
        return cells

    def gather(cells: NDArray[np.float64], other_cells: NDArray[np.float64]) -> NDArray[np.float64]:
        added = other_cells.copy()
        for query in range(cells.shape[0]):
            for key in range(cells.shape[1]):
                for token in range(other_cells.shape[1]):
                    added[query][token] += cells[query][key] * other_cells[key][token]
        return added

    def scaled(other_cells: NDArray[np.float64]) -> NDArray[np.float64]:
        result = np.eye(len(other_cells))
        for row in range(len(other_cells)):
            sum_beyond = sum(other_cells[row]) - 1
            for token in range(len(other_cells)):
                beyond = other_cells[row][token] - (row == token)
                result[row][token] += beyond / sum_beyond if sum_beyond > 0 else 0.0
        return result

    collected = {}
    own = {
        stack: np.eye(weights[stack, 0].shape[1])
        for stack in ("encoder", "decoder")
        if (stack, 0) in weights
    }
    for layer in range(layers.get("encoder", 0)):
        own["encoder"] = gather(mean(("encoder", layer)), own["encoder"])
        collected["encoder", layer] = own["encoder"] - np.eye(len(own["encoder"]))
    across = np.zeros(weights["cross", 0].shape[1:]) if ("cross", 0) in weights else None
    for layer in range(layers.get("decoder", 0)):
        cells = mean(("decoder", layer))
        across = None if across is None else gather(cells, across)
        own["decoder"] = gather(cells, own["decoder"])
        collected["decoder", layer] = own["decoder"] - np.eye(len(own["decoder"]))
        if across is not None:
            above, below = scaled(own["decoder"]), scaled(own["encoder"])
            cells = mean(("cross", layer))
            for first, second in np.ndindex(*across.shape):
                for query, key in np.ndindex(*cells.shape):
                    across[first][second] += (
                        above[query][first] * cells[query][key] * below[key][second]
                    )
            collected["cross", layer] = across.copy()
    return collected
