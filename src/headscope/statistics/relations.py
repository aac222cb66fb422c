"""Which head shows which relation between words?

A relation has pairs of words (q, k); in a treebank, q is the dependent and k its governor. The accuracy of a head is
the share of pairs for which the largest weight is at the right word. Weights are between words, without special tokens
and without the weight of a word on itself. Ties share the credit. There are three directions:

dependent  q's row has its maximum at k: the dependent attends to its governor (Clark's first map, Voita's s -> v)
governor   k's row has its maximum at q: the governor attends to this dependent (Voita's v -> s)
received   q's column has its maximum at k: of all words, k attends most to q (Clark's transposed map)

Between two texts only two directions are defined: `dependent`, and `received`, which then means that k's column has its
maximum at q: of all words, q attends most to k.

The best head is chosen on one half of the sentences and reported on the other, with an interval from resampling
sentences. The same holds for the baseline, which is the best fixed offset of -3 … 3. Columns named `same_data_…` choose
and report on the same data. Relations with fewer than 100 pairs are listed but not ranked.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import Tensor

from headscope.config.thresholds import Thresholds
from headscope.data.sentences import Sentence
from headscope.heads import Head, Site
from headscope.model.attention import Attention
from headscope.model.word_attention import SAME_WEIGHT, Pool
from headscope.statistics.base import Statistic
from headscope.statistics.resampling import (
    ResampledSums,
    bootstrap_share_interval,
    fingerprint,
    interval,
    is_reported,
    poisson_weights,
)
from headscope.tables import STACKS, TableRow

if TYPE_CHECKING:
    from numpy.typing import NDArray

DIRECTIONS = ("dependent", "governor", "received")
OFFSETS = (-3, -2, -1, 0, 1, 2, 3)  # 0 occurs only between two texts: no word is paired with itself
RANKED = 100  # fewest pairs of a relation for which a best head is chosen
MARGIN = Thresholds().relation  # gain over the baseline that Voita's rule requires
ALL, ALL_BUT_PUNCTUATION = "all", "all but punctuation"


class Relations(Statistic):
    definitions = {}  # its tables are relations.csv and relation_heads.csv
    needs = "treebank"

    def __init__(
        self,
        sentences: Sequence[Sentence],
        *,
        seed: int = 0,
        pool: Pool = "mean",
        with_totals: bool = False,
        own: Collection[str] = (),
    ) -> None:
        """Prepare the pairs of all sentences.

        with_totals  add the relations "all" and "all but punctuation", over all pairs except those of `own` relations
        own          names of the relations that the user defined
        """
        super().__init__()
        self.pool = pool
        self.units = [fingerprint(sentence.text, seed) for sentence in sentences]
        self.names = tuple(sorted({name for sentence in sentences for name in sentence.pairs}))
        self.relations = (*self.names, *((ALL, ALL_BUT_PUNCTUATION) if with_totals else ()))
        self._pairs = [
            _pairs_of(sentence, self.relations, with_totals, own) for sentence in sentences
        ]
        self._between = [sentence.between for sentence in sentences]
        self._read: dict[str, NDArray[np.bool_]] = {}
        self._sums: dict[Site, Halves] = {}

    def update(self, attention: Attention) -> None:
        stack = attention.site.stack
        is_read = self._read.setdefault(stack, np.zeros(len(self.units), dtype=bool))
        indices = [
            i
            for i, example in enumerate(attention.examples)
            if self._pairs[example] and self._is_in(stack, self._between[example])
        ]
        if not indices:
            return
        examples = [attention.examples[i] for i in indices]
        is_read[examples] = True
        weights = attention.between_words(self.pool).weights[indices]
        pairs = [
            (i, query, key, relation)
            for i, example in enumerate(examples)
            for relation, query, key in self._pairs[example]
        ]
        sequence, query, key, relation = torch.tensor(pairs, device=weights.device).T
        credit = _credits(weights, sequence, query, key, within=attention.within_one_text)
        values = credit.new_zeros(len(examples), len(self.relations), *credit.shape[1:])
        values.index_put_((sequence, relation), credit, accumulate=True)
        halves = self._sums.setdefault(attention.site, Halves(tuple(values.shape[1:])))
        halves.add([self.units[example] for example in examples], values.cpu().numpy())

    def _is_in(self, stack: str, between: str) -> bool:
        """Whether this stack has the attention for pairs between these texts (see `Sentence.between`)."""
        if stack == "decoder" and between == "words":  # true if the model has no encoder
            stacks = {site.stack for site in self._sums} | set(self._read)
            return "encoder" not in stacks
        return {"encoder": "words", "cross": "across", "decoder": "target"}.get(stack) == between

    def merge(self, other: Self) -> Self:
        for stack, is_read in other._read.items():
            self._read[stack] = self._read.get(stack, np.zeros_like(is_read)) | is_read
        for site, halves in other._sums.items():
            if site in self._sums:
                self._sums[site].merge(halves)
            else:
                self._sums[site] = halves
        return self

    def tables(self) -> dict[str, list[TableRow]]:
        tables: dict[str, list[TableRow]] = {"relations": [], "relation_heads": []}
        for stack in STACKS:
            sites = sorted(site for site in self._sums if site.stack == stack)
            if sites:
                accuracies = self._accuracies(sites)
                tables["relations"] += accuracies.best_rows()
                tables["relation_heads"] += accuracies.head_rows()
        return tables

    def _accuracies(self, sites: list[Site]) -> _Accuracies:
        """The sums of all heads at these sites, which are all sites of one stack."""
        stack = sites[0].stack
        directions = [
            i for i, name in enumerate(DIRECTIONS) if stack != "cross" or name != "governor"
        ]
        sums = [self._sums[site] for site in sites]
        numbers = [int(i) for i in np.flatnonzero(self._read[stack])]
        reported = np.array([is_reported(self.units[i]) for i in numbers])
        units = [self.units[i] for i in numbers]
        weights = poisson_weights([unit for unit in units if is_reported(unit)])
        # [sentence, relation, offset + count]
        at_offset = np.stack([self._at_offsets(i) for i in numbers])
        of_report = at_offset[reported].astype(np.float64)

        def concatenate(arrays: list[NDArray[np.float64]]) -> NDArray[np.float64]:
            return np.concatenate(arrays, axis=-1)[..., directions, :]

        return _Accuracies(
            relations=self.relations,
            directions=tuple(DIRECTIONS[i] for i in directions),
            heads=[head for site in sites for head in site.heads(self._sums[site].heads)],
            chosen=concatenate([halves.chosen for halves in sums]),
            reported=concatenate([halves.reported.total for halves in sums]),
            replicates=concatenate([halves.reported.replicates for halves in sums]),
            chosen_offsets=at_offset[~reported].sum(axis=0),
            reported_offsets=of_report.sum(axis=0),
            offset_replicates=np.einsum("bs,sro->bro", weights, of_report),
        )

    def _at_offsets(self, example: int) -> NDArray[np.int64]:
        """[relation, offset + count]: number of pairs with each offset key - query; last, the number of all pairs."""
        counts = np.zeros((len(self.relations), len(OFFSETS) + 1), dtype=np.int64)
        for relation, query, key in self._pairs[example]:
            counts[relation, -1] += 1
            if key - query in OFFSETS:
                counts[relation, OFFSETS.index(key - query)] += 1
        return counts


class Halves:
    """Credits [relation, direction, head] summed over the selection split and the report split."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.chosen: NDArray[np.float64] = np.zeros(shape)
        self.reported = ResampledSums(shape)

    @property
    def heads(self) -> int:
        return int(self.chosen.shape[-1])

    def add(self, units: list[int], values: NDArray[Any]) -> None:
        reported = np.array([is_reported(unit) for unit in units])
        self.chosen += values[~reported].sum(axis=0)
        if reported.any():
            of_report = [unit for unit in units if is_reported(unit)]
            self.reported.add(of_report, values[reported].astype(np.float64))

    def merge(self, other: Halves) -> None:
        self.chosen += other.chosen
        self.reported.merge(other.reported)


