"""Does a head find the antecedent of a mention? (Clark et al. 2019, section 4.3)

An antecedent of a mention is an earlier mention of the same entity that does not overlap it. For every mention that has
one in the window, the query is its head word: is the largest weight of this row on the head word of an antecedent?
Attention is between words: summed over the tokens of the key word, averaged over those of the query word. There are two
sets of candidates: the head words of all earlier mentions that do not overlap this one (`mentions`), or all other words
of the window (`words`). Special tokens are never candidates. The paper does not state which of the two it used. If
several candidates have the largest weight, each gets an equal share of the credit.

The best head is chosen on one half of the documents and reported on the other, with an interval from resampling
documents. `same_data_…` follows the papers instead: the best of all heads, on all documents. `chance` is the accuracy
of a random guess: the share of the candidates that are head words of an antecedent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Self

import numpy as np
import torch
from torch import Tensor

from headscope.data.coreference import KINDS, Window
from headscope.errors import HeadscopeError
from headscope.heads import Site
from headscope.model.attention import Attention
from headscope.model.word_attention import SAME_WEIGHT, Pool
from headscope.statistics.antecedent_rules import RULES, choices_of
from headscope.statistics.base import Definition, Statistic
from headscope.statistics.resampling import (
    ResampledSums,
    bootstrap_share_interval,
    fingerprint,
    interval,
    is_reported,
)
from headscope.tables import Row, TableRow

if TYPE_CHECKING:
    from numpy.typing import NDArray

CANDIDATES = ("mentions", "words")
# Columns that do not depend on a head: the number of mentions, and the credit of each baseline
_PLAIN = ("count", *(f"chance {among}" for among in CANDIDATES), *RULES)


class Coreference(Statistic):
    """Computed on windows of documents (`headscope.data.coreference.windows`), given by their example index."""

    definitions = {
        "antecedent": Definition(
            "share",
            "Attention to the antecedent",
            "Share of mentions whose head word attends more to an antecedent's head word than to that of any other "
            "earlier mention.",
        )
    }
    needs = "coreference"

    def __init__(
        self,
        windows: Mapping[int, Window],
        names: tuple[str, ...] | None = None,
        *,
        seed: int = 0,
        pool: Pool = "mean",
    ) -> None:
        super().__init__(names)
        self.windows, self.seed, self.pool = dict(windows), seed, pool
        self._credit: dict[Site, ResampledSums] = {}  # [half, kind, candidates, head]
        self._plain = ResampledSums((2, len(KINDS), len(_PLAIN)))
        self._plain_site: Site | None = None  # the one site at which baselines are counted

    def update(self, attention: Attention) -> None:
        if not attention.within_one_text:
            return
        if not attention.examples:
            raise HeadscopeError(
                "the numbers of the examples are unknown", expected="batches run by `stream`"
            )
        for row, number in enumerate(attention.examples):
            if number not in self.windows:
                continue
            questions = _questions(self.windows[number], self.seed)
            words = _words(questions, attention, row)
            if not len(questions.heads):
                continue
            if self.pool == "mean":
                rows = _rows_of_words(attention.weights[row], words, questions.heads)
            else:
                queries = questions.heads.to(attention.weights.device)
                weights = attention.between_words(self.pool).weights[row]
                rows = weights[:, queries, : questions.words].transpose(0, 1)
            credit = _credit(questions, rows).double().cpu().numpy()
            self._add(attention.site, questions, credit)

    def _add(self, site: Site, questions: _Questions, credit: NDArray[np.float64]) -> None:
        """Add credit [mention, candidates, head]."""
        units, half = [questions.unit], int(is_reported(questions.unit))
        sums = np.zeros((1, 2, len(KINDS), *credit.shape[1:]))
        np.add.at(sums[0, half], questions.kinds, credit)
        if site not in self._credit:
            self._credit[site] = ResampledSums(sums.shape[1:])
        self._credit[site].add(units, sums)
        self._plain_site = self._plain_site or site
        if site == self._plain_site:
            plain = np.zeros((1, 2, len(KINDS), len(_PLAIN)))
            np.add.at(plain[0, half], questions.kinds, questions.plain)
            self._plain.add(units, plain)

    def merge(self, other: Self) -> Self:
        for site, sums in other._credit.items():
            self._credit.setdefault(site, ResampledSums(sums.total.shape)).merge(sums)
        self._plain.merge(other._plain)
        return self

    def table(self) -> list[Row]:
        """Rows of `antecedent`: accuracy over all mentions of all documents, with the candidates `mentions`."""
        if "antecedent" not in self.names:
            return []
        count = self._plain.total[..., 0].sum()
        drawn_count = self._plain.replicates[..., 0].sum(axis=(1, 2))
        rows = []
        for site, sums in sorted(self._credit.items()):
            credit = sums.total[:, :, 0].sum(axis=(0, 1))
            drawn = sums.replicates[:, :, :, 0].sum(axis=(1, 2))
            for head in range(len(credit)):
                low, high = _interval(credit[head], drawn[:, head], drawn_count, count)
                numbers = float(credit[head] / count), low, high, int(count)
                rows.append(Row(site.stack, site.layer, head, "antecedent", *numbers))
        return rows

    def tables(self) -> dict[str, list[TableRow]]:
        """coreference: a row per kind of mention and set of candidates; coreference_heads: a row per head."""
        rows: list[TableRow] = []
        for kind in ("all", *KINDS):
            first = 0 if kind == "all" else KINDS.index(kind)
            kinds = slice(first, len(KINDS) if kind == "all" else first + 1)
            counts = self._plain.total[:, kinds, 0].sum(axis=1)
            for i, among in enumerate(CANDIDATES if counts.sum() else ()):
                row = {"kind": kind, "candidates": among, **self._best_heads(kinds, i, counts)}
                rows.append({**row, **self._baselines(kinds, i), "count": int(counts.sum())})
        return {"coreference": rows, "coreference_heads": self._head_rows()}

    def _head_rows(self) -> list[TableRow]:
        """Rows of coreference_heads: every head over all mentions, compared with the best baseline, on both halves."""
        selection, reported = (self._plain.total[half].sum(axis=0) for half in (0, 1))
        if not selection[0] or not reported[0]:
            return []
        names = ("head_match", "nearest", f"chance {CANDIDATES[0]}")
        baselines = [_PLAIN.index(name) for name in names]
        drawn = self._plain.replicates[:, 1].sum(axis=1)
        baseline = float(reported[baselines].max() / reported[0])
        with np.errstate(invalid="ignore", divide="ignore"):
            drawn_baseline = (drawn[:, baselines] / drawn[:, :1]).max(axis=1)
        rows: list[TableRow] = []
        for site, sums in sorted(self._credit.items()):
            on_selection, on_reported = (sums.total[half, :, 0].sum(axis=0) for half in (0, 1))
            credit = sums.replicates[:, 1, :, 0].sum(axis=1)  # [replicate, head]
            for head in range(len(on_selection)):
                low, high = _interval(on_reported[head], credit[:, head], drawn[:, 0], reported[0])
                gain = float((on_selection[head] - selection[baselines].max()) / selection[0])
                with np.errstate(invalid="ignore", divide="ignore"):
                    least, _ = interval(credit[:, head] / drawn[:, 0] - drawn_baseline)
                rows.append(
                    {
                        "stack": site.stack,
                        "layer": site.layer,
                        "head": head,
                        "accuracy": float(on_reported[head] / reported[0]),
                        "low": low,
                        "high": high,
                        "baseline": baseline,
                        "chosen_gain": gain,
                        "least_gain": float(least) if np.isfinite(low) else np.nan,
                        "count": int(reported[0]),
                    }
                )
        return rows

    def _best_heads(self, kinds: slice, among: int, counts: NDArray[np.float64]) -> TableRow:
        """The head chosen on one half and its accuracy on the other; also the best head on all data. counts [half]"""
        sites = sorted(self._credit.items())
        heads = [(site, head) for site, sums in sites for head in range(sums.total.shape[-1])]
        totals = [sums.total[:, kinds, among].sum(axis=1) for _, sums in sites]
        credit = np.concatenate(totals, axis=-1)  # [half, head]
        row: TableRow = dict.fromkeys(("stack", "layer", "head", "accuracy", "low", "high"))
        if counts[0]:  # no head can be chosen without a mention in the selection split
            site, head = heads[best := int(credit[0].argmax())]
            row |= {"stack": site.stack, "layer": site.layer, "head": head}
            if counts[1]:
                drawn = self._credit[site].replicates[:, 1, kinds, among, head].sum(axis=1)
                drawn_count = self._plain.replicates[:, 1, kinds, 0].sum(axis=1)
                low, high = _interval(credit[1, best], drawn, drawn_count, counts[1])
                row |= {"accuracy": float(credit[1, best] / counts[1]), "low": low, "high": high}
        site, head = heads[best := int(credit.sum(axis=0).argmax())]
        accuracy = float(credit[:, best].sum() / counts.sum())
        same = {"layer": site.layer, "head": head, "accuracy": accuracy}
        return row | {f"same_data_best_{name}": value for name, value in same.items()}

    def _baselines(self, kinds: slice, among: int) -> dict[str, float | None]:
        """Accuracy of the rules and of chance on the report split."""
        reported = self._plain.total[1, kinds].sum(axis=0)
        columns = {rule: rule for rule in RULES} | {"chance": f"chance {CANDIDATES[among]}"}
        return {
            name: float(reported[_PLAIN.index(column)] / reported[0]) if reported[0] else None
            for name, column in columns.items()
        }


def _interval(
    credit: float, drawn_credit: NDArray[np.float64], drawn_count: NDArray[np.float64], count: float
) -> tuple[float, float]:
    """Interval of credit / count from bootstrap replicates of both; NaN if all mentions are in one document."""
    if np.all(drawn_count % count == 0):  # every replicate is a multiple of that document
        return np.nan, np.nan
    low, high = bootstrap_share_interval(np.asarray(credit), count, drawn_credit, drawn_count)
    return float(low), float(high)


@dataclass(frozen=True)
class _Questions:
    """The mentions of one window that have an antecedent in the window.

    unit        hash of the document
    words       number of words in the window
    heads       [mention]: position of the head word
    kinds       [mention]: index in KINDS
    candidates  [mention, candidates, word]: whether a word may be chosen
    right       [mention, word]: whether a word is the head word of an antecedent
    plain       [mention, name]: count and baselines, in the order of _PLAIN
    """

    unit: int
    words: int
    heads: Tensor
    kinds: NDArray[np.int64]
    candidates: Tensor
    right: Tensor
    plain: NDArray[np.float64]


@lru_cache(maxsize=256)  # every site of a batch reads the same windows
def _questions(window: Window, seed: int) -> _Questions:
    mentions, candidates, right, plain = [], [], [], []
    size = len(window.words)
    for mention in window.mentions:
        earlier = [other for other in window.mentions if other.end <= mention.start]
        heads = {other.head for other in earlier if other.entity == mention.entity}
        if not heads:
            continue
        among = np.stack([_mask(size, [other.head for other in earlier]), np.ones(size, bool)])
        among[:, mention.head] = False
        choices = choices_of(window, mention, earlier)
        of_rules = [choice is not None and choice.head in heads for choice in choices.values()]
        mentions.append(mention)
        candidates.append(among)
        right.append(_mask(size, heads))
        plain.append([1.0, *(len(heads) / among.sum(axis=1)), *map(float, of_rules)])
    return _Questions(
        unit=fingerprint(" ".join(window.document.words), seed),
        words=size,
        heads=torch.tensor([mention.head for mention in mentions], dtype=torch.long),
        kinds=np.array([KINDS.index(mention.kind) for mention in mentions], dtype=np.int64),
        candidates=torch.from_numpy(np.array(candidates, dtype=bool)),
        right=torch.from_numpy(np.array(right, dtype=bool)),
        plain=np.array(plain),
    )


def _mask(size: int, indices: Iterable[int]) -> NDArray[np.bool_]:
    mask = np.zeros(size, dtype=bool)
    mask[list(indices)] = True
    return mask


def _words(questions: _Questions, attention: Attention, row: int) -> Tensor:
    """[token]: the index of the word that each token of this sequence belongs to."""
    words = attention.query.words
    read = 0 if words is None else int(words[row].max()) + 1
    if words is None or read != questions.words:
        raise HeadscopeError(
            f"the model read {read} words of a window of {questions.words}",
            expected="windows cut for this model and this max_length, given to it as words",
        )
    return words[row]


def _rows_of_words(weights: Tensor, words: Tensor, queries: Tensor) -> Tensor:
    """[query word, head, key word] from weights [head, token, token]: like `word_attention`, for some query words only.

    Rows are summed over the tokens of the query word, not averaged: the order within a row is the same, and ties stay
    exact.
    """
    numbers = torch.arange(int(words.max()) + 1, device=words.device)
    pieces = (words[:, None] == numbers).to(weights.dtype)  # [token, word]
    return (pieces.T[queries.to(words.device)] @ weights @ pieces).transpose(0, 1)


def _credit(questions: _Questions, rows: Tensor) -> Tensor:
    """[mention, candidates, head]: 1 if the largest weight is on an antecedent's head word; ties share the credit."""
    candidates = questions.candidates.to(rows.device)[:, :, None]
    allowed = torch.where(candidates, rows[:, None], -1.0)  # [mention, candidates, head, word]
    is_largest = allowed >= allowed.amax(dim=-1, keepdim=True) * (1 - SAME_WEIGHT)
    is_right = is_largest & questions.right.to(rows.device)[:, None, None]
    return is_right.sum(dim=-1) / is_largest.sum(dim=-1)
