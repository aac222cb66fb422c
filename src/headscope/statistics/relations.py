"""Which head shows which relation between words?

For every head, relation and direction, the share of related pairs (query word q, key word k) for which the largest
weight is where it should be; weights between words, special tokens and the word itself left out, ties sharing credit:

dependent  q's row has its maximum at k: a dependent looks at its governor (Clark's first map, Voita's s -> v)
governor   k's row has its maximum at q: the governor looks at this dependent (Voita's v -> s)
received   of all words, k looks most at q: the column's maximum (Clark's transposed map)

Across two texts only two make sense: `dependent`, and `received`: of all words, q looks most at k.

The best head is chosen on one half of the sentences and reported on the other, with an interval from resampling
sentences; so is the baseline, the best fixed offset of -3 … 3. The papers choose and report on the same data: that
number stands beside it. Relations with fewer than 100 pairs are listed and not ranked.
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
OFFSETS = (-3, -2, -1, 0, 1, 2, 3)  # 0 only across two texts: no word is paired with itself
RANKED = 100  # pairs a relation must have for a head to be chosen
MARGIN = Thresholds().relation  # Voita's rule: so much better than the baseline
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
        whole: bool = False,
        own: Collection[str] = (),
    ) -> None:
        """`whole` adds the relations "all" and "all but punctuation", over every pair but those of the `own` ones."""
        super().__init__()
        self.pool = pool
        self.units = [fingerprint(sentence.text, seed) for sentence in sentences]
        self.names = tuple(sorted({name for sentence in sentences for name in sentence.pairs}))
        self.relations = (*self.names, *((ALL, ALL_BUT_PUNCTUATION) if whole else ()))
        self._pairs = [_pairs_of(sentence, self.relations, whole, own) for sentence in sentences]
        self._between = [sentence.between for sentence in sentences]
        self._seen: dict[str, NDArray[np.bool_]] = {}
        self._sums: dict[Site, Halves] = {}

    def update(self, attention: Attention) -> None:
        asked = [
            i
            for i, example in enumerate(attention.examples)
            if self._speaks_of(example, attention) and self._pairs[example]
        ]
        seen = self._seen.setdefault(attention.site.stack, np.zeros(len(self.units), dtype=bool))
        if not asked:
            return
        examples = [attention.examples[i] for i in asked]
        seen[examples] = True
        weights = attention.between_words(self.pool).weights[asked]
        pairs = np.concatenate(
            [_numbered(self._pairs[example], i) for i, example in enumerate(examples)]
        )
        where = torch.from_numpy(pairs).to(weights.device)
        # [pair, direction, head]
        credit = _credits(weights, *where.T[:3], within=attention.within_one_text)
        values = credit.new_zeros(len(examples), len(self.relations), *credit.shape[1:])
        values.index_put_((where[:, 0], where[:, 3]), credit, accumulate=True)
        halves = self._sums.setdefault(attention.site, Halves(tuple(values.shape[1:])))
        halves.add([self.units[example] for example in examples], values.cpu().numpy())

    def _speaks_of(self, example: int, attention: Attention) -> bool:
        """Whether the pairs of this sentence lie in this stack."""
        joined = {"encoder": "words", "cross": "across", "decoder": "target"}.get(
            attention.site.stack
        )
        between = self._between[example]
        alone = attention.site.stack == "decoder" and between == "words" and not self._has_encoder
        return between == joined or alone

    @property
    def _has_encoder(self) -> bool:
        return any(site.stack == "encoder" for site in self._sums) or "encoder" in self._seen

    def merge(self, other: Self) -> Self:
        for stack, seen in other._seen.items():
            self._seen[stack] = self._seen.get(stack, np.zeros_like(seen)) | seen
        for site, halves in other._sums.items():
            if site in self._sums:
                self._sums[site].merge(halves)
            else:
                self._sums[site] = halves
        return self

    def tables(self) -> dict[str, list[TableRow]]:
        ranked: list[TableRow] = []
        each: list[TableRow] = []
        for stack in STACKS:
            sites = sorted(site for site in self._sums if site.stack == stack)
            if sites:
                answers = self._answers(sites)
                ranked += answers.ranked()
                each += answers.each()
        return {"relations": ranked, "relation_heads": each}

    def _answers(self, sites: list[Site]) -> _Answers:
        """All heads of one stack side by side."""
        stack = sites[0].stack
        directions = [
            i for i, name in enumerate(DIRECTIONS) if stack != "cross" or name != "governor"
        ]
        sums = [self._sums[site] for site in sites]
        heads = [
            head for site, one in zip(sites, sums, strict=True) for head in site.heads(one.heads)
        ]
        seen = np.flatnonzero(self._seen[stack])
        reported = np.array([is_reported(self.units[i]) for i in seen])
        weights = poisson_weights(
            [self.units[i] for i, there in zip(seen, reported, strict=True) if there]
        )
        # [sentence, relation, offset + count]
        at_offset = np.stack([self._at_offsets(int(i)) for i in seen])
        of_report = at_offset[reported].astype(np.float64)
        return _Answers(
            relations=self.relations,
            directions=tuple(DIRECTIONS[i] for i in directions),
            heads=heads,
            chosen=np.concatenate([one.chosen for one in sums], axis=-1)[:, directions],
            reported=np.concatenate([one.reported.total for one in sums], axis=-1)[:, directions],
            replicates=np.concatenate([one.reported.replicates for one in sums], axis=-1)[
                :, :, directions
            ],
            chosen_offsets=at_offset[~reported].sum(axis=0),
            reported_offsets=of_report.sum(axis=0),
            offset_replicates=np.einsum("bs,sro->bro", weights, of_report),
        )

    def _at_offsets(self, example: int) -> NDArray[np.int64]:
        """[relation, offset and then the number of pairs]: pairs with this offset key - query."""
        counts = np.zeros((len(self.relations), len(OFFSETS) + 1), dtype=np.int64)
        for relation, query, key in self._pairs[example]:
            counts[relation, -1] += 1
            if key - query in OFFSETS:
                counts[relation, OFFSETS.index(key - query)] += 1
        return counts


class Halves:
    """Credits [relation, direction, head] summed over the half to choose on and the half to report on."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.chosen: NDArray[np.float64] = np.zeros(shape)
        self.reported = ResampledSums(shape)

    @property
    def heads(self) -> int:
        return int(self.chosen.shape[-1])

    def add(self, units: list[int], values: NDArray[Any]) -> None:
        reported = np.array([is_reported(unit) for unit in units])
        self.chosen += values[~reported].sum(axis=0)
        kept = [unit for unit in units if is_reported(unit)]
        if kept:
            self.reported.add(kept, values[reported].astype(np.float64))

    def merge(self, other: Halves) -> None:
        self.chosen += other.chosen
        self.reported.merge(other.reported)


