"""Removal in random orders, as the control for the other searches."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from headscope.config.search import SearchConfig
from headscope.pruning.searches._order import in_order
from headscope.pruning.subset_evaluator import SubsetEvaluator, SubsetState


def paths(
    selection: SubsetEvaluator, config: SearchConfig, seed: int
) -> list[Iterator[SubsetState]]:
    return [random(selection, seed + draw) for draw in range(config.draws)]


def random(selection: SubsetEvaluator, seed: int) -> Iterator[SubsetState]:
    """Remove the units in a random order."""
    yield from in_order(
        selection, np.random.default_rng(seed).permutation(len(selection.units)).tolist()
    )
