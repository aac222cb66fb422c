"""Which of Kovaleva's five patterns is each map: vertical, diagonal, both, block, or none of these?

Six scores of one map (a head and a sequence), and a rule on four of them; then, for each head, the share of maps of
each pattern. A head has a distribution, not a label.

    column-score     what the keys' columns have beyond uniform in every quarter of the rows: of each key the mean
                     weight over the quarter of the rows that looks at it least, less 1/n where that is positive; summed
    band-score       what the diagonals near the main one have beyond twice uniform: of each, the sum of its weights
                     less 2/n for each of its cells, where that is positive; summed, over n. Near are offsets of at most
                     8 tokens and an eighth of the sequence (at least 1)
    block-score      of a content row's mass on content keys, the share on its own segment, less the share that uniform
                     attention would give; mean over the content rows that have 1e-6 or more of such mass
    block-beyond-offset  of all content rows' mass on content keys, the share on the own segment, less the share that
                     the same mass by offset would give if it were the same everywhere. A head that looks at what
                     is near stays in its segment without knowing of it: it has a block-score, and 0 here. Rows of
                     special tokens count on neither side
    vertical-score   mass on special tokens, mean over the rows
    diagonal-score   mass on content keys at offset -1, 0 and +1, mean over the rows

    block              block >= 0.3, beyond-offset >= 0.1, column < 0.25, band < 0.1  (excess, beyond, faint, beside)
    vertical           column >= 0.08 and band < 0.1                                 (columns, beside)
    vertical-diagonal  column >= 0.08 and band >= 0.1                                (columns, beside)
    diagonal           column < 0.08 and band >= 0.25                                (columns, band)
    heterogeneous      none of these

The first that applies. The thresholds are this project's, chosen by looking at maps: Kovaleva et al. 2019 trained a
network on maps labelled by hand, and released neither. Vertical-score and diagonal-score are not in the rule: an eye
looks for lines that stand out, and sees a column with a fifth of the mass, on whatever token, and a band of any width.
A score that is below a threshold by 1e-6 or less reaches it: that much is rounding.

A sequence without special tokens has no vertical-score, one with a single segment no block-score and is never a block.
In a causal stack uniform means uniform over the tokens up to the row, so that rows of the first segment have
an excess of 0 and block-scores are lower; offset +1 has no mass. Uniform is 1/n in the first two scores also there.

As a second opinion, the maps of the first examples are shown to a small network (`pattern_classifier`), and the table
`pattern_agreement` counts what each of the two said.
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
    """What the rule compares the scores with; where, is said above."""

    columns: float = 0.08
    band: float = 0.25
    beside: float = 0.1
    excess: float = 0.3
    beyond: float = 0.1
    faint: float = 0.25


def _maps(short: str, long: str) -> Definition:
    return Definition("share", f"Maps {short}", f"The share of maps {long}.")


class PatternClasses(PerSequence):
    """sample: how many examples, from the first, the network also looks at; 0 for none."""

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
        # (stack, rule's pattern, network's pattern)
        self._agreement: Counter[tuple[str, int, int]] = Counter()

    def measure(self, attention: Attention) -> Tensor | None:
        """The six scores; their patterns come in when they are settled."""
        if not attention.within_one_text:
            return None
        scores = scores_of(attention)
        self._ask_the_network(attention, scores)
        return scores

    def _settle(self, site: Site) -> None:
        # The rule once for many chunks: its many steps are all small
        scores = torch.cat(self._pending[site])
        self._pending[site] = [
            torch.cat([patterns_by_rule(scores, self.thresholds), scores], dim=-1)
        ]
        super()._settle(site)

    def _ask_the_network(self, attention: Attention, scores: Tensor) -> None:
        sampled = [i for i, example in enumerate(attention.examples) if example < self.sample]
        if not sampled:
            return
        heads = attention.weights.shape[1]
        special = attention.key.special[sampled].repeat_interleave(heads, dim=0)
        said = classify(attention.weights[sampled].flatten(0, 1), special)
        by_rule = patterns_by_rule(scores[sampled].flatten(0, 1), self.thresholds).argmax(dim=-1)
        pairs = zip(by_rule.tolist(), said.tolist(), strict=True)
        self._agreement.update((attention.site.stack, rule, network) for rule, network in pairs)

    def merge(self, other: Self) -> Self:
        self._agreement.update(other._agreement)
        return super().merge(other)

    def tables(self) -> dict[str, list[TableRow]]:
        """pattern_agreement: how many of the sampled maps the rule and the network call what, for each stack."""
        stacks = sorted({stack for stack, _, _ in self._agreement}, key=STACKS.index)
        rows: list[TableRow] = [
            {"stack": stack, "rule": rule, "network": name, "count": self._agreement[stack, i, j]}
            for stack in stacks
            for i, rule in enumerate(PATTERNS)
            for j, name in enumerate(PATTERNS)
        ]
        return {"pattern_agreement": rows} if rows else {}


@dataclass(frozen=True)
class _Places:
    """Where to look in the maps of some sequences: worked out once for all layers.

    unless_special, unless_pair  [sequence, 1]: 0, or NaN for a sequence without special tokens, of one segment
    content       [sequence, token, 1]: 1 where a token is content
    own           [sequence, segment, token]: 1 where a token is content of the first, of the second text
    expected      [sequence, 1, token]: the share of its own segment in the content that a row can see
    has_pairs     whether there is any pair among the sequences
    columns       (sequence, key) of the special keys
    cells         [special key, query, 2]: which cells of its column are near the diagonal; `alike` of their offsets
    row_cells     [special query, key, 1]: `alike` of the offsets in its row, 0 at special keys
    alike         [sequence, offset, 1]: the share of pairs of content tokens at this offset that are of one segment
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
def _places(tokens: Tokens, is_causal: bool, dtype: torch.dtype) -> _Places:
    segments = torch.zeros_like(tokens.real) if tokens.segments is None else tokens.segments
    own = torch.stack([tokens.content & (segments == 0), tokens.content & (segments > 0)], dim=1)
    is_pair = own.any(dim=-1).all(dim=-1, keepdim=True)
    own = own.to(dtype)
    seen = own.cumsum(dim=-1) if is_causal else own.sum(dim=-1, keepdim=True)
    expected = (own * seen).sum(dim=1, keepdim=True) / seen.sum(dim=1, keepdim=True).clamp_min(1.0)
    unless_special, unless_pair = (
        torch.zeros(len(own), 1, dtype=dtype, device=own.device).masked_fill(~there, torch.nan)
        for there in (tokens.special.any(dim=-1, keepdim=True), is_pair)
    )
    sequence, key = tokens.special.nonzero(as_tuple=True)
    alike = _alike(own)
    offset = key[:, None] - torch.arange(tokens.length, device=key.device)
    cells = torch.stack(
        [(offset.abs() <= 1).to(dtype), alike[sequence[:, None], offset + tokens.length - 1]],
        dim=-1,
    )
    row_cells = alike[sequence[:, None], tokens.length - 1 - offset] * tokens.content[sequence]
    return _Places(
        unless_special,
        unless_pair,
        tokens.content[..., None].to(dtype),
        own,
        expected,
        bool(is_pair.any()),
        (sequence, key),
        cells,
        row_cells[..., None],
        alike[..., None],
    )