def _pairs_of(
    sentence: Sentence, relations: tuple[str, ...], whole: bool, own: Collection[str]
) -> list[tuple[int, int, int]]:
    """(relation, query, key), a word paired with itself left out."""
    number = {name: i for i, name in enumerate(relations)}
    found = []
    for name, pairs in sentence.pairs.items():
        for query, key in pairs:
            if query == key and sentence.between != "across":
                continue
            found.append((number[name], query, key))
            if whole and name not in own:
                found.append((number[ALL], query, key))
                if name not in ("punct", "p"):
                    found.append((number[ALL_BUT_PUNCTUATION], query, key))
    return found


def _numbered(pairs: list[tuple[int, int, int]], sequence: int) -> NDArray[np.int64]:
    """[pair, 4]: sequence, query, key, relation."""
    return np.array(
        [(sequence, query, key, relation) for relation, query, key in pairs], dtype=np.int64
    )


def _credits(
    weights: Tensor, sequence: Tensor, query: Tensor, key: Tensor, *, within: bool
) -> Tensor:
    """[pair, direction, head]: 1 where the maximum is at the pair's word, 1/k where k words share it."""
    if within:
        weights = weights.clone()
        weights.diagonal(dim1=-2, dim2=-1).fill_(-1.0)  # a word does not point at itself
    by_row, by_column = _shares(weights, dim=-1), _shares(weights, dim=-2)
    if not within:
        dependent, received = by_row[sequence, :, query, key], by_column[sequence, :, query, key]
        return torch.stack([dependent, torch.zeros_like(dependent), received], dim=1)
    return torch.stack(
        [
            by_row[sequence, :, query, key],
            by_row[sequence, :, key, query],
            by_column[sequence, :, key, query],
        ],
        dim=1,
    )


