"""Probes on attention: against loops, on planted maps, and on maps that know nothing."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from forest import NO_VECTORS, forest, random_tree
from torch import Tensor, nn

from headscope.analysis.parsed_sentences import SPECIAL, Trees
from headscope.analysis.probe_models import (
    NEAR,
    AttentionAndWords,
    AttentionOnly,
    DistanceAndWords,
    Maps,
    Probe,
    RightBranching,
    fit,
    score,
)

HEADS = 6
PLANTED = 4


def gold_maps(trees: Trees, shuffled: bool = False) -> Tensor:
    """Noise in every head; in one of them governors look at their dependents, the classification token at the root."""
    noise = torch.Generator().manual_seed(trees.numbers[0])
    draw = random.Random(trees.numbers[0])
    places = SPECIAL + trees.governors.shape[1]
    maps = torch.rand(len(trees), HEADS, places, places, generator=noise)
    for sentence, row in enumerate(trees.governors.tolist()):
        governors = [governor for governor in row if governor >= 0]
        if shuffled:
            governors = random_tree(draw, len(governors))
        for word, governor in enumerate(governors):
            maps[sentence, PLANTED, 0 if governor == 0 else 1 + governor, SPECIAL + word] += 1.0
    return maps


def accuracy(probes: dict[str, Probe], test: list[Trees], maps: Maps | None) -> dict[str, float]:
    result = score(probes, test, maps, NO_VECTORS)
    return {name: sum(one.right.values()) / sum(one.words.values()) for name, one in result.items()}


def best_offset(trees: list[Trees]) -> float:
    counts: dict[int, int] = {}
    total = 0
    for batch in trees:
        for row in batch.governors.tolist():
            for word, governor in enumerate(row):
                total += governor >= 0
                if governor > 0:
                    counts[governor - 1 - word] = counts.get(governor - 1 - word, 0) + 1
    return max(counts.values()) / total


def test_a_head_that_holds_the_arcs_gets_the_weight_and_parses() -> None:
    train, test = forest(400, 1), forest(120, 2, first=1000)
    probes: dict[str, Probe] = {"only": AttentionOnly(HEADS), "words": AttentionAndWords(HEADS, 1)}
    fit(probes, train, gold_maps, NO_VECTORS)
    result = accuracy(probes, test, gold_maps)
    assert result["only"] > 0.97
    assert result["words"] > 0.97
    weight = probes["only"].weight.detach().reshape(2, HEADS).abs()  # type: ignore[union-attr,operator]
    strongest = weight[1, PLANTED].item()
    weight[1, PLANTED] = 0.0
    assert strongest > 5 * weight.max().item()


def test_maps_of_other_trees_are_worth_no_more_than_a_fixed_offset() -> None:
    train, test = forest(400, 1), forest(200, 2, first=1000)
    probes: dict[str, Probe] = {"only": AttentionOnly(HEADS)}
    fit(probes, train, lambda trees: gold_maps(trees, shuffled=True), NO_VECTORS)
    result = accuracy(probes, test, lambda trees: gold_maps(trees, shuffled=True))
    assert result["only"] < best_offset(test) + 0.05


# Against loops


def random_trees(seed: int = 0) -> tuple[Trees, Tensor, Tensor]:
    """A batch, its maps and its word vectors, with things beyond a sentence's end that must not matter."""
    noise = torch.Generator().manual_seed(seed)
    trees = forest(4, seed)[0]
    size = trees.governors.shape[1]
    maps = torch.rand(4, HEADS, SPECIAL + size, SPECIAL + size, generator=noise)
    return trees, maps, torch.randn(4, size, 3, generator=noise)


def loop_scores(
    probe: nn.Module, trees: Trees, maps: Tensor, vectors: Tensor, s: int, j: int
) -> list[float]:
    """The formulas of the paper and its code, candidate by candidate: the root, then the words."""
    parameters = {name: value.detach().double().numpy() for name, value in probe.named_parameters()}
    a, v = maps[s].double().numpy(), vectors[s].double().numpy()
    size = int(trees.present[s].sum())
    width = v.shape[1]
    scores = []
    for i in range(-1, size):
        pair = np.zeros(2 * width) if i < 0 else np.concatenate([v[i], v[j]])
        if isinstance(probe, DistanceAndWords):
            ahead, behind = (0, 0) if i < 0 else (max(i - j, 0) / size, max(j - i, 0) / size)
            near = [float(i >= 0 and i - j == offset) for offset in NEAR]
            inputs = np.concatenate([pair, [ahead, behind, *near, float(i < 0)]])
            matrix = np.concatenate(
                [parameters[name] for name in ("governor", "dependent", "distance")]
            )
            scores.append(float(np.tanh(inputs @ matrix + parameters["bias"]) @ parameters["out"]))
            continue
        total = 0.0
        for k in range(2 * HEADS):
            head, position = k % HEADS, SPECIAL + j
            looks = a[head, position] if k < HEADS else a[head, :, position]
            start, end = parameters["root"]
            value = start * looks[0] + end * looks[1] if i < 0 else looks[SPECIAL + i]
            if isinstance(probe, AttentionOnly):
                total += parameters["weight"][k] * value
            else:
                matrix = np.concatenate([parameters["governor"], parameters["dependent"]])[:, k]
                total += (pair @ matrix + parameters["bias"][k]) * value
        scores.append(total)
    return scores


@pytest.mark.parametrize(
    "probe",
    [AttentionOnly(HEADS), AttentionAndWords(HEADS, 3), DistanceAndWords(3)],
    ids=lambda probe: type(probe).__name__,
)
def test_scores_are_those_of_the_formulas(probe: nn.Module) -> None:
    trees, maps, vectors = random_trees()
    noise = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in probe.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=noise))
        scores = probe(trees, maps, vectors)
    assert scores.shape == (4, trees.governors.shape[1], trees.governors.shape[1] + 1)
    for s in range(4):
        size = int(trees.present[s].sum())
        for j in range(size):
            expected = loop_scores(probe, trees, maps, vectors, s, j)
            np.testing.assert_allclose(scores[s, j, : size + 1].numpy(), expected, atol=1e-3)


def test_the_next_word_governs_and_the_root_governs_the_last() -> None:
    trees, maps, vectors = random_trees()
    scores = RightBranching()(trees, maps, vectors)
    for s in range(4):
        size = int(trees.present[s].sum())
        assert scores[s, :size].argmax(dim=-1).tolist() == [*range(2, size + 1), 0]


def test_credit_is_shared_and_only_scored_words_and_a_sentence_s_own_candidates_count() -> None:
    governors = torch.tensor([[0, 1, 1], [2, 0, -1]])
    scored = torch.tensor([[True, True, False], [True, True, False]])
    trees = Trees(governors, scored, torch.zeros_like(governors), numbers=(7, 3))

    class Fixed(Probe):
        def forward(self, trees: Trees, maps: Tensor | None, vectors: Tensor) -> Tensor:
            return torch.tensor(
                [
                    [[1.0, 1.0, 0.0, 0.0], [0.0, 2.0, 0.0, 0.0], [0.0, 2.0, 0.0, 0.0]],
                    [[0.0, 0.0, 1.0, 9.0], [0.0, 1.0, 0.0, 9.0], [0.0, 0.0, 0.0, 0.0]],
                ]
            )

    result = score({"fixed": Fixed()}, [trees], None, NO_VECTORS)["fixed"]
    assert result.right == {7: 1.5, 3: 1.0}
    assert result.words == {7: 2, 3: 2}
