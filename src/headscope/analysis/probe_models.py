"""Models that score candidates for each word's governor, and their training: scores [sentence, word, candidate].

The root is the first candidate, word i is candidate 1 + i. What each model sees is said in `analysis/probe.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from headscope.analysis.parsed_sentences import SPECIAL, Trees
from headscope.config.probe import EPOCHS
from headscope.data.word_vectors import WordVectors

HIDDEN = 256  # of distance-and-words
NEAR = (0, -1, 1, -2, 2)  # offsets that distance-and-words is told of

# [sentence, head, place, place] of a batch: SPECIAL places, then its words
Maps = Callable[[Trees], Tensor]


class Probe(nn.Module):
    """What scores candidates. `rates`: of Adam at the start, by parameter; they fall to nothing in a line."""

    rates: ClassVar[dict[str, float]] = {}

    def optimizer(self) -> torch.optim.Optimizer:
        named = self.named_parameters()
        return torch.optim.Adam([{"params": [one], "lr": self.rates[name]} for name, one in named])


class AttentionOnly(Probe):
    rates = {"weight": 0.1, "root": 0.1}  # a factor on shares must become large

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2 * heads))
        self.root = nn.Parameter(torch.ones(SPECIAL))

    def forward(self, trees: Trees, maps: Tensor, vectors: Tensor) -> Tensor:
        scores = torch.einsum("k,skjc->sjc", self.weight, _channels(maps))
        return _with_root(scores[..., :SPECIAL], scores[..., SPECIAL:], self.root)


class AttentionAndWords(Probe):
    rates = {"bias": 0.1, "governor": 0.005, "dependent": 0.005, "root": 0.1}

    def __init__(self, heads: int, width: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(2 * heads))
        self.governor = nn.Parameter(torch.zeros(width, 2 * heads))
        self.dependent = nn.Parameter(torch.zeros(width, 2 * heads))
        self.root = nn.Parameter(torch.ones(SPECIAL))

    def forward(self, trees: Trees, maps: Tensor, vectors: Tensor) -> Tensor:
        channels = _channels(maps)
        of_special = torch.einsum("k,skjc->sjc", self.bias, channels[..., :SPECIAL])
        of_governor = (vectors @ self.governor).transpose(1, 2)[:, :, None, :]
        of_dependent = (vectors @ self.dependent + self.bias).transpose(1, 2)[..., None]
        of_words = ((of_governor + of_dependent) * channels[..., SPECIAL:]).sum(dim=1)
        return _with_root(of_special, of_words, self.root)


def _channels(maps: Tensor) -> Tensor:
    """[sentence, channel, word, place]: each head where the word looks at a place, then where the place looks at it."""
    return torch.cat([maps[:, :, SPECIAL:], maps.transpose(2, 3)[:, :, SPECIAL:]], dim=1)


def _with_root(of_special: Tensor, of_words: Tensor, root: Tensor) -> Tensor:
    """What the two special tokens score, mixed into the root's score, before that of the words."""
    return torch.cat([(of_special * root).sum(dim=-1, keepdim=True), of_words], dim=-1)


class DistanceAndWords(Probe):
    rates = dict.fromkeys(("governor", "dependent", "distance", "bias", "out"), 0.003)

    def __init__(self, width: int, seed: int = 0) -> None:
        super().__init__()
        chance = torch.Generator().manual_seed(seed)
        inputs = 2 * width + 3 + len(NEAR)

        def drawn(rows: int, *columns: int) -> nn.Parameter:
            return nn.Parameter(
                torch.randn(rows, *columns, generator=chance)
                / (inputs if columns else HIDDEN) ** 0.5
            )

        self.governor, self.dependent = drawn(width, HIDDEN), drawn(width, HIDDEN)
        self.distance = drawn(3 + len(NEAR), HIDDEN)
        self.bias = nn.Parameter(torch.zeros(HIDDEN))
        self.out = drawn(HIDDEN)

    def forward(self, trees: Trees, maps: Tensor | None, vectors: Tensor) -> Tensor:
        pairs = (vectors @ self.governor)[:, None] + (vectors @ self.dependent)[:, :, None]
        pairs = nn.functional.pad(pairs, (0, 0, 1, 0))  # the root's pair of vectors is zero
        hidden = torch.tanh(pairs + distance_features(trees) @ self.distance + self.bias)
        return hidden @ self.out