def _alike(own: Tensor) -> Tensor:
    """[sequence, offset]: of the pairs of content tokens at an offset, the share within one segment."""
    return _pairs(own) / _pairs(own.sum(dim=1, keepdim=True)).clamp_min(1.0)


def _pairs(marked: Tensor) -> Tensor:
    """[sequence, offset]: how many pairs of tokens at an offset are marked in one row of [sequence, row, token]."""
    length = marked.shape[-1]
    # [sequence, row, offset, token]
    shifted = pad(marked, (length - 1, length - 1)).unfold(-1, length, 1)
    return (shifted @ marked[..., None]).sum(dim=(1, 3))


@lru_cache(maxsize=256)
def _near(length: int, dtype: torch.dtype, device: torch.device) -> tuple[slice, Tensor]:
    """Which offsets are near, and [offset]: the mass that twice uniform attention would put there."""
    furthest = min(NEAR_TOKENS, max(length // NEAR_PART, 1), length - 1)
    cells = length - torch.arange(-furthest, furthest + 1, dtype=dtype, device=device).abs()
    return slice(length - 1 - furthest, length + furthest), 2 * cells / length


@lru_cache(maxsize=256)
def _quarters(length: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """[quarter, row]: what to multiply rows by for their means over each quarter; no quarter is empty."""
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
    places = _places(attention.key, is_causal, attention.weights.dtype)
    vertical = attention.class_mass[..., SPECIAL] + places.unless_special
    diagonal, by_offset = _without_special(attention, places)
    blocks = (
        _blocks(attention, places, by_offset)
        if places.has_pairs
        else [torch.full_like(vertical, torch.nan)] * 2
    )
    return torch.stack([_column(attention), _band(attention), *blocks, vertical, diagonal], dim=-1)


def _column(attention: Attention) -> Tensor:
    means = (
        _quarters(attention.length, attention.weights.dtype, attention.weights.device)
        @ attention.weights
    )
    return means.amin(dim=2).sub_(1 / attention.length).clamp_min_(0.0).sum(dim=-1)


def _band(attention: Attention) -> Tensor:
    offsets, twice_uniform = _near(
        attention.length, attention.weights.dtype, attention.weights.device
    )
    return (attention.offset_mass[..., offsets] - twice_uniform).clamp_min_(0.0).sum(
        dim=-1
    ) / attention.length


def _without_special(attention: Attention, places: _Places) -> tuple[Tensor, Tensor]:
    """Two sums over the cells of content keys: the diagonal-score, and the mass that offsets put in the own segment.

    Sums over all cells, less those over the columns of special keys, which are few; of the second also less those over
    the rows of special tokens.
    """
    middle = attention.length - 1
    near = attention.offset_mass[..., max(middle - 1, 0) : middle + 2].sum(dim=-1, keepdim=True)
    sums = torch.cat([near, attention.offset_mass @ places.alike], dim=-1)
    sequence, key = places.columns
    special = torch.bmm(attention.weights[sequence, :, :, key], places.cells)
    diagonal, by_offset = sums.index_add_(0, sequence, special, alpha=-1).unbind(dim=-1)
    if places.has_pairs:
        # [special query, head]
        rows = torch.bmm(attention.weights[sequence, :, key], places.row_cells)[..., 0]
        by_offset = by_offset.index_add(0, sequence, rows, alpha=-1)
    return diagonal / attention.length, by_offset


def _blocks(attention: Attention, places: _Places, by_offset: Tensor) -> list[Tensor]:
    """Block, and block beyond offset."""
    own = places.own[:, None]
    # The thin matrix on the left: the other way round takes five times as long.
    mass = own @ attention.weights.transpose(-1, -2)  # [sequence, head, segment, query]
    content = mass.sum(dim=2)
    within = (mass * own).sum(dim=2)
    is_content = places.content.transpose(1, 2)
    counted = (content >= LEAST_MASS) * is_content
    excess = ((within / content.clamp_min(LEAST_MASS) - places.expected) * counted).sum(dim=-1)
    block = excess / counted.sum(dim=-1)
    beyond = (within.sum(dim=-1) - by_offset) / (content @ places.content)[..., 0]
    return [block + places.unless_pair, beyond + places.unless_pair]


def patterns_by_rule(scores: Tensor, thresholds: PatternThresholds) -> Tensor:
    """[…, 5]: 1 at the pattern of a map, in the order of PATTERNS, else 0; of scores […, 6], NaN where undefined."""
    columns, band, excess, beyond = scores[..., :4].nan_to_num(nan=0.0).add(ROUNDING).unbind(dim=-1)
    is_beside = band >= thresholds.beside
    block = (
        (excess >= thresholds.excess)
        & (beyond >= thresholds.beyond)
        & (columns < thresholds.faint)
        & ~is_beside
    )
    has_columns = (columns >= thresholds.columns) & ~block
    both, vertical = has_columns & is_beside, has_columns & ~is_beside
    diagonal = (band >= thresholds.band) & ~has_columns & ~block
    none = ~(has_columns | diagonal | block)
    return torch.stack([vertical, diagonal, both, block, none], dim=-1).to(scores.dtype)