def _shares(weights: Tensor, dim: int) -> Tensor:
    """1/k at each of the k largest weights along a dimension, 0 elsewhere and where there is no weight at all.

    Weights that differ by rounding alone are alike.
    """
    top = weights.amax(dim=dim, keepdim=True)
    at_top = (weights >= top * (1 - SAME_WEIGHT)) & (top > 0)
    ties = at_top.sum(dim=dim, keepdim=True).clamp_min(1)
    return at_top / ties.to(torch.float64 if weights.device.type != "mps" else torch.float32)


@dataclass
class _Answers:
    """Everything one stack's tables are made of; `r` relations, `d` directions, `h` heads, `o` offsets, `b` replicates.

    The last of the offsets' columns is the number of pairs.
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
        return (
            self.count(r) >= RANKED
            and self.chosen_offsets[r, -1] > 0
            and self.reported_offsets[r, -1] > 0
        )

    def baseline(self, r: int, d: int) -> tuple[int, float, NDArray[np.float64]]:
        """The best offset of the partner on the first half; its accuracy on the second, also in each replicate."""
        o = int(self.chosen_offsets[r, :-1].argmax())
        mirrored = self.directions[d] == "governor"  # there the governor's partner is the dependent
        with np.errstate(invalid="ignore", divide="ignore"):
            value = self.reported_offsets[r, o] / self.reported_offsets[r, -1]
            value = value if self.chosen_offsets[r, -1] else np.nan
            values = self.offset_replicates[:, r, o] / self.offset_replicates[:, r, -1]
        return (-OFFSETS[o] if mirrored else OFFSETS[o]), float(value), values

    def ranked(self) -> list[TableRow]:
        """The rows of relations.csv."""
        order = sorted(
            range(len(self.relations)), key=lambda r: (-self.count(r), self.relations[r])
        )
        return [self._row(r, d) for r in order for d in range(len(self.directions))]

    def _row(self, r: int, d: int) -> TableRow:
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
            # Without a pair to learn it from there is no best offset.
            "baseline_offset": offset if self.chosen_offsets[r, -1] else None,
            "control": np.nan,
            "count": self.count(r),
        }
        if not self.is_ranked(r):
            return row
        best = int(self.chosen[r, d].argmax())
        everywhere = (self.chosen[r, d] + self.reported[r, d]) / self.count(r)
        papers = int(everywhere.argmax())
        low, high = self._intervals(r, d)
        row |= {
            "layer": self.heads[best].layer,
            "head": self.heads[best].head,
            "accuracy": self.reported[r, d, best] / self.reported_offsets[r, -1],
            "low": float(low[best]),
            "high": float(high[best]),
            "same_data_accuracy": everywhere[best],
            "same_data_best_layer": self.heads[papers].layer,
            "same_data_best_head": self.heads[papers].head,
            "same_data_best_accuracy": everywhere[papers],
        }
        return row

    def _accuracies(self, r: int, d: int) -> NDArray[np.float64]:
        """[replicate, head]"""
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio: NDArray[np.float64] = (
                self.replicates[:, r, d] / self.offset_replicates[:, r, -1:]
            )
        return ratio

    def _intervals(self, r: int, d: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """[head]: 95 % interval of the accuracy on the half that is reported on."""
        drawn_count = self.offset_replicates[:, r, -1]
        count = float(self.reported_offsets[r, -1])
        return bootstrap_share_interval(
            self.reported[r, d], count, self.replicates[:, r, d], drawn_count
        )

    def each(self) -> list[TableRow]:
        """The rows of relation_heads.csv: every head, for the relations that are ranked."""
        ranked = [r for r in range(len(self.relations)) if self.is_ranked(r)]
        return [
            row for r in ranked for d in range(len(self.directions)) for row in self._rows_of(r, d)
        ]

    def _rows_of(self, r: int, d: int) -> list[TableRow]:
        _, baseline, baselines = self.baseline(r, d)
        accuracies = self._accuracies(r, d)
        low, high = self._intervals(r, d)
        least_gain, _ = interval(accuracies - baselines[:, None])
        chosen = self.chosen[r, d] / self.chosen_offsets[r, -1]
        chosen_baseline = self.chosen_offsets[r, :-1].max() / self.chosen_offsets[r, -1]
        reported = self.reported[r, d] / self.reported_offsets[r, -1]
        # Voita's rule must hold on both halves, and the gain on the second must not be chance.
        above = (
            (chosen >= chosen_baseline + MARGIN)
            & (reported >= baseline + MARGIN)
            & (least_gain > 0)
        )
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
