"""What a sweep's units amount to, whatever the order in which they come."""

from __future__ import annotations

import numpy as np

from headscope.ablation.ablation_results import Deltas
from headscope.ablation.ablation_targets import Variant
from headscope.ablation.sweep import INTACT, Unit
from headscope.heads import Head
from headscope.tasks import get_task

COUNT = 200


def deltas(order: list[int]) -> Deltas:
    """Removal costs 1 nat for the first ten examples and helps all others, whatever is left."""
    chance = np.random.default_rng(0)
    result = Deltas(get_task("sst2"), COUNT)
    variants = [
        INTACT,
        *(Variant("only", f"encoder.0.{h}", (Head("encoder", 0, 1 - h),)) for h in range(2)),
    ]
    effects = [
        np.zeros(COUNT),
        *(np.where(np.arange(COUNT) < 10, 1.0, -0.1) + chance.normal(0, 0.01, COUNT) for _ in "ab"),
    ]
    for block in np.array_split(order, 4):
        losses = np.stack([effect[block] for effect in effects])
        scores = np.stack(
            [np.stack([effect[block] < 0.5, block % 2, block % 2], axis=1) for effect in effects]
        )
        for i, variant in enumerate(variants):
            unit = Unit(
                0,
                "x",
                (variant,),
                tuple(block.tolist()),
                losses[i : i + 1],
                scores[i : i + 1].astype(float),
            )
            result.add(unit)
    return result


def test_halves_are_drawn_by_lot_and_not_by_the_order_of_the_run() -> None:
    """A race runs first what matters most: halves by that order would differ by what they are."""
    (sorted_run,) = deltas(list(range(COUNT))).all_but_one()
    (other_run,) = deltas(np.random.default_rng(5).permutation(COUNT).tolist()).all_but_one()
    assert sorted_run == other_run
    assert sorted_run["count"] == COUNT // 2
    assert (
        abs(sorted_run["metric"] + 10 / COUNT) < 0.04
    )  # ten of two hundred become wrong, in either half


def test_the_order_is_of_what_was_run() -> None:
    result = deltas(list(range(0, COUNT, 2)))
    assert sorted(result.order) == list(range(0, COUNT, 2))
    assert result.order != sorted(result.order)