def distance_features(trees: Trees) -> Tensor:
    """[sentence, word, candidate, 8]: how far ahead and how far behind in the sentence, five offsets, the root."""
    size = trees.governors.shape[1]
    offset = (torch.arange(size)[None] - torch.arange(size)[:, None])[None]  # [1, word, candidate]
    share = offset / trees.present.sum(dim=1)[:, None, None]
    features = [share.clamp_min(0), (-share).clamp_min(0)]
    features += [(offset == near).float().expand_as(share) for near in NEAR]
    features.append(torch.zeros_like(share))
    words = torch.stack(features, dim=-1)
    root = nn.functional.one_hot(torch.tensor(words.shape[-1] - 1), words.shape[-1]).to(words)
    return torch.cat([root.expand(len(trees), size, 1, -1), words], dim=2)


class RightBranching(Probe):
    def forward(self, trees: Trees, maps: Tensor | None, vectors: Tensor) -> Tensor:
        size = trees.governors.shape[1]
        following = torch.arange(size) + 2  # candidates: 0 is the root, 1 + i word i
        last = trees.present.sum(dim=1, keepdim=True) - 1
        chosen = torch.where(torch.arange(size) < last, following, 0)
        return nn.functional.one_hot(chosen, size + 2)[..., : size + 1].float()


def fit(
    probes: dict[str, Probe],
    batches: Sequence[Trees],
    maps: Maps | None,
    vectors: WordVectors,
    *,
    epochs: int = EPOCHS,
    seed: int = 0,
    done: Callable[[int], None] = lambda count: None,
) -> None:
    """Train probes that see the same maps, side by side: cross entropy over candidates, Adam, every word counting."""
    optimizers = [probe.optimizer() for probe in probes.values()]
    steps = epochs * len(batches)
    falls = [
        torch.optim.lr_scheduler.LambdaLR(one, lambda step: 1 - step / steps) for one in optimizers
    ]
    chance = np.random.default_rng(seed)
    for _ in range(epochs):
        for number in chance.permutation(len(batches)):
            trees = batches[number]
            seen, known = None if maps is None else maps(trees), vectors.table[trees.words]
            for probe, optimizer, fall in zip(probes.values(), optimizers, falls, strict=True):
                scores = _masked(probe(trees, seen, known), trees)
                loss = nn.functional.cross_entropy(
                    scores[trees.present], trees.governors[trees.present]
                )
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                fall.step()
            done(len(trees))


def _masked(scores: Tensor, trees: Trees) -> Tensor:
    """Without the candidates that a sentence does not have."""
    return scores.masked_fill(~trees.candidates[:, None], -torch.inf)


@dataclass(frozen=True)
class Scored:
    """What a probe got right, by the number of the sentence; and how much it has learned."""

    right: dict[int, float]
    words: dict[int, int]
    parameters: int


@torch.no_grad()
def score(
    probes: dict[str, Probe], batches: Sequence[Trees], maps: Maps | None, vectors: WordVectors
) -> dict[str, Scored]:
    """How many governors each probe finds in each sentence; candidates that score the same share the credit."""
    found = {
        name: Scored({}, {}, sum(parameter.numel() for parameter in one.parameters()))
        for name, one in probes.items()
    }
    for trees in batches:
        seen, known = None if maps is None else maps(trees), vectors.table[trees.words]
        words = trees.scored.sum(dim=1).tolist()
        for name, one in probes.items():
            scores = _masked(one(trees, seen, known), trees)
            best = scores == scores.amax(dim=-1, keepdim=True)
            credit = best / best.sum(dim=-1, keepdim=True)
            right = credit.gather(2, trees.governors.clamp_min(0)[..., None])[..., 0] * trees.scored
            found[name].right.update(
                zip(trees.numbers, right.double().sum(dim=1).tolist(), strict=True)
            )
            found[name].words.update(zip(trees.numbers, words, strict=True))
    return found
