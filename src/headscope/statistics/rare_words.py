"""Does a head point at the rarest word of a sentence?

Voita et al. (2019) found such a head in the first layer of every translation model they looked at. Here a sentence's
words are those that can be called frequent or rare: punctuation and clitics neither look nor are looked at. Each word's
row points at its largest weight; what a row gives to its own word is not pointing, and does not count. A head's answer
for a sentence is the word that most of the rows point at: `rarest` is the share of sentences where that is the rarest
word, `two-rarest` where it is one of the two rarest. The `-rows` take every row for itself (the rows of the words in
question left out), averaged over a sentence first: the paper does not say which it means.

Only sentences whose rarest word is outside the 500 most frequent are asked, as in the paper, and only those that have
words other than the ones in question: where every answer is right, none tells anything. Words of one frequency are
equally rare: pointing at any of them counts. A word that is repeated is one word: its rows share one vote, votes for
its occurrences are added up, and a vote of one occurrence for another is a vote for itself. Ties, of weights and of
answers, share their credit. A sentence that was cut to the model's length is not asked.

Rare words are long, and long words have many pieces, whose weights are summed: a head that attends to all tokens
alike points at them. That is the baseline `uniform attention`; heads of models with random weights reach it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
import torch
from torch import Tensor

from headscope.data.frequency import Frequencies
from headscope.errors import HeadscopeError
from headscope.heads import Site
from headscope.model.attention import Attention
from headscope.model.word_attention import SAME_WEIGHT, Pool, pieces_of_words
from headscope.statistics.base import Definition, PerSequence
from headscope.tables import Moments, TableRow

if TYPE_CHECKING:
    from numpy.typing import NDArray

KINDS = ("rarest", "two-rarest")
GUESSES = ("chance", "longest word", "last content word")  # which need no model
BASELINES = (*GUESSES, "uniform attention")
SAME_VOTES = 1e-4


class RareWords(PerSequence):
    definitions = {
        "rarest": Definition(
            "share",
            "Sentences where most words point at the rarest",
            "The share of sentences whose rarest word is where most of the other words' rows have their maximum.",
        ),
        "two-rarest": Definition(
            "share",
            "Sentences where most words point at one of the two rarest",
            "The same for either of the two rarest words.",
        ),
        "rarest-rows": Definition(
            "share",
            "Words that point at the rarest word",
            "The share of rows with their maximum at the sentence's rarest word, averaged over sentences.",
        ),
        "two-rarest-rows": Definition(
            "share",
            "Words that point at one of the two rarest words",
            "The same for either of the two rarest words.",
        ),
    }
    needs = "frequency"

    def __init__(
        self,
        words_of: Sequence[tuple[str, ...]],
        frequencies: Frequencies,
        names: tuple[str, ...] | None = None,
        *,
        common: int = 500,
        pool: Pool = "mean",
    ) -> None:
        """`words_of` are the words of each example, by its number; a word of the `common` most frequent is not rare."""
        super().__init__(names)
        self.pool = pool
        self._questions = [_question(words, frequencies, common) for words in words_of]
        self._baselines: dict[Site, Moments] = {}

    def measure(self, attention: Attention) -> Tensor | None:
        if not attention.within_one_text or self._reads_another_text(attention.site):
            return None
        words = attention.between_words(self.pool)
        posed = self._posed(attention, words.queries)
        counted, targets, asked, first = _side_by_side(posed, words.queries)
        even = pieces_of_words(attention.query).sum(dim=1).to(words.weights.dtype)[:, None, None, :]
        votes = _votes_of_rows(counted, first)
        uniform = _answers(
            votes @ _credit(even.expand_as(words.weights[:, :1]), counted, first), targets
        )[:, 0]
        self._add_baselines(attention.site, posed, uniform.where(asked, torch.nan))
        credit = _credit(words.weights, counted, first)
        by_sentence = _answers(votes @ credit, targets)
        by_row = _row_shares(credit, counted, targets)
        asked = asked[:, None].expand_as(by_sentence)
        return torch.cat(
            [by_sentence.where(asked, torch.nan), by_row.where(asked, torch.nan)], dim=-1
        )

    def _reads_another_text(self, site: Site) -> bool:
        """Whether this is the decoder of an encoder-decoder: the words given are those that the encoder reads."""
        return site.stack == "decoder" and any(
            known.stack == "encoder" for known in self._baselines
        )

    def _posed(self, attention: Attention, there: Tensor) -> list[_Question]:
        """The question for each sequence."""
        counts: list[int] = there.sum(dim=1).tolist()
        if len(attention.examples) != len(counts):
            raise HeadscopeError(
                "which examples these sequences are is not known", expected="a pass by stream"
            )
        posed = []
        for example, count in zip(attention.examples, counts, strict=True):
            question = self._questions[example]
            if count > len(question.counted):
                raise HeadscopeError(
                    f"example {example + 1} has {count} words here, and {len(question.counted)} in words_of",
                    expected="the same words in both: Example(words)",
                )
            posed.append(question if count == len(question.counted) else question.withdrawn())
        return posed

    def _add_baselines(self, site: Site, posed: list[_Question], uniform: Tensor) -> None:
        guesses = np.stack([question.baselines for question in posed])
        values = np.concatenate([guesses, uniform.double().cpu().numpy()[..., None]], axis=-1)
        self._baselines.setdefault(site, Moments(values.shape[1:])).add(values)

    def merge(self, other: Self) -> Self:
        for site, moments in other._baselines.items():
            self._baselines.setdefault(site, Moments(moments.total.shape)).merge(moments)
        return super().merge(other)

    def tables(self) -> dict[str, list[TableRow]]:
        """rare_words: what would be right without any attention, over the sentences that were asked."""
        if not self._baselines:
            return {"rare_words": []}
        moments = self._baselines[min(self._baselines)]  # they are the same at every site
        return {
            "rare_words": [
                {"kind": kind, "baseline": baseline, **moments.summary((i, j), is_share=True)}
                for i, kind in enumerate(KINDS)
                for j, baseline in enumerate(BASELINES)
                if moments.count[i, j]
            ]
        }


@dataclass(frozen=True)
class _Question:
    """What is asked of one sentence.

    counted    [word]: whether it is no punctuation or clitic
    first      [word]: the number of its first occurrence in the sentence
    targets    [kind, word]: the words in question
    asked      [kind]: whether there is a rare word, and also another
    baselines  [kind, baseline]: how often it would be right; NaN where not asked
    """

    counted: NDArray[np.bool_]
    first: NDArray[np.int64]
    targets: NDArray[np.bool_]
    asked: NDArray[np.bool_]
    baselines: NDArray[np.float64]

    def withdrawn(self) -> _Question:
        none = np.zeros(0, dtype=bool)
        targets = none.reshape(len(KINDS), 0)
        return _Question(
            none, self.first[:0], targets, np.zeros_like(self.asked), self.baselines * np.nan
        )


def _question(words: tuple[str, ...], frequencies: Frequencies, common: int) -> _Question:
    counted = np.array([frequencies.is_counted(word) for word in words], dtype=bool)
    ranks = np.array(
        [frequencies.rank(word) if frequencies.is_counted(word) else -1 for word in words],
        dtype=int,
    )
    # Two rarest are two different words: one that stands twice in the sentence is one.
    forms = [word.lower() for word in words]
    first = np.array([forms.index(form) for form in forms], dtype=np.int64)
    different = {form: rank for form, rank in zip(forms, ranks.tolist(), strict=True) if rank >= 0}
    rarest_first = sorted(different.values(), reverse=True)
    targets = np.zeros((len(KINDS), len(words)), dtype=bool)
    if rarest_first and rarest_first[0] >= common:
        for kind, rank in enumerate(rarest_first[: len(KINDS)]):
            targets[kind] = counted & (ranks >= rank)
    asked = np.array([of_kind.any() and (counted & ~of_kind).any() for of_kind in targets])
    baselines = np.full((len(KINDS), len(GUESSES)), np.nan)
    if asked.any():
        lengths = np.array([len(word) for word in words]) * counted
        last = np.arange(len(words)) == np.flatnonzero(ranks >= common)[-1]
        once = first == np.arange(len(words))
        # [baseline, word]
        guesses = np.stack([counted & once, (lengths == lengths.max()) & once, last])
        baselines[asked] = (targets[asked, None] & guesses).sum(axis=-1) / guesses.sum(axis=-1)
    return _Question(counted, first, targets, asked, baselines)


def _side_by_side(posed: list[_Question], there: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """counted [sequence, word], targets [sequence, word, kind], asked [sequence, kind] and first [sequence, word]."""
    flags = np.zeros((len(posed), there.shape[1], 1 + len(KINDS)), dtype=bool)
    first = np.tile(np.arange(there.shape[1]), (len(posed), 1))
    for i, question in enumerate(posed):
        first[i, : len(question.first)] = question.first
        flags[i, : len(question.counted), 0] = question.counted
        flags[i, : len(question.counted), 1:] = question.targets.T
    on_device = torch.from_numpy(flags).to(there.device)
    asked = torch.from_numpy(np.stack([question.asked for question in posed])).to(there.device)
    return on_device[..., 0], on_device[..., 1:], asked, torch.from_numpy(first).to(there.device)


def _credit(weights: Tensor, counted: Tensor, first: Tensor) -> Tensor:
    """[sequence, head, row, word]: how far a row points at a word: 1, or a share of it; 0 at the row's own word.

    A word that is repeated has its credit at its first occurrence. A row without weight on any counted word points
    nowhere.
    """
    rows, words = counted[:, None, :, None], counted[:, None, None, :]
    weights = weights * words
    top = weights.amax(dim=-1, keepdim=True)
    tied = (weights >= top * (1 - SAME_WEIGHT)) & (weights > 0) & rows
    pointed = (
        torch.zeros_like(weights).scatter_add_(
            -1, first[:, None, None].expand_as(tied), tied.to(weights)
        )
        > 0
    )
    credit = pointed / pointed.sum(dim=-1, keepdim=True).clamp_min(1)
    own = first[:, None, :, None].expand(*credit.shape[:3], 1)
    return credit.scatter_(-1, own, 0.0)


def _votes_of_rows(counted: Tensor, first: Tensor) -> Tensor:
    """[sequence, 1, 1, row]: one vote for each different word, shared among its rows."""
    rows = counted.float()
    occurrences = torch.zeros_like(rows).scatter_add_(1, first, rows).gather(1, first)
    return (rows / occurrences.clamp_min(1))[:, None, None]


def _answers(votes: Tensor, targets: Tensor) -> Tensor:
    """[sequence, head, kind]: whether the word with most votes [sequence, head, 1, word] is a target; 0 without."""
    votes = votes[:, :, 0]
    most = votes.amax(dim=-1, keepdim=True)
    winners = ((votes >= most - SAME_VOTES) & (most > SAME_VOTES)).to(votes.dtype)
    return winners @ targets.to(votes.dtype) / winners.sum(dim=-1, keepdim=True).clamp_min(1)


def _row_shares(credit: Tensor, counted: Tensor, targets: Tensor) -> Tensor:
    """[sequence, head, kind]: the share of rows, those of the targets left out, that point at a target."""
    hits = credit @ targets[:, None].to(credit.dtype)  # [sequence, head, row, kind]
    rows = (counted[..., None] & ~targets)[:, None]
    return (hits * rows).sum(dim=2) / rows.sum(dim=2).clamp_min(1)
