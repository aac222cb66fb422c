"""Random trees for the tests of probes."""

from __future__ import annotations

import random

import torch

from headscope.analysis.parsed_sentences import Trees
from headscope.data.word_vectors import WordVectors

NO_VECTORS = WordVectors({"word": torch.ones(1)}, {"word"}, 1)


def random_tree(draw: random.Random, size: int) -> list[int]:
    """Candidates that govern: 0 is the root, 1 + i word i."""
    order = draw.sample(range(size), size)
    governors = [0] * size
    for index, word in enumerate(order[1:], start=1):
        governors[word] = 1 + draw.choice(order[:index])
    return governors


def forest(count: int, seed: int, first: int = 0) -> list[Trees]:
    """Batches of four sentences, two of them shorter than the others; every word is scored."""
    draw = random.Random(seed)
    batches = []
    for start in range(0, count, 4):
        size = draw.randrange(5, 12)
        trees = [random_tree(draw, size - i // 2) for i in range(4)]
        governors = torch.tensor([tree + [-1] * (size - len(tree)) for tree in trees])
        numbers = tuple(range(first + start, first + start + 4))
        batches.append(
            Trees(governors, governors >= 0, torch.zeros_like(governors), numbers=numbers)
        )
    return batches
