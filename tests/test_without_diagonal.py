"""The example about the diagonal: stacks are what the theorem speaks of, and the function is what they must fit."""

from __future__ import annotations

import math

import pandas as pd
import pytest
import torch

from test_example_scripts import script

theorem = script("without_diagonal")


def by_hand(
    stacks: object, number: int, sequence: list[list[float]], sees: list[list[bool]]
) -> list[list[float]]:
    """One stack on one sequence, from the formulas: X + Σ softmax(q kᵀ) v W_O, then X + W₂ relu(W₁ X + b₁) + b₂."""
    tokens, width = len(sequence), theorem.WIDTH
    at = stacks.positions[number, 0].tolist()  # type: ignore[attr-defined]
    states = [
        [(sequence[t] + [0.0] * width)[d] + at[t][d] for d in range(width)] for t in range(tokens)
    ]
    for block in stacks.blocks:  # type: ignore[attr-defined]
        example = {name: tensor[number].tolist() for name, tensor in block.items()}
        made = [
            [
                sum(state[d] * example["query, key, value"][d][k] for d in range(width))
                for k in range(6)
            ]
            for state in states
        ]
        after = [list(state) for state in states]
        for head in range(2):
            query, key, value = ([row[part * 2 + head] for row in made] for part in range(3))
            for t in range(tokens):
                shares = {u: math.exp(query[t] * key[u]) for u in range(tokens) if sees[t][u]}
                mixed = sum(share * value[u] for u, share in shares.items()) / (
                    sum(shares.values()) or 1.0
                )
                for d in range(width):
                    after[t][d] += mixed * example["output"][head][d]
        states = after
        for state in states:
            inner = [
                max(
                    0.0,
                    example["inner bias"][0][f]
                    + sum(state[d] * example["inner"][d][f] for d in range(width)),
                )
                for f in range(4)
            ]
            moved = [
                example["outer bias"][0][d]
                + sum(inner[f] * example["outer"][f][d] for f in range(4))
                for d in range(width)
            ]
            state[:] = [a + b for a, b in zip(state, moved, strict=True)]
    return [state[:2] for state in states]


@pytest.mark.parametrize("length", [1, 2, 3, 5])
def test_a_stack_is_its_formula_with_the_diagonal_without_it_and_without_attention(
    length: int,
) -> None:
    seeds = 2
    stacks = theorem.Stacks(length, 2, seeds)
    sequences = torch.rand(1, 3, length, 2, generator=torch.Generator().manual_seed(0))
    result = stacks(sequences)
    rules = [lambda t, u: True, lambda t, u: t != u, lambda t, u: False]
    for kind, rule in enumerate(rules):
        sees = [[rule(t, u) for u in range(length)] for t in range(length)]
        for seed in range(seeds):
            wanted = by_hand(stacks, kind * seeds + seed, sequences[0, 1].tolist(), sees)
            assert torch.allclose(result[kind * seeds + seed, 1], torch.tensor(wanted), atol=1e-5)


def test_the_three_kinds_start_from_the_same_weights_and_seeds_differ() -> None:
    first = theorem.Stacks(3, 1, 2).blocks[0]["inner"]
    assert torch.equal(first[:2], first[2:4])
    assert torch.equal(first[:2], first[4:])
    assert not torch.equal(first[0], first[1])


def test_the_function_needs_the_token_its_neighbour_and_all() -> None:
    sequence = torch.tensor([[0.1, 0.3], [0.5, 0.6], [0.9, 0.9]])
    expected = [
        [math.cos(math.pi * a) * 0.6, abs(a - b)] for a, b in ((0.1, 0.5), (0.5, 0.9), (0.9, 0.1))
    ]
    assert torch.allclose(theorem.target(sequence[None])[0], torch.tensor(expected), atol=1e-6)


@pytest.mark.parametrize("length", [2, 3, 8])
def test_the_least_error_without_attention_is_that_of_the_conditional_mean(length: int) -> None:
    chance = torch.Generator().manual_seed(length)
    sequences = torch.rand(100_000, length, 2, generator=chance, dtype=torch.float64)
    right = theorem.target(sequences)
    first, second = sequences.unbind(dim=-1)
    expected = torch.cos(math.pi * first) * (second + (length - 1) / 2) / length
    best = torch.stack([expected, first**2 - first + 0.5], dim=-1)
    error = (
        (right - best).square().mean() / (right - right.mean(dim=(0, 1))).square().mean()
    ).sqrt()
    assert theorem.least_without_attention(length) == pytest.approx(float(error), abs=0.003)


def test_training_learns_what_needs_attention_only_with_attention() -> None:
    with_it, without, none = theorem.errors_of(2, 2, seeds=3, steps=200).mean(dim=1).tolist()
    least = theorem.least_without_attention(2)
    assert max(with_it, without) < least - 0.03
    assert least - 0.02 < none < 1.0, "fresh sequences are a sample"


def test_a_single_token_without_its_diagonal_has_no_attention() -> None:
    _, without, none = theorem.errors_of(1, 1, seeds=2, steps=20)
    assert torch.equal(without, none)


def test_the_table_has_means_intervals_and_paired_differences() -> None:
    rows = [
        (3, 1, kind, seed, 0.1 * (index + 1) + 0.02 * seed)
        for index, kind in enumerate(theorem.KINDS)
        for seed in (0, 1)
    ]
    line = theorem.table(
        pd.DataFrame(rows, columns=["length", "depth", "attention", "seed", "error"])
    ).splitlines()[-1]
    half = 12.7062 * 0.02 / math.sqrt(2) / math.sqrt(2)
    assert f"| 0.110 [{0.11 - half:.3f}, {0.11 + half:.3f}] |" in line
    assert "| 0.100 [0.100, 0.100] | 0.100, 0.200 |" in line