def _pairs_of(
    sentence: Sentence, relations: tuple[str, ...], with_totals: bool, own: Collection[str]
) -> list[tuple[int, int, int]]:
    """(index of the relation, query, key) of each pair, without pairs of a word with itself."""
    number = {name: i for i, name in enumerate(relations)}
    numbered_pairs = []
    for name, pairs in sentence.pairs.items():
        for query, key in pairs:
            if query == key and sentence.between != "across":
                continue
            numbered_pairs.append((number[name], query, key))
            if with_totals and name not in own:
                numbered_pairs.append((number[ALL], query, key))
                if name not in ("punct", "p"):
                    numbered_pairs.append((number[ALL_BUT_PUNCTUATION], query, key))
    return numbered_pairs


def _credits(
    weights: Tensor, sequence: Tensor, query: Tensor, key: Tensor, *, within: bool
) -> Tensor:
    """[pair, direction, head]: 1 if the maximum is at the right word, 1/k if k words share the maximum."""
    if within:
        weights = weights.clone()
        weights.diagonal(dim1=-2, dim2=-1).fill_(-1.0)  # a word does not point at itself
    by_row, by_column = _shares(weights, dim=-1), _shares(weights, dim=-2)
    dependent = by_row[sequence, :, query, key]
    if within:
        directions = by_row[sequence, :, key, query], by_column[sequence, :, key, query]
    else:
        directions = torch.zeros_like(dependent), by_column[sequence, :, query, key]
    return torch.stack([dependent, *directions], dim=1)


