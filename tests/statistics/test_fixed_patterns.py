"""Is a head that is a fixed pattern at distance 0 from it, and every distance what the formula says?"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from headscope.heads import Site
from headscope.model.attention import Attention
from headscope.model.fixed_patterns import LOOK_AHEAD
from headscope.model.tokens import Tokens
from headscope.statistics.fixed_patterns import FixedPatterns, rows_of
from headscope.tables import Row
from reference import patterns as slow
from reference.surface import Seen


def rows_for(weights: torch.Tensor, stack: str = "encoder") -> dict[tuple[int, str], Row]:
    """weights [sequence, head, query, key]."""
    tokens = Tokens(torch.ones(weights.shape[0], weights.shape[-1], dtype=torch.bool))
    statistic = FixedPatterns()
    statistic.update(Attention(Site(stack, 0), weights, tokens, tokens))
    return {(row.head, row.statistic.removeprefix("js-")): row for row in statistic.table()}


def planted(name: str, length: int, is_causal: bool = False) -> torch.Tensor:
    return torch.tensor(
        [slow.fixed_row(name, i, length, is_causal) for i in range(length)], dtype=torch.float64
    )


def random_maps(*shape: int, seed: int = 0, is_causal: bool = False) -> torch.Tensor:
    scores = 3 * torch.randn(
        *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )
    if is_causal:
        scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -torch.inf)
    return scores.softmax(dim=-1)


@pytest.mark.parametrize("name", slow.FIXED)
@pytest.mark.parametrize("length", [8, 31, 128])
def test_a_planted_pattern_is_at_distance_0_from_itself_and_far_from_the_others(
    name: str, length: int
) -> None:
    rows = rows_for(planted(name, length)[None, None])
    assert rows[0, name].value == pytest.approx(0.0, abs=1e-12)
    assert all(rows[0, other].value > 0.02 for other in slow.FIXED if other != name)


def test_attention_to_another_token_altogether_is_at_distance_ln_2() -> None:
    weights = planted("next", 40)[None, None]
    rows = rows_for(weights)
    for name in ("current", "previous", "left", "first"):
        assert rows[0, name].value == pytest.approx(math.log(2))


def test_random_heads_are_near_no_pattern_that_points() -> None:
    rows = rows_for(random_maps(6, 12, 40, 40))
    for name in ("current", "previous", "next", "first"):
        assert min(rows[head, name].value for head in range(12)) > 0.4


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 9, 33])
def test_distances_agree_with_the_sums_written_out_by_hand(stack: str, length: int) -> None:
    weights = random_maps(3, 2, length, length, is_causal=stack == "decoder")
    got = rows_for(weights, stack)
    for head in range(2):
        sequences = [
            Seen(weights[i, head].tolist(), [set()] * length, [set()] * length) for i in range(3)
        ]
        expected = slow.answers(stack, sequences)
        expected = {
            name.removeprefix("js-"): a for name, a in expected.items() if name.startswith("js-")
        }
        assert {name for h, name in got if h == head} == set(expected)
        for name, answer in expected.items():
            row = got[head, name]
            np.testing.assert_allclose(
                [row.value, row.low, row.high],
                [answer.value, answer.low, answer.high],
                atol=1e-9,
                err_msg=name,
            )
            assert row.count == answer.count == 3


def test_causal_stacks_have_no_patterns_that_look_ahead() -> None:
    got = rows_for(random_maps(2, 1, 20, 20, is_causal=True), "decoder")
    assert not {name for _, name in got} & set(LOOK_AHEAD)
    assert (
        rows_for(planted("uniform", 20, is_causal=True)[None, None], "decoder")[0, "uniform"].value
        < 1e-12
    )


def test_single_precision_is_right_to_a_millionth() -> None:
    weights = random_maps(2, 3, 50, 50, seed=1)
    exact, rounded = rows_for(weights), rows_for(weights.float())
    for key, row in exact.items():
        assert rounded[key].value == pytest.approx(row.value, abs=2e-6), key


def test_half_precision_is_compared_in_single() -> None:
    assert rows_for(random_maps(1, 2, 12, 12).half())[0, "uniform"].value > 0


def test_the_rows_are_spread_over_the_sequence() -> None:
    assert rows_of(128) == (16, 48, 80, 112)
    assert rows_of(1) == (0, 0, 0, 0)
    assert rows_of(3) == (0, 1, 1, 2)


def test_two_texts_are_not_compared() -> None:
    first, other = (Tokens(torch.ones(1, 9, dtype=torch.bool)) for _ in range(2))
    statistic = FixedPatterns()
    statistic.update(Attention(Site("cross", 0), random_maps(1, 2, 9, 9), first, other))
    assert statistic.table() == []
