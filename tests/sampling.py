"""Which tests of a full product run by default: a fixed sample in which every value of every axis occurs.

A test marked `product` runs for every combination of its parameters (statistic x family x edit). Combinations outside
the sample get the mark `full`, which only `make test-all` runs. The sample depends on the parameters alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import pytest

# One family for each way of attending: a shared layer, three stacks, plain, softmax taps, groups of keys, images.
REPRESENTATIVE = (
    "albert",
    "bart",
    "bert",
    "deberta-v2",
    "gpt2",
    "llama",
    "vit",
    "xlnet/two-streams",
)


def mark_products(items: Iterable[pytest.Item]) -> None:
    """Mark what is outside the sample of each test marked `product`."""
    products: dict[str, list[pytest.Function]] = defaultdict(list)
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker("product") is not None:
            products[item.nodeid.partition("[")[0]].append(item)
    for combinations in products.values():
        combinations.sort(key=lambda item: item.nodeid)  # whatever order the tests run in
        sample = cover([_values(item) for item in combinations])
        for number, item in enumerate(combinations):
            if number not in sample:
                item.add_marker(pytest.mark.full)


def _values(item: pytest.Function) -> list[Hashable]:
    """Its parameters' values with their axes; one that cannot be hashed is named by its number."""
    return [
        (name, value if _is_hashable(value) else item.callspec.indices[name])
        for name, value in item.callspec.params.items()
    ]


def _is_hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def cover(combinations: Sequence[Sequence[Hashable]]) -> set[int]:
    """Numbers of few combinations that hold every value; greedily the one with most new values, the first of equals."""
    left = {value for combination in combinations for value in combination}
    chosen: set[int] = set()
    while left:
        best = max(
            range(len(combinations)),
            key=lambda number: (len(left & set(combinations[number])), -number),
        )
        chosen.add(best)
        left -= set(combinations[best])
    return chosen


def slow(*values: Any) -> Any:
    """Values for parametrize with which a test is slow."""
    return pytest.param(*values, marks=pytest.mark.slow)


def representative(cases: Iterable[str]) -> list[Any]:
    """All cases for parametrize; those of other families than the representative ones are marked `slow`."""
    return [case if case in REPRESENTATIVE else slow(case) for case in cases]