def _shares(weights: Tensor, dim: int) -> Tensor:
    """1/k at each of the k equally largest weights along a dimension, 0 elsewhere, and 0 if all weights are 0.

    Weights that differ only by rounding count as equal.
    """
    top = weights.amax(dim=dim, keepdim=True)
    at_top = (weights >= top * (1 - SAME_WEIGHT)) & (top > 0)
    ties = at_top.sum(dim=dim, keepdim=True).clamp_min(1)
    return at_top / ties.to(torch.float64 if weights.device.type != "mps" else torch.float32)


@dataclass
class _Accuracies:
    """The sums of one stack; `r` relations, `d` directions, `h` heads, `o` offsets, `b` bootstrap replicates.

    The last column of arrays with `o + 1` columns is the number of pairs.
    """

    relations: tuple[str, ...]
    directions: tuple[str, ...]
    heads: list[Head]
    chosen: NDArray[np.float64]  # [r, d, h]
    reported: NDArray[np.float64]  # [r, d, h]
    replicates: NDArray[np.float64]  # [b, r, d, h]
    chosen_offsets: NDArray[np.int64]  # [r, o + 1]
    reported_offsets: NDArray[np.float64]  # [r, o + 1]
    offset_replicates: NDArray[np.float64]  # [b, r, o + 1]

    def count(self, r: int) -> int:
        return int(self.chosen_offsets[r, -1] + self.reported_offsets[r, -1])

    def is_ranked(self, r: int) -> bool:
        has_halves = self.chosen_offsets[r, -1] > 0 and self.reported_offsets[r, -1] > 0
        return self.count(r) >= RANKED and bool(has_halves)

    def baseline(self, r: int, d: int) -> tuple[int, float, NDArray[np.float64]]:
        """The best offset of the partner on the selection split; its accuracy on the other, also in each replicate."""
        o = int(self.chosen_offsets[r, :-1].argmax())
        is_mirrored = self.directions[d] == "governor"  # the governor's partner is the dependent
        with np.errstate(invalid="ignore", divide="ignore"):
            value = self.reported_offsets[r, o] / self.reported_offsets[r, -1]
            value = value if self.chosen_offsets[r, -1] else np.nan
            values = self.offset_replicates[:, r, o] / self.offset_replicates[:, r, -1]
        return (-OFFSETS[o] if is_mirrored else OFFSETS[o]), float(value), values

    def best_rows(self) -> list[TableRow]:
        """Rows of relations.csv."""
        numbers = range(len(self.relations))
        order = sorted(numbers, key=lambda r: (-self.count(r), self.relations[r]))
        return [self._best_row(r, d) for r in order for d in range(len(self.directions))]

    def _best_row(self, r: int, d: int) -> TableRow:
        offset, baseline, _ = self.baseline(r, d)
        row: TableRow = {
            "relation": self.relations[r],
            "direction": self.directions[d],
            "stack": self.heads[0].stack,
            "layer": None,
            "head": None,
            "accuracy": np.nan,
            "low": np.nan,
            "high": np.nan,
            "same_data_accuracy": np.nan,
            "same_data_best_layer": None,
            "same_data_best_head": None,
            "same_data_best_accuracy": np.nan,
            "baseline": baseline,
            # Without pairs in the selection split there is no best offset.
            "baseline_offset": offset if self.chosen_offsets[r, -1] else None,
            "control": np.nan,
            "count": self.count(r),
        }
        if not self.is_ranked(r):
            return row
        best = int(self.chosen[r, d].argmax())
        everywhere = (self.chosen[r, d] + self.reported[r, d]) / self.count(r)
        same_data = int(everywhere.argmax())
        low, high = self._intervals(r, d)
        row |= {
            "layer": self.heads[best].layer,
            "head": self.heads[best].head,
            "accuracy": self.reported[r, d, best] / self.reported_offsets[r, -1],
            "low": float(low[best]),
            "high": float(high[best]),
            "same_data_accuracy": everywhere[best],
            "same_data_best_layer": self.heads[same_data].layer,
            "same_data_best_head": self.heads[same_data].head,
            "same_data_best_accuracy": everywhere[same_data],
        }
        return row

    def _intervals(self, r: int, d: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """[head]: 95 % interval of the accuracy on the report split."""
        count, drawn_count = float(self.reported_offsets[r, -1]), self.offset_replicates[:, r, -1]
        drawn = self.replicates[:, r, d]
        return bootstrap_share_interval(self.reported[r, d], count, drawn, drawn_count)

    def head_rows(self) -> list[TableRow]:
        """Rows of relation_heads.csv: every head, for each relation that is ranked."""
        ranked = [r for r in range(len(self.relations)) if self.is_ranked(r)]
        directions = range(len(self.directions))
        return [row for r in ranked for d in directions for row in self._head_rows(r, d)]

    def _head_rows(self, r: int, d: int) -> list[TableRow]:
        _, baseline, baselines = self.baseline(r, d)
        with np.errstate(invalid="ignore", divide="ignore"):
            accuracies = self.replicates[:, r, d] / self.offset_replicates[:, r, -1:]
        low, high = self._intervals(r, d)
        least_gain, _ = interval(accuracies - baselines[:, None])
        chosen = self.chosen[r, d] / self.chosen_offsets[r, -1]
        chosen_baseline = self.chosen_offsets[r, :-1].max() / self.chosen_offsets[r, -1]
        reported = self.reported[r, d] / self.reported_offsets[r, -1]
        # Voita's rule must hold on both halves, and the interval of the gain on the second must be above 0.
        above = (chosen >= chosen_baseline + MARGIN) & (reported >= baseline + MARGIN)
        above &= least_gain > 0
        return [
            {
                **asdict(head),
                "relation": self.relations[r],
                "direction": self.directions[d],
                "accuracy": reported[h],
                "low": low[h],
                "high": high[h],
                "baseline": baseline,
                "chosen_gain": chosen[h] - chosen_baseline,
                "least_gain": least_gain[h],
                "is_above": bool(above[h]),
                "count": int(self.reported_offsets[r, -1]),
            }
            for h, head in enumerate(self.heads)
        ]
