"""The default run is a fixed sample of the full products, in which every statistic, family and edit occurs."""

from __future__ import annotations

import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from headscope.masks.patterns import PATTERNS
from headscope.statistics import registry
from sampling import REPRESENTATIVE, cover
from tiny import CASES

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    "axes",
    [
        (range(29), range(10), range(2)),
        (range(3), range(3)),
        (range(1), range(7)),
        (range(5),),
    ],
)
def test_every_value_of_every_axis_is_in_the_sample(axes: tuple[range, ...]) -> None:
    combinations = [list(enumerate(values)) for values in product(*axes)]
    sample = cover(combinations)
    assert {value for number in sample for value in combinations[number]} == set().union(
        *combinations
    )
    assert len(sample) == max(map(len, axes)), "no larger than need be"
    assert cover(combinations) == sample


def test_combinations_that_do_not_exist_are_not_needed() -> None:
    combinations = [["bert", "star"], ["bert", "window"], ["vit", "window"]]
    assert cover(combinations) == {0, 2}


def test_representative_families_exist() -> None:
    assert set(REPRESENTATIVE) <= set(CASES)


def collected(*options: str) -> list[str]:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-q",
        "-o",
        "addopts=",
        "tests/contracts",
        *options,
    ]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True).stdout
    return [line for line in result.splitlines() if "::" in line]


@pytest.mark.slow
def test_the_sample_of_the_contracts_covers_every_statistic_family_and_mask() -> None:
    sample, everything = collected("-m", "not full"), collected()
    assert set(sample) < set(everything)
    assert {test.partition("[")[0] for test in sample} == {
        test.partition("[")[0] for test in everything
    }
    for test, values in {
        "test_a_statistic_agrees_with_the_sum_written_out_by_hand": [*CASES, "right", "left"],
        "test_forbidden_keys_get_nothing_and_the_others_their_share": CASES,
        "test_the_cut_model_is_the_ablated_one": CASES,
    }.items():
        ids = [
            set(one.partition("[")[2].removesuffix("]").split("-"))
            for one in sample
            if f"::{test}[" in one
        ]
        assert len(ids) < sum(f"::{test}[" in one for one in everything)
        joined = "\n".join(one for one in sample if f"::{test}[" in one)
        assert all(value in joined for value in values), test
    names = "\n".join(sample)
    assert all(
        kind.__name__ in names
        for kind in registry()
        if f"-{kind.__name__}-" in "\n".join(everything)
    )
    assert all(name in names for name in PATTERNS)
