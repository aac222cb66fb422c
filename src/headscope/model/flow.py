"""Attention flow (Abnar and Zuidema 2020): how much could reach a token from an input token, with layers as pipes.

The layers of `rollout` form a graph: an edge from every token to those below it, with the weight as its capacity (half
attention, half residual). The flow from a token down to an input token is the maximum flow of the graph, computed
exactly for each pair. As published, a row of flows is divided by its sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

from headscope.errors import HeadscopeError
from headscope.heads import Site
from headscope.model.one_input import Weights
from headscope.model.rollout import RolloutStep, Sides, rollout_steps, stack_blocks

UNIT = 2**30  # a capacity of 1 as an integer: capacities are rounded to 1e-9
MOST_WORK = 4e8  # edges that all maximum flows together may visit: about two minutes
HOW = (
    "Attention flow (Abnar 2020): the maximum flow from a token after the layer to an input token, in a graph whose "
    "edges have the weights of rollout as capacities; divided by the sum of its row{sums}."
)


def flow(weights: Weights, sites: Iterable[Site]) -> dict[str, NDArray[np.float32]]:
    """For each stack [layer, 1, query, key]: the flows to the input tokens, as shares of their row."""
    steps, sides = rollout_steps(weights, sites)
    check_size(steps, sides)
    return stack_blocks(_flows(steps, sides), sides)


def check_size(steps: list[RolloutStep], sides: Sides) -> None:
    """Refuse what would take hours: a flow for every pair of tokens, each over all pairs in every layer below."""
    tokens = sides.encoder + sides.decoder
    layers = sum(layer + 1 for layer in range(len(steps)))
    if tokens**4 * layers > MOST_WORK:
        raise HeadscopeError(
            f"{tokens} tokens: there is one maximum flow for each of their {tokens**2:,} pairs and each layer",
            where="lens flow",
            expected=f"at most {int((MOST_WORK / layers) ** 0.25)} tokens, source and target together, in this model",
            fix="Shorten the text, or take rollout",
        )


def _flows(steps: list[RolloutStep], sides: Sides) -> Iterator[tuple[Site, NDArray[np.float64]]]:
    tokens = sides.encoder + sides.decoder
    for layer, step in enumerate(steps):
        if step.site.stack == "decoder" and sides.encoder:
            continue  # its layer ends with the attention to the encoder
        graph = _graph([below.matrix for below in steps[: layer + 1]])
        rows = range(tokens)[sides.rows(step.site.stack)]
        flows = np.zeros((tokens, tokens))
        for query in rows:
            for key in range(tokens):
                source = (layer + 1) * tokens + query
                flows[query, key] = maximum_flow(graph, source, key).flow_value
        flows[rows] /= flows[rows].sum(axis=1, keepdims=True)
        yield step.site, flows


def _graph(matrices: list[NDArray[np.float64]]) -> csr_array:
    """Nodes in order of layers, the input first; an edge from every token to those it attends to one layer below."""
    tokens = len(matrices[0])
    size = tokens * (len(matrices) + 1)
    rows, columns, capacities = [], [], []
    for layer, matrix in enumerate(matrices):
        query, key = np.nonzero(matrix)
        rows.append(query + tokens * (layer + 1))
        columns.append(key + tokens * layer)
        capacities.append(np.rint(matrix[query, key] * UNIT).astype(np.int32))
    edges = np.concatenate(rows), np.concatenate(columns)
    return csr_array((np.concatenate(capacities), edges), shape=(size, size))
