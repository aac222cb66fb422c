"""Which of Kovaleva's five patterns is each map: vertical, diagonal, both, block or heterogeneous?

Six scores of one map (a head and a sequence), and a rule on four of them; then, for each head, the share of maps of
each pattern. A head has a distribution, not a label.

    column-score     mass of columns beyond uniform in every quarter of the rows: for each key the mean weight over the
                     quarter of the rows that attends to it least, less 1/n, if that is positive; summed
    band-score       mass of the diagonals near the main one beyond twice uniform: for each, the sum of its weights less
                     2/n for each of its cells, if that is positive; summed, over n. Near are offsets of at most 8
                     tokens and an eighth of the sequence (at least 1)
    block-score      of a content row's mass on content keys, the share on its own segment, less the share under uniform
                     attention; mean over the content rows that have 1e-6 or more of such mass
    block-beyond-offset  of all content rows' mass on content keys, the share on the own segment, less the share of a
                     head with the same mass by offset at every position. A head that attends to near tokens stays
                     in its segment without regard to it: it has a block-score, and 0 here. Rows of special tokens are
                     left out
    vertical-score   mass on special tokens, mean over the rows
    diagonal-score   mass on content keys at offset -1, 0 and +1, mean over the rows

    block              block >= 0.3, beyond-offset >= 0.1, column < 0.25, band < 0.1  (excess, beyond, faint, beside)
    vertical           column >= 0.08 and band < 0.1                                 (columns, beside)
    vertical-diagonal  column >= 0.08 and band >= 0.1                                (columns, beside)
    diagonal           column < 0.08 and band >= 0.25                                (columns, band)
    heterogeneous      none of these

The first that applies. The thresholds are this project's, chosen by inspection of maps: Kovaleva et al. 2019 trained a
network on maps labelled by hand, and released neither. Vertical-score and diagonal-score are not in the rule: visually
a column with a fifth of the mass stands out on any token, and so does a band of any width.
A score that is below a threshold by 1e-6 or less reaches it, to allow for rounding.

A sequence without special tokens has no vertical-score, one with a single segment no block-score and is never a block.
In a causal stack uniform means uniform over the tokens up to the row, so that rows of the first segment have
an excess of 0 and block-scores are lower; offset +1 has no mass. Uniform is 1/n in the first two scores also there.

As a second opinion, a small network (`pattern_classifier`) classifies the maps of the first examples, and the table
`pattern_agreement` counts the results of both.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Self

import torch
from torch import Tensor
from torch.nn.functional import pad

from headscope.heads import Site
from headscope.model.attention import Attention
from headscope.model.tokens import CLASSES, Tokens
from headscope.statistics.base import Definition, PerSequence
from headscope.statistics.pattern_classifier import PATTERNS, classify
from headscope.tables import STACKS, TableRow

ROUNDING = 1e-6
LEAST_MASS = 1e-6
QUARTERS = 4
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
    return Definition("share", f"Maps {short}", f"The share of maps {long}.")


class PatternClasses(PerSequence):
    """sample: number of examples, from the first, that the network classifies as well."""

    definitions = {
        "pattern-vertical": _maps("that are vertical", "in which a few columns stand out"),
        "pattern-diagonal": _maps(
            "that are diagonal", "in which a band along the diagonal stands out"
        ),
        "pattern-vertical-diagonal": _maps(
            "that are vertical and diagonal", "that are vertical and diagonal at once"
        ),
        "pattern-block": _maps(
            "that are blocks", "whose attention stays within one of two segments"
        ),
        "pattern-heterogeneous": _maps(
            "without a simple pattern", "that are none of the other four patterns"
        ),
        "column-score": Definition(
            "share",
            "Column score",
            "Mass beyond uniform that keys get in every quarter of the query rows.",
        ),
        "band-score": Definition(
            "share", "Band score", "Mass beyond twice uniform on the diagonals near the main one."
        ),
        "block-score": Definition(
            "share",
            "Block score",
            "Share of content mass in the row's own segment beyond that of uniform attention.",
            is_signed=True,
        ),
        "block-beyond-offset": Definition(
            "share",
            "Block score beyond locality",
            "Share of content mass in the row's own segment beyond that of a head with the same mass by offset.",
            is_signed=True,
        ),
        "vertical-score": Definition(
            "share",
            "Vertical score",
            "Mass on special tokens, averaged over the query rows of a map.",
        ),
        "diagonal-score": Definition(
            "share",
            "Diagonal score",
            "Mass on content tokens at offset -1, 0 and +1, averaged over the query rows.",
        ),
    }

    def __init__(
        self,
        names: tuple[str, ...] | None = None,
        thresholds: PatternThresholds | None = None,
        sample: int = 16,
    ) -> None:
        super().__init__(names)
        self.thresholds, self.sample = thresholds or PatternThresholds(), sample
        self._agreement: Counter[tuple[str, int, int]] = Counter()  # (stack, by rule, by network)

    def measure(self, attention: Attention) -> Tensor | None:
        """The six scores; patterns are added when they are settled."""
        if not attention.within_one_text:
            return None
        scores = scores_of(attention)
        self._classify(attention, scores)
        return scores

    def _settle(self, site: Site) -> None:
        # The rule is applied once for many chunks: its many steps are all small
        scores = torch.cat(self._pending[site])
        patterns = patterns_by_rule(scores, self.thresholds)
        self._pending[site] = [torch.cat([patterns, scores], dim=-1)]
        super()._settle(site)

    def _classify(self, attention: Attention, scores: Tensor) -> None:
        sampled = [i for i, example in enumerate(attention.examples) if example < self.sample]
        if not sampled:
            return
        heads = attention.weights.shape[1]
        special = attention.key.special[sampled].repeat_interleave(heads, dim=0)
        by_network = classify(attention.weights[sampled].flatten(0, 1), special)
        by_rule = patterns_by_rule(scores[sampled].flatten(0, 1), self.thresholds).argmax(dim=-1)
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
class _Positions:
    """Positions of special tokens and segments in some sequences, computed once for all layers.

    unless_special, unless_pair  [sequence, 1]: 0, or NaN for a sequence without special tokens, of one segment
    content       [sequence, token, 1]: 1 at content tokens
    own           [sequence, segment, token]: 1 at content of the first, of the second text
    expected      [sequence, 1, token]: share of the own segment in the content that a row can see
    has_pairs     whether any of the sequences is a pair
    columns       (sequence, key) of the special keys
    cells         [special key, query, 2]: whether a cell of its column is near the diagonal; `alike` of its offset
    row_cells     [special query, key, 1]: `alike` of the offsets in its row, 0 at special keys
    alike         [sequence, offset, 1]: share of pairs of content tokens at this offset that are of one segment
    """

    unless_special: Tensor
    unless_pair: Tensor
    content: Tensor
    own: Tensor
    expected: Tensor
    has_pairs: bool
    columns: tuple[Tensor, Tensor]
    cells: Tensor
    row_cells: Tensor
    alike: Tensor


@lru_cache(maxsize=64)
def _positions(tokens: Tokens, is_causal: bool, dtype: torch.dtype) -> _Positions:
    segments = torch.zeros_like(tokens.real) if tokens.segments is None else tokens.segments
    own = torch.stack([tokens.content & (segments == 0), tokens.content & (segments > 0)], dim=1)
    is_pair = own.any(dim=-1).all(dim=-1, keepdim=True)
    own = own.to(dtype)
    visible = own.cumsum(dim=-1) if is_causal else own.sum(dim=-1, keepdim=True)
    total = visible.sum(dim=1, keepdim=True).clamp_min(1.0)
    expected = (own * visible).sum(dim=1, keepdim=True) / total
    zeros = torch.zeros(len(own), 1, dtype=dtype, device=own.device)
    has_special = tokens.special.any(dim=-1, keepdim=True)
    sequence, key = tokens.special.nonzero(as_tuple=True)
    alike = _alike(own)
    offset = key[:, None] - torch.arange(tokens.length, device=key.device)
    in_column = alike[sequence[:, None], offset + tokens.length - 1]
    in_row = alike[sequence[:, None], tokens.length - 1 - offset] * tokens.content[sequence]
    return _Positions(
        unless_special=zeros.masked_fill(~has_special, torch.nan),
        unless_pair=zeros.masked_fill(~is_pair, torch.nan),
        content=tokens.content[..., None].to(dtype),
        own=own,
        expected=expected,
        has_pairs=bool(is_pair.any()),
        columns=(sequence, key),
        cells=torch.stack([(offset.abs() <= 1).to(dtype), in_column], dim=-1),
        row_cells=in_row[..., None],
        alike=alike[..., None],
    )


def _alike(own: Tensor) -> Tensor:
    """[sequence, offset]: share of the pairs of content tokens at an offset that are within one segment."""
    return _pairs(own) / _pairs(own.sum(dim=1, keepdim=True)).clamp_min(1.0)


def _pairs(mask: Tensor) -> Tensor:
    """[sequence, offset]: number of pairs of tokens at an offset that are both 1 in a row of [sequence, row, token]."""
    length = mask.shape[-1]
    # [sequence, row, offset, token]
    shifted = pad(mask, (length - 1, length - 1)).unfold(-1, length, 1)
    return (shifted @ mask[..., None]).sum(dim=(1, 3))


@lru_cache(maxsize=256)
def _near(length: int, dtype: torch.dtype, device: torch.device) -> tuple[slice, Tensor]:
    """The near offsets, and [offset]: their mass under twice uniform attention."""
    furthest = min(NEAR_TOKENS, max(length // NEAR_PART, 1), length - 1)
    cells = length - torch.arange(-furthest, furthest + 1, dtype=dtype, device=device).abs()
    return slice(length - 1 - furthest, length + furthest), 2 * cells / length


@lru_cache(maxsize=256)
def _quarters(length: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """[quarter, row]: the matrix that averages rows over each quarter; empty quarters are left out."""
    cuts = [length * i // QUARTERS for i in range(QUARTERS + 1)]
    means = torch.zeros(QUARTERS, length, dtype=dtype, device=device)
    for quarter, (i, j) in enumerate(pairwise(cuts)):
        means[quarter, i:j] = 1 / max(j - i, 1)
    return means[means.any(dim=-1)]


def scores_of(attention: Attention) -> Tensor:
    """[sequence, head, 6]: column, band, block, block beyond offset, vertical, diagonal.

    NaN where a sequence has no special tokens, or no second segment.
    """
    is_causal = attention.site.stack == "decoder"
    positions = _positions(attention.key, is_causal, attention.weights.dtype)
    vertical = attention.class_mass[..., SPECIAL] + positions.unless_special
    diagonal, by_offset = _without_special(attention, positions)
    blocks = [torch.full_like(vertical, torch.nan)] * 2
    if positions.has_pairs:
        blocks = _blocks(attention, positions, by_offset)
    return torch.stack([_column(attention), _band(attention), *blocks, vertical, diagonal], dim=-1)


def _column(attention: Attention) -> Tensor:
    weights = attention.weights
    means = _quarters(attention.length, weights.dtype, weights.device) @ weights
    return means.amin(dim=2).sub_(1 / attention.length).clamp_min_(0.0).sum(dim=-1)


def _band(attention: Attention) -> Tensor:
    weights = attention.weights
    offsets, twice_uniform = _near(attention.length, weights.dtype, weights.device)
    excess = (attention.offset_mass[..., offsets] - twice_uniform).clamp_min_(0.0)
    return excess.sum(dim=-1) / attention.length


def _without_special(attention: Attention, positions: _Positions) -> tuple[Tensor, Tensor]:
    """Two sums over the cells of content keys: the diagonal-score, and the mass in the own segment expected by offset.

    Sums over all cells, less those over the columns of special keys, which are few; the second also less those over
    the rows of special tokens.
    """
    middle = attention.length - 1
    near = attention.offset_mass[..., max(middle - 1, 0) : middle + 2].sum(dim=-1, keepdim=True)
    sums = torch.cat([near, attention.offset_mass @ positions.alike], dim=-1)
    sequence, key = positions.columns
    special = torch.bmm(attention.weights[sequence, :, :, key], positions.cells)
    diagonal, by_offset = sums.index_add_(0, sequence, special, alpha=-1).unbind(dim=-1)
    if positions.has_pairs:
        # [special query, head]
        rows = torch.bmm(attention.weights[sequence, :, key], positions.row_cells)[..., 0]
        by_offset = by_offset.index_add(0, sequence, rows, alpha=-1)
    return diagonal / attention.length, by_offset


def _blocks(attention: Attention, positions: _Positions, by_offset: Tensor) -> list[Tensor]:
    """The block-score, and block-beyond-offset."""
    own = positions.own[:, None]
    # The thin matrix is on the left: the other order takes five times as long.
    mass = own @ attention.weights.transpose(-1, -2)  # [sequence, head, segment, query]
    content = mass.sum(dim=2)
    within = (mass * own).sum(dim=2)
    is_content = positions.content.transpose(1, 2)
    is_counted = (content >= LEAST_MASS) * is_content
    excess = within / content.clamp_min(LEAST_MASS) - positions.expected
    block = (excess * is_counted).sum(dim=-1) / is_counted.sum(dim=-1)
    beyond = (within.sum(dim=-1) - by_offset) / (content @ positions.content)[..., 0]
    return [block + positions.unless_pair, beyond + positions.unless_pair]


def patterns_by_rule(scores: Tensor, thresholds: PatternThresholds) -> Tensor:
    """[…, 5]: 1 at the pattern of a map, in the order of PATTERNS, else 0. scores […, 6], NaN where undefined."""
    columns, band, excess, beyond = scores[..., :4].nan_to_num(nan=0.0).add(ROUNDING).unbind(dim=-1)
    is_beside = band >= thresholds.beside
    is_faint = (columns < thresholds.faint) & ~is_beside
    block = (excess >= thresholds.excess) & (beyond >= thresholds.beyond) & is_faint
    has_columns = (columns >= thresholds.columns) & ~block
    both, vertical = has_columns & is_beside, has_columns & ~is_beside
    diagonal = (band >= thresholds.band) & ~has_columns & ~block
    none = ~(has_columns | diagonal | block)
    return torch.stack([vertical, diagonal, both, block, none], dim=-1).to(scores.dtype)
