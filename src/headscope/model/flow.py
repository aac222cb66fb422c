"""Attention flow (Abnar and Zuidema 2020): the maximum flow between a token and an input token through all layers.

The matrices of `rollout` (half attention, half residual connection) form a graph. Its nodes are the tokens at each
layer. An edge from a token to a token one layer below has the cell of the matrix as its capacity. The flow from a token
to an input token is the maximum flow in this graph, computed exactly for each pair. As published, each row of flows is
divided by its sum.
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

UNIT = 2**30  # capacity 1 as an integer, as scipy requires: capacities are rounded to 1e-9
# Limit of the number of edges that all maximum flows together visit: about two minutes
MOST_WORK = 4e8
HOW = (
    "Attention flow (Abnar 2020): the maximum flow from a token after the layer to an input token, in a graph whose "
    "edges have the weights of rollout as capacities; divided by the sum of its row{sums}."
)


def flow(weights: Weights, sites: Iterable[Site]) -> dict[str, NDArray[np.float32]]:
    """{stack: [layer, 1, query, key]}: the flow from token `query` to input token `key`, as a share of its row."""
    steps, sides = rollout_steps(weights, sites)
    check_size(steps, sides)
    return stack_blocks(_flows(steps, sides), sides)


def check_size(steps: list[RolloutStep], sides: Sides) -> None:
    """Raise if the maximum flows of all pairs of tokens in all layers would take hours."""
    tokens = sides.encoder + sides.decoder
    layers = sum(layer + 1 for layer in range(len(steps)))
    if tokens**4 * layers > MOST_WORK:
        raise HeadscopeError(
            f"{tokens} tokens have {tokens**2:,} pairs, and each pair needs a maximum flow in every layer",
            where="lens flow",
            expected=f"at most {int((MOST_WORK / layers) ** 0.25)} tokens, source and target together, in this model",
            fix="Shorten the text, or use rollout",
        )


def _flows(steps: list[RolloutStep], sides: Sides) -> Iterator[tuple[Site, NDArray[np.float64]]]:
    """The last site of each layer with its flows [token, token]; 0 in the rows of other tokens than its queries."""
    tokens = sides.encoder + sides.decoder
    for layer, step in enumerate(steps):
        if step.site.stack == "decoder" and sides.encoder:
            continue  # the layer ends with cross attention, which is the next step
        graph = _graph([lower.matrix for lower in steps[: layer + 1]])
        rows = range(tokens)[sides.rows(step.site.stack)]
        flows = np.zeros((tokens, tokens))
        for query in rows:
            for key in range(tokens):
                source = (layer + 1) * tokens + query
                flows[query, key] = maximum_flow(graph, source, key).flow_value
        flows[rows] /= flows[rows].sum(axis=1, keepdims=True)
        yield step.site, flows


def _graph(matrices: list[NDArray[np.float64]]) -> csr_array:
    """The graph as a sparse matrix [node, node] of integer capacities.

    Node layer * tokens + token; layer 0 is the input. Edges lead from a token to the tokens one layer below.
    """
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
