"""Which of Kovaleva's five patterns is each map: vertical, diagonal, both, block or heterogeneous?

Each map (of one head and one sequence of n tokens) gets six scores, and a rule on four of them decides its pattern. The
result for a head is the share of its maps with each pattern: a head has a distribution, not a label.

    column-score     Do columns stand out in every quarter of the rows? For each key: the lowest of its mean weights in
                     the four quarters, minus 1/n, or 0 if that is negative. Summed over keys.
    band-score       Do diagonals near the main one stand out? For each near offset: the sum of its weights, minus 2/n
                     per cell, or 0 if that is negative. Summed over the offsets, divided by n. Near offsets are at most
                     8 tokens and at most an eighth of the sequence (at least 1).
    block-score      Does attention stay in the query's segment? For each content row: the share of its mass on content
                     keys that is on its own segment, minus the same share under uniform attention. Mean over the
                     content rows with at least 1e-6 of such mass.
    block-beyond-offset  The share of all content rows' mass on content keys that is on the own segment, minus the share
                     of a head with the same mass at each offset in every row. A head that attends to near tokens mostly
                     stays in its segment, whether it regards segments or not: it has a block-score, but 0 here.
    vertical-score   Mass on special tokens, mean over the rows.
    diagonal-score   Mass on content keys at the offsets -1, 0 and +1, mean over the rows.

The pattern of a map is the first in this list whose condition holds (in brackets: fields of `PatternThresholds`):

    block              block >= 0.3, beyond-offset >= 0.1, column < 0.25, band < 0.1  (excess, beyond, faint, beside)
    vertical           column >= 0.08 and band < 0.1                                 (columns, beside)
    vertical-diagonal  column >= 0.08 and band >= 0.1                                (columns, beside)
    diagonal           column < 0.08 and band >= 0.25                                (columns, band)
    heterogeneous      all other maps

The thresholds are this project's own, chosen by inspection of maps: Kovaleva et al. 2019 trained a network on maps
labelled by hand, and released neither. The rule does not use vertical-score and diagonal-score, because a column with a
fifth of the mass stands out on any token, not only a special one, and so does a band of any width. Because of rounding
errors, a score also reaches a threshold if it is at most 1e-6 below it.

A sequence without special tokens has no vertical-score. A sequence with a single segment has no block-scores, and is
never a block. In a causal stack, uniform attention in the block-score means uniform over the tokens up to the row.
Therefore rows of the first segment have an excess of 0 there, and block-scores are lower. Offset +1 has no mass. In
column-score and band-score, uniform is 1/n in all stacks.

As a second opinion, a small network (`pattern_classifier`) classifies the maps of the first examples. The table
`pattern_agreement` counts how often rule and network agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

import torch
from torch import Tensor

from headscope.heads import Site
from headscope.model.row_sums import QUARTERS, Wanted, segments_of
from headscope.model.tokens import CLASSES, Tokens
from headscope.statistics.base import Definition, PerSequence, Quantities
from headscope.statistics.pattern_classifier import PATTERNS, classify
from headscope.tables import STACKS, TableRow

ROUNDING = 1e-6
LEAST_MASS = 1e-6
NEAR_TOKENS, NEAR_PART = 8, 8
SPECIAL = CLASSES.index("special")


@dataclass(frozen=True)
class PatternThresholds:
    """The thresholds of the rule above."""

    columns: float = 0.08
    band: float = 0.25
    beside: float = 0.1
    excess: float = 0.3
    beyond: float = 0.1
    faint: float = 0.25


def _maps(short: str, long: str) -> Definition:
    return Definition("share", f"Maps {short}", f"Share of attention maps (one per text) {long}.")


class PatternClasses(PerSequence):
    """sample: number of examples, from the first on, whose maps the network classifies, too."""

    definitions = {
        "pattern-vertical": _maps("that are vertical", "in which a few columns stand out"),
        "pattern-diagonal": _maps(
            "that are diagonal", "in which a band along the diagonal stands out"
        ),
        "pattern-vertical-diagonal": _maps(
            "that are vertical and diagonal", "that are vertical and diagonal at once"
        ),
        "pattern-block": _maps(
            "that are blocks", "whose attention stays within the query's own segment"
        ),
        "pattern-heterogeneous": _maps(
            "without a simple pattern", "that are none of the other four patterns"
        ),
        "column-score": Definition(
            "share",
            "Column score",
            "Attention to each key in the quarter of the queries that attends to it least, minus uniform attention, "
            "summed over the keys for which this is positive. High for vertical maps.",
        ),
        "band-score": Definition(
            "share",
            "Band score",
            "Attention on diagonals near the main diagonal, minus twice uniform attention, summed over the diagonals "
            "for which this is positive. High for diagonal maps.",
        ),
        "block-score": Definition(
            "share",
            "Block score",
            "Share of attention to content tokens that stays in the query's own segment, minus that share under "
            "uniform attention. High for block maps.",
            is_signed=True,
        ),
        "block-beyond-offset": Definition(
            "share",
            "Block score beyond locality",
            "Share of attention to content tokens that stays in the query's own segment, minus the share that a "
            "head with the same attention at each offset would have.",
            is_signed=True,
        ),
        "vertical-score": Definition(
            "share",
            "Vertical score",
            "Share of attention to special tokens, averaged over the queries of a map.",
        ),
        "diagonal-score": Definition(
            "share",
            "Diagonal score",
            "Share of attention to content tokens at offsets -1, 0 and +1, averaged over queries.",
        ),
    }

    quantities = frozenset(
        {
            "quarter_mass",
            "offset_mass",
            "segment_mass",
            "alike_mass",
            "near_content_mass",
            "class_mass",
        }
    )

    def __init__(
        self,
        names: tuple[str, ...] | None = None,
        thresholds: PatternThresholds | None = None,
        sample: int = 16,
    ) -> None:
        super().__init__(names)
        self.thresholds, self.sample = thresholds or PatternThresholds(), sample
        self._agreement: Counter[tuple[str, int, int]] = Counter()  # (stack, by rule, by network)

    def wanted(self, examples: Sequence[int]) -> Wanted:
        sampled = tuple(i for i, example in enumerate(examples) if example < self.sample)
        return Wanted(self.quantities, pictured=sampled)

    def measure(self, attention: Quantities) -> Tensor | None:
        """[sequence, head, 6]: the scores; the patterns are added in `_settle`."""
        if not attention.within_one_text:
            return None
        scores = scores_of(attention)
        self._classify(attention, scores)
        return scores

    def _settle(self, site: Site) -> None:
        # The rule has many small steps, so it is faster to apply it once to many chunks.
        scores = torch.cat(self._pending[site])
        patterns = patterns_by_rule(scores, self.thresholds)
        self._pending[site] = [torch.cat([patterns, scores], dim=-1)]
        super()._settle(site)

    def _classify(self, attention: Quantities, scores: Tensor) -> None:
        sampled = [i for i, example in enumerate(attention.examples) if example < self.sample]
        if not sampled:
            return
        for sequence in sampled:
            key = attention.key
            special = key.special[sequence][key.real[sequence]]
            by_network = classify(attention.picture_of(sequence), len(special), special)
            by_rule = patterns_by_rule(scores[sequence], self.thresholds).argmax(dim=-1)
            pairs = zip(by_rule.tolist(), by_network.tolist(), strict=True)
            self._agreement.update((attention.site.stack, rule, network) for rule, network in pairs)

    def merge(self, other: Self) -> Self:
        self._agreement.update(other._agreement)
        return super().merge(other)

    def tables(self) -> dict[str, list[TableRow]]:
        """pattern_agreement: number of sampled maps by stack, pattern of the rule and pattern of the network."""
        stacks = sorted({stack for stack, _, _ in self._agreement}, key=STACKS.index)
        rows: list[TableRow] = [
            {"stack": stack, "rule": rule, "network": name, "count": self._agreement[stack, i, j]}
            for stack in stacks
            for i, rule in enumerate(PATTERNS)
            for j, name in enumerate(PATTERNS)
        ]
        return {"pattern_agreement": rows} if rows else {}


@dataclass(frozen=True)
class _Lengths:
    """Quantities of the tokens of some sequences that the scores need; computed once for all layers.

    unless_special  [sequence, 1], added to a score: 0, or NaN for a sequence without special tokens
    unless_pair     [sequence, 1], added to a score: 0, or NaN for a sequence with a single segment
    quarters        [sequence, 1, quarter, 1]: number of rows of each quarter; infinity for an empty one
    near            [sequence, 1, offset]: for the offsets within NEAR_TOKENS, mass under twice uniform attention;
                    infinity for offsets that are not near in this sequence
    expected        [sequence, 1, query]: share of the own segment in the content keys that a row can see
    content         [sequence, 1, query]: 1 at content tokens
    """

    unless_special: Tensor
    unless_pair: Tensor
    quarters: Tensor
    near: Tensor
    expected: Tensor
    content: Tensor


@lru_cache(maxsize=64)
def _lengths_of(tokens: Tokens, is_causal: bool, dtype: torch.dtype) -> _Lengths:
    segments = segments_of(tokens, dtype)
    own = segments.own
    visible = own.cumsum(dim=-1) if is_causal else own.sum(dim=-1, keepdim=True)
    total = visible.sum(dim=1, keepdim=True).clamp_min(1.0)
    zeros = torch.zeros(len(own), 1, dtype=dtype, device=own.device)
    lengths = tokens.real.sum(dim=-1, keepdim=True)
    cuts = torch.arange(QUARTERS + 1, device=own.device) * lengths // QUARTERS
    quarters = cuts.diff(dim=-1).to(dtype)
    offsets = torch.arange(-NEAR_TOKENS, NEAR_TOKENS + 1, device=own.device).abs()
    furthest = (lengths // NEAR_PART).clamp(1, NEAR_TOKENS).minimum(lengths - 1)
    twice_uniform = 2 * (lengths - offsets).to(dtype) / lengths
    return _Lengths(
        unless_special=zeros.masked_fill(~tokens.special.any(dim=-1, keepdim=True), torch.nan),
        unless_pair=zeros.masked_fill(~segments.is_pair[:, None], torch.nan),
        quarters=quarters.masked_fill(quarters == 0, torch.inf)[:, None, :, None],
        near=twice_uniform.masked_fill(offsets > furthest, torch.inf)[:, None],
        expected=(own * visible).sum(dim=1, keepdim=True) / total,
        content=tokens.content[:, None].to(dtype),
    )


def scores_of(attention: Quantities) -> Tensor:
    """[sequence, head, 6]: column, band, block, block beyond offset, vertical, diagonal.

    NaN if a sequence has no special tokens (vertical), or no second segment (the two block-scores).
    """
    is_causal = attention.site.stack == "decoder"
    of_tokens = _lengths_of(attention.key, is_causal, attention.row_max.dtype)
    count = attention.lengths.to(attention.row_max.dtype)[:, None]
    vertical = attention.class_mass[..., SPECIAL] + of_tokens.unless_special
    blocks = [torch.full_like(vertical, torch.nan)] * 2
    if bool(of_tokens.unless_pair.isfinite().any()):
        blocks = _blocks(attention, of_tokens)
    scores = [
        _column(attention, of_tokens, count),
        _band(attention, of_tokens, count),
        *blocks,
        vertical,
        attention.near_content_mass / count,
    ]
    return torch.stack([score.to(vertical.dtype) for score in scores], dim=-1)


def _column(attention: Quantities, of_tokens: _Lengths, count: Tensor) -> Tensor:
    means = attention.quarter_mass / of_tokens.quarters
    means = means.masked_fill(of_tokens.quarters.isinf(), torch.inf)
    excess = (means.amin(dim=2) - 1 / count[..., None]).clamp_min_(0.0)
    column: Tensor = excess.sum(dim=-1)
    return column


def _band(attention: Quantities, of_tokens: _Lengths, count: Tensor) -> Tensor:
    middle = attention.query.length - 1
    side = min(NEAR_TOKENS, middle)
    mass = attention.offset_mass[..., middle - side : middle + side + 1]
    twice_uniform = of_tokens.near[..., NEAR_TOKENS - side : NEAR_TOKENS + side + 1]
    return (mass - twice_uniform).clamp_min_(0.0).sum(dim=-1) / count


def _blocks(attention: Quantities, of_tokens: _Lengths) -> list[Tensor]:
    """block-score and block-beyond-offset, both [sequence, head]."""
    mass = attention.segment_mass  # [sequence, head, segment, query]
    own = segments_of(attention.key, mass.dtype).own[:, None]
    content = mass.sum(dim=2)
    within = (mass * own).sum(dim=2)
    is_counted = (content >= LEAST_MASS) * of_tokens.content
    excess = within / content.clamp_min(LEAST_MASS) - of_tokens.expected
    block = (excess * is_counted).sum(dim=-1) / is_counted.sum(dim=-1)
    beyond = within.sum(dim=-1) - attention.alike_mass
    beyond = beyond / (content * of_tokens.content).sum(dim=-1)
    return [block + of_tokens.unless_pair, beyond + of_tokens.unless_pair]


def patterns_by_rule(scores: Tensor, thresholds: PatternThresholds) -> Tensor:
    """[…, 5]: 1 at the pattern of a map, in the order of PATTERNS, else 0. scores […, 6], NaN where undefined."""
    columns, band, excess, beyond = scores[..., :4].nan_to_num(nan=0.0).add(ROUNDING).unbind(dim=-1)
    is_beside = band >= thresholds.beside
    is_faint = (columns < thresholds.faint) & ~is_beside
    block = (excess >= thresholds.excess) & (beyond >= thresholds.beyond) & is_faint
    has_columns = (columns >= thresholds.columns) & ~block
    both, vertical = has_columns & is_beside, has_columns & ~is_beside
    diagonal = (band >= thresholds.band) & ~has_columns & ~block
    heterogeneous = ~(has_columns | diagonal | block)
    patterns = [vertical, diagonal, both, block, heterogeneous]
    return torch.stack(patterns, dim=-1).to(scores.dtype)
