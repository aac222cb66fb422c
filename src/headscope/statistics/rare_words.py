"""Does a head point at the rarest word of a sentence?

Voita et al. (2019) found such a head in the first layer of every translation model they studied. Here punctuation and
clitics are ignored, as queries and as keys. The row of each word points at the word with its largest weight, except
itself. A head's answer for a sentence is the word that most rows point at. `rarest` is the share of sentences in which
the answer is the rarest word, `two-rarest` the share in which it is one of the two rarest. `rarest-rows` and
`two-rarest-rows` count single rows instead (without those of the target words), averaged over a sentence first. The
paper does not state which of the two it means.

As in the paper, only sentences whose rarest word is not among the 500 most frequent count. They must also have other
words than the targets, otherwise every answer would be right. If words have the same frequency, they are equally rare,
and pointing at any of them counts. A repeated word is one word: its rows share one vote, votes for its occurrences are
added up, and a vote of one occurrence for another is a vote for itself. Ties between weights or between answers share
the credit. A sentence that was truncated to the model's length does not count.

Rare words are long, and long words have many tokens, whose weights are summed. Therefore even a head that attends to
all tokens equally points at rare words. This is the baseline `uniform attention`; heads with random weights reach it.
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
GUESSES = ("chance", "longest word", "last content word")  # baselines without a model
BASELINES = (*GUESSES, "uniform attention")
SAME_VOTES = 1e-4


class RareWords(PerSequence):
    definitions = {
        "rarest": Definition(
            "share",
            "Sentences where most words attend to the rarest word",
            "Share of sentences in which most other words have their largest weight on the rarest word.",
        ),
        "two-rarest": Definition(
            "share",
            "Sentences where most words attend to one of the two rarest",
            "Share of sentences in which most other words have their largest weight on one of the two rarest words.",
        ),
        "rarest-rows": Definition(
            "share",
            "Words that attend to the rarest word",
            "Share of words that have their largest weight on the rarest word, averaged over sentences.",
        ),
        "two-rarest-rows": Definition(
            "share",
            "Words that attend to one of the two rarest words",
            "Share of words that have their largest weight on one of the two rarest words, averaged over sentences.",
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
        """words_of: words of each example, by its index. common: how many of the most frequent words are not rare."""
        super().__init__(names)
        self.pool = pool
        self._questions = [_question(words, frequencies, common) for words in words_of]
        self._baselines: dict[Site, Moments] = {}

    def measure(self, attention: Attention) -> Tensor | None:
        if not attention.within_one_text or self._reads_another_text(attention.site):
            return None
        words = attention.between_words(self.pool)
        questions = self._questions_of(attention, words.queries)
        counted, targets, valid, first = _batch(questions, words.queries)
        pieces = pieces_of_words(attention.query).sum(dim=1).to(words.weights.dtype)
        uniform = pieces[:, None, None, :].expand_as(words.weights[:, :1])
        votes = _votes_of_rows(counted, first)
        baseline = _answers(votes @ _credit(uniform, counted, first), targets)[:, 0]
        self._add_baselines(attention.site, questions, baseline.where(valid, torch.nan))
        credit = _credit(words.weights, counted, first)
        shares = [_answers(votes @ credit, targets), _row_shares(credit, counted, targets)]
        return torch.cat([share.where(valid[:, None], torch.nan) for share in shares], dim=-1)

    def _reads_another_text(self, site: Site) -> bool:
        """Whether this is the decoder of an encoder-decoder: `words_of` has the words that the encoder reads."""
        stacks = {other.stack for other in self._baselines}
        return site.stack == "decoder" and "encoder" in stacks

    def _questions_of(self, attention: Attention, present: Tensor) -> list[_Question]:
        """The question for each sequence; present [sequence, word]."""
        counts: list[int] = present.sum(dim=1).tolist()
        if len(attention.examples) != len(counts):
            raise HeadscopeError(
                "the numbers of the examples are unknown", expected="batches run by `stream`"
            )
        questions = []
        for example, count in zip(attention.examples, counts, strict=True):
            question = self._questions[example]
            if count > len(question.counted):
                raise HeadscopeError(
                    f"example {example + 1} has {count} words here, and {len(question.counted)} in words_of",
                    expected="the same words in both: Example(words)",
                )
            questions.append(
                question if count == len(question.counted) else question.without_words()
            )
        return questions

    def _add_baselines(self, site: Site, questions: list[_Question], uniform: Tensor) -> None:
        guesses = np.stack([question.baselines for question in questions])
        values = np.concatenate([guesses, uniform.double().cpu().numpy()[..., None]], axis=-1)
        self._baselines.setdefault(site, Moments(values.shape[1:])).add(values)

    def merge(self, other: Self) -> Self:
        for site, moments in other._baselines.items():
            self._baselines.setdefault(site, Moments(moments.total.shape)).merge(moments)
        return super().merge(other)

    def tables(self) -> dict[str, list[TableRow]]:
        """Rows of rare_words: accuracy of the baselines over the sentences that count."""
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
    """The target words of one sentence.

    counted    [word]: whether it is neither punctuation nor a clitic
    first      [word]: index of its first occurrence in the sentence
    targets    [kind, word]: the rarest words
    valid      [kind]: whether there is a rare word, and also another word
    baselines  [kind, baseline]: probability that the baseline is right; NaN if not valid
    """

    counted: NDArray[np.bool_]
    first: NDArray[np.int64]
    targets: NDArray[np.bool_]
    valid: NDArray[np.bool_]
    baselines: NDArray[np.float64]

    def without_words(self) -> _Question:
        """A question that does not count, for a truncated sentence."""
        nothing = np.zeros((len(KINDS), 0), dtype=bool)
        invalid, baselines = np.zeros_like(self.valid), self.baselines * np.nan
        return _Question(nothing[0], self.first[:0], nothing, invalid, baselines)


def _question(words: tuple[str, ...], frequencies: Frequencies, common: int) -> _Question:
    counted = np.array([frequencies.is_counted(word) for word in words], dtype=bool)
    counts = zip(words, counted, strict=True)
    ranks = np.array([frequencies.rank(w) if is_word else -1 for w, is_word in counts], dtype=int)
    # The two rarest words are different words, so a repeated word counts once.
    forms = [word.lower() for word in words]
    first = np.array([forms.index(form) for form in forms], dtype=np.int64)
    different = {form: rank for form, rank in zip(forms, ranks.tolist(), strict=True) if rank >= 0}
    rarest_first = sorted(different.values(), reverse=True)
    targets = np.zeros((len(KINDS), len(words)), dtype=bool)
    if rarest_first and rarest_first[0] >= common:
        for kind, rank in enumerate(rarest_first[: len(KINDS)]):
            targets[kind] = counted & (ranks >= rank)
    valid = np.array([of_kind.any() and (counted & ~of_kind).any() for of_kind in targets])
    baselines = np.full((len(KINDS), len(GUESSES)), np.nan)
    if valid.any():
        lengths = np.array([len(word) for word in words]) * counted
        last = np.arange(len(words)) == np.flatnonzero(ranks >= common)[-1]
        is_first = first == np.arange(len(words))
        longest = lengths == lengths.max()
        guesses = np.stack([counted & is_first, longest & is_first, last])  # [baseline, word]
        right = (targets[valid, None] & guesses).sum(axis=-1)
        baselines[valid] = right / guesses.sum(axis=-1)
    return _Question(counted, first, targets, valid, baselines)


def _batch(questions: list[_Question], present: Tensor) -> tuple[Tensor, ...]:
    """counted [sequence, word], targets [sequence, word, kind], valid [sequence, kind] and first [sequence, word]."""
    shape = len(questions), present.shape[1]
    counted, targets = np.zeros(shape, dtype=bool), np.zeros((*shape, len(KINDS)), dtype=bool)
    first = np.tile(np.arange(shape[1]), (shape[0], 1))
    for i, question in enumerate(questions):
        first[i, : len(question.first)] = question.first
        counted[i, : len(question.counted)] = question.counted
        targets[i, : len(question.counted)] = question.targets.T
    valid = np.stack([question.valid for question in questions])
    arrays = counted, targets, valid, first
    return tuple(torch.from_numpy(array).to(present.device) for array in arrays)


def _credit(weights: Tensor, counted: Tensor, first: Tensor) -> Tensor:
    """[sequence, head, row, word]: 1 at the word that a row points at, divided among ties; 0 at the row's own word.

    A repeated word has its credit at its first occurrence. A row without weight on counted words points nowhere.
    """
    rows, words = counted[:, None, :, None], counted[:, None, None, :]
    weights = weights * words
    top = weights.amax(dim=-1, keepdim=True)
    tied = (weights >= top * (1 - SAME_WEIGHT)) & (weights > 0) & rows
    index = first[:, None, None].expand_as(tied)
    pointed = torch.zeros_like(weights).scatter_add_(-1, index, tied.to(weights)) > 0
    credit = pointed / pointed.sum(dim=-1, keepdim=True).clamp_min(1)
    own = first[:, None, :, None].expand(*credit.shape[:3], 1)
    return credit.scatter_(-1, own, 0.0)


def _votes_of_rows(counted: Tensor, first: Tensor) -> Tensor:
    """[sequence, 1, 1, row]: one vote per different word, divided among its rows."""
    rows = counted.float()
    occurrences = torch.zeros_like(rows).scatter_add_(1, first, rows).gather(1, first)
    return (rows / occurrences.clamp_min(1))[:, None, None]


def _answers(votes: Tensor, targets: Tensor) -> Tensor:
    """[sequence, head, kind]: whether the word with most votes is a target. votes [sequence, head, 1, word]"""
    votes = votes[:, :, 0]
    most = votes.amax(dim=-1, keepdim=True)
    winners = ((votes >= most - SAME_VOTES) & (most > SAME_VOTES)).to(votes.dtype)
    return winners @ targets.to(votes.dtype) / winners.sum(dim=-1, keepdim=True).clamp_min(1)


def _row_shares(credit: Tensor, counted: Tensor, targets: Tensor) -> Tensor:
    """[sequence, head, kind]: share of the rows of other words that point at a target."""
    hits = credit @ targets[:, None].to(credit.dtype)  # [sequence, head, row, kind]
    rows = (counted[..., None] & ~targets)[:, None]
    return (hits * rows).sum(dim=2) / rows.sum(dim=2).clamp_min(1)
