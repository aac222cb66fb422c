"""Probes: small models that score candidates for the governor of each word, and their training.

Scores are [sentence, word, candidate]. Candidate 0 is the root, candidate 1 + i is word i. The module `probe` describes
the features of each probe.
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

HIDDEN = 256  # width of the hidden layer of distance-and-words
NEAR = (0, -1, 1, -2, 2)  # offsets that have a feature of their own in distance-and-words

# A function that returns the maps [sentence, head, position, position] of a batch. The first SPECIAL positions are
# special tokens, the others are words.
Maps = Callable[[Trees], Tensor]


class Probe(nn.Module):
    """A model that scores candidates. rates: initial learning rate of each parameter; they decay linearly to 0."""

    rates: ClassVar[dict[str, float]] = {}

    def optimizer(self) -> torch.optim.Optimizer:
        parameters = self.named_parameters()
        groups = [{"params": [p], "lr": self.rates[name]} for name, p in parameters]
        return torch.optim.Adam(groups)


class AttentionOnly(Probe):
    rates = {"weight": 0.1, "root": 0.1}  # high, since factors of shares must become large

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
    """[sentence, channel, word, position]: each head's attention from the word to the position, then the reverse."""
    return torch.cat([maps[:, :, SPECIAL:], maps.transpose(2, 3)[:, :, SPECIAL:]], dim=1)


def _with_root(of_special: Tensor, of_words: Tensor, root: Tensor) -> Tensor:
    """[sentence, word, candidate]: the score of the root, combined from the special tokens, then those of the words."""
    return torch.cat([(of_special * root).sum(dim=-1, keepdim=True), of_words], dim=-1)


class DistanceAndWords(Probe):
    rates = dict.fromkeys(("governor", "dependent", "distance", "bias", "out"), 0.003)

    def __init__(self, width: int, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        inputs = 2 * width + 3 + len(NEAR)

        def init(*shape: int, fan_in: int = inputs) -> nn.Parameter:
            return nn.Parameter(torch.randn(*shape, generator=generator) / fan_in**0.5)

        self.governor, self.dependent = init(width, HIDDEN), init(width, HIDDEN)
        self.distance = init(3 + len(NEAR), HIDDEN)
        self.bias = nn.Parameter(torch.zeros(HIDDEN))
        self.out = init(HIDDEN, fan_in=HIDDEN)

    def forward(self, trees: Trees, maps: Tensor | None, vectors: Tensor) -> Tensor:
        pairs = (vectors @ self.governor)[:, None] + (vectors @ self.dependent)[:, :, None]
        pairs = nn.functional.pad(pairs, (0, 0, 1, 0))  # the root's pair of vectors is zero
        hidden = torch.tanh(pairs + distance_features(trees) @ self.distance + self.bias)
        return hidden @ self.out


def distance_features(trees: Trees) -> Tensor:
    """[sentence, word, candidate, feature]: features of the distance from a word to a candidate.

    Distance forwards and backwards as shares of the sentence's length, 1 for each of the offsets NEAR, 1 for the root.
    """
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
        governors = torch.where(torch.arange(size) < last, following, 0)
        return nn.functional.one_hot(governors, size + 2)[..., : size + 1].float()


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
    """Train probes that use the same maps: cross entropy over the candidates of every word, Adam.

    They are trained in the same loop, so that maps are computed once per batch. done: called with numbers of sentences.
    """
    optimizers = [probe.optimizer() for probe in probes.values()]
    steps = epochs * len(batches)
    schedules = [
        torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
        for optimizer in optimizers
    ]
    generator = np.random.default_rng(seed)
    for _ in range(epochs):
        for number in generator.permutation(len(batches)):
            trees = batches[number]
            inputs = None if maps is None else maps(trees), vectors.table[trees.words]
            for probe, optimizer, schedule in zip(
                probes.values(), optimizers, schedules, strict=True
            ):
                scores = _mask_absent(probe(trees, *inputs), trees)
                loss = nn.functional.cross_entropy(
                    scores[trees.present], trees.governors[trees.present]
                )
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                schedule.step()
            done(len(trees))


def _mask_absent(scores: Tensor, trees: Trees) -> Tensor:
    """Scores of -inf for the candidates that a sentence does not have."""
    return scores.masked_fill(~trees.candidates[:, None], -torch.inf)


@dataclass(frozen=True)
class Scored:
    """The result of a probe.

    right       {sentence: number of words whose governor was found}; if scores are equal, it can be a fraction
    words       {sentence: number of scored words}
    parameters  number of learned parameters
    """

    right: dict[int, float]
    words: dict[int, int]
    parameters: int


@torch.no_grad()
def score(
    probes: dict[str, Probe], batches: Sequence[Trees], maps: Maps | None, vectors: WordVectors
) -> dict[str, Scored]:
    """For each probe the number of governors that it finds in each sentence.

    If n candidates have the same highest score and one of them is right, it counts as 1 / n.
    """
    scored = {
        name: Scored({}, {}, sum(parameter.numel() for parameter in probe.parameters()))
        for name, probe in probes.items()
    }
    for trees in batches:
        inputs = None if maps is None else maps(trees), vectors.table[trees.words]
        words = trees.scored.sum(dim=1).tolist()
        for name, probe in probes.items():
            scores = _mask_absent(probe(trees, *inputs), trees)
            best = scores == scores.amax(dim=-1, keepdim=True)
            credit = best / best.sum(dim=-1, keepdim=True)
            governors = trees.governors.clamp_min(0)[..., None]
            right = (credit.gather(2, governors)[..., 0] * trees.scored).double().sum(dim=1)
            scored[name].right.update(zip(trees.numbers, right.tolist(), strict=True))
            scored[name].words.update(zip(trees.numbers, words, strict=True))
    return scored
