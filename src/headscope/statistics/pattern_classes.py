"""Which of Kovaleva's five patterns is each map: vertical, diagonal, both, block, or none of these?

Three scores of one map (a head and a sequence), and a rule on them; then, for each head, the share of maps of each
pattern. A head has a distribution, not a label.

    vertical-score   mass on special tokens, mean over the rows
    diagonal-score   mass on content keys at offset -1, 0 and +1, mean over the rows
    block-score      of a content row's mass on content keys, the share on its own segment, less the share that uniform
                     attention would give; mean over the content rows that have 1e-6 or more of such mass
    block-beyond-offset  of all content rows' mass on content keys, the share on the own segment, less the share that
                     the map's own mass by offset would give if it were the same everywhere. A head that looks at what
                     is near stays in its segment without knowing of it: it has a block-score, and 0 here

    vertical           vertical >= 0.5 and diagonal < 0.25                       (strong, weak)
    diagonal           diagonal >= 0.5 and vertical < 0.25                       (strong, weak)
    vertical-diagonal  vertical + diagonal >= 0.6 and each >= 0.2                (together, each)
    block              none of these, block >= 0.3 and beyond-offset >= 0.1      (excess, beyond)
    heterogeneous      none of these

The thresholds are this project's: Kovaleva et al. 2019 trained a network on maps labelled by hand, and
released neither. A score that is below a threshold by 1e-6 or less reaches it: that much is rounding.

A sequence without special tokens has no vertical-score, one with a single segment no block-score; neither can have the
pattern. In a causal stack uniform means uniform over the tokens up to the row, so that rows of the first segment have
an excess of 0 and block-scores are lower; offset +1 has no mass.

As a second opinion, the maps of the first examples are shown to a small network (`pattern_classifier`), and the table
`pattern_agreement` counts what each of the two said.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self

import torch
from torch import Tensor

from headscope.heads import Site
from headscope.model.attention import Attention
from headscope.model.tokens import CLASSES, Tokens
from headscope.statistics.base import Definition, PerSequence
from headscope.statistics.pattern_classifier import PATTERNS, classify
from headscope.tables import STACKS

ROUNDING = 1e-6
LEAST_MASS = 1e-6
SPECIAL = CLASSES.index("special")


@dataclass(frozen=True)
class Thresholds:
    """What the rule compares the scores with; where, is said above."""

    strong: float = 0.5
    weak: float = 0.25
    together: float = 0.6
    each: float = 0.2
    excess: float = 0.3
    beyond: float = 0.1


class PatternClasses(PerSequence):
    """sample: how many examples, from the first, the network also looks at; 0 for none."""

    definitions = {
        "pattern-vertical": Definition(
            "share", "Maps that are vertical", "The share of maps whose attention goes to special tokens."
        ),
        "pattern-diagonal": Definition(
            "share", "Maps that are diagonal", "The share of maps whose attention goes to the token and its neighbours."
        ),
        "pattern-vertical-diagonal": Definition(
            "share", "Maps that are vertical and diagonal", "The share of maps that are vertical and diagonal at once."
        ),
        "pattern-block": Definition(
            "share", "Maps that are blocks", "The share of maps whose attention stays within one of two segments."
        ),
        "pattern-heterogeneous": Definition(
            "share", "Maps without a simple pattern", "The share of maps that are none of the other four patterns."
        ),
        "vertical-score": Definition(
            "share", "Vertical score", "Mass on special tokens, averaged over the query rows of a map."
        ),
        "diagonal-score": Definition(
            "share", "Diagonal score", "Mass on content tokens at offset -1, 0 and +1, averaged over the query rows."
        ),
        "block-score": Definition(
            "share", "Block score", "Share of content mass in the row's own segment beyond that of uniform attention."
        ),
        "block-beyond-offset": Definition(
            "share",
            "Block score beyond locality",
            "Share of content mass in the row's own segment beyond that of a head with the same mass by offset.",
        ),
    }

    def __init__(
        self, names: tuple[str, ...] | None = None, thresholds: Thresholds | None = None, sample: int = 16
    ) -> None:
        super().__init__(names)
        self.thresholds, self.sample = thresholds or Thresholds(), sample
        self._agreement: Counter[tuple[str, int, int]] = Counter()  # (stack, rule's pattern, network's pattern)

    def measure(self, attention: Attention) -> Tensor | None:
        """The four scores; their patterns come in when they are settled."""
        if not attention.within_one_text:
            return None
        scores = scores_of(attention)
        self._ask_the_network(attention, scores)
        return scores

    def _settle(self, site: Site) -> None:
        scores = torch.cat(self._pending[site])  # the rule once for many chunks: its many steps are all small
        self._pending[site] = [torch.cat([patterns_by_rule(scores, self.thresholds), scores], dim=-1)]
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

    def tables(self) -> dict[str, list[dict[str, Any]]]:
        """pattern_agreement: how many of the sampled maps the rule and the network call what, for each stack."""
        stacks = sorted({stack for stack, _, _ in self._agreement}, key=STACKS.index)
        rows = [
            {"stack": stack, "rule": PATTERNS[i], "network": PATTERNS[j], "count": self._agreement[stack, i, j]}
            for stack in stacks
            for i in range(len(PATTERNS))
            for j in range(len(PATTERNS))
        ]
        return {"pattern_agreement": rows} if rows else {}


@dataclass(frozen=True)
class _Places:
    """Where to look in the maps of some sequences: worked out once for all layers.

    near_special  (sequence, query, key) of the cells near the diagonal whose key is special, one index tensor each
    unless_special, unless_pair  [sequence, 1]: 0, or NaN for a sequence without special tokens, of one segment
    own           [sequence, segment, token]: whether a token is content of the first, of the second text
    expected      [sequence, 1, token]: the share of its own segment in the content that a row can see
    has_pairs     whether there is any pair among the sequences
    columns       (sequence, key) of the special keys, and where their cells lie by offset: sequence and offset as one
    alike         [sequence, offset]: the share of pairs of content tokens at this offset that are of one segment
    """

    near_special: tuple[Tensor, Tensor, Tensor]
    unless_special: Tensor
    unless_pair: Tensor
    own: Tensor
    expected: Tensor
    has_pairs: bool
    columns: tuple[Tensor, Tensor, Tensor]
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
    near, columns = _near_special(tokens.special), _special_columns(tokens.special)
    return _Places(near, unless_special, unless_pair, own, expected, bool(is_pair.any()), columns, _alike(own))


def _near_special(special: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    sequence, key = (index.repeat(3) for index in special.nonzero(as_tuple=True))
    query = key + torch.arange(-1, 2, device=key.device).repeat_interleave(len(key) // 3)
    exists = (query >= 0) & (query < special.shape[1])
    return sequence[exists], query[exists], key[exists]


def _special_columns(special: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    length = special.shape[1]
    sequence, key = special.nonzero(as_tuple=True)
    offset = key[:, None] - torch.arange(length, device=key.device) + length - 1
    return sequence, key, (sequence[:, None] * (2 * length - 1) + offset).flatten()


def _alike(own: Tensor) -> Tensor:
    length = own.shape[-1]
    places = torch.arange(length, device=own.device)
    offset = (places - places[:, None] + length - 1).flatten()
    content = own.sum(dim=1)
    of_one_segment, of_content = (
        own.new_zeros(len(own), 2 * length - 1).index_add_(1, offset, pairs.flatten(1))
        for pairs in (own.transpose(1, 2) @ own, content[:, :, None] * content[:, None])
    )
    return of_one_segment / of_content.clamp_min(1.0)


def scores_of(attention: Attention) -> Tensor:
    """[sequence, head, 4]: vertical, diagonal, block, block beyond offset.

    NaN where a sequence has no special tokens, or no second segment.
    """
    is_causal = attention.site.stack == "decoder"
    places = _places(attention.key, is_causal, attention.weights.dtype)
    vertical = attention.class_mass[..., SPECIAL] + places.unless_special
    blocks = _blocks(attention, places) if places.has_pairs else [torch.full_like(vertical, torch.nan)] * 2
    return torch.stack([vertical, _diagonal(attention, places), *blocks], dim=-1)


def _diagonal(attention: Attention, places: _Places) -> Tensor:
    """What lies near the diagonal, less what of it is on special tokens, which are few."""
    middle = attention.length - 1
    near = attention.offset_mass[..., max(middle - 1, 0) : middle + 2].sum(dim=-1)
    sequence, query, key = places.near_special
    cells = attention.weights[sequence, :, query, key]
    return near.index_add_(0, sequence, cells, alpha=-1) / attention.length


def _blocks(attention: Attention, places: _Places) -> list[Tensor]:
    """Block, and block beyond offset."""
    own = places.own[:, None]
    # The thin matrix on the left: the other way round takes five times as long.
    mass = own @ attention.weights.transpose(-1, -2)  # [sequence, head, segment, query]
    content = mass.sum(dim=2)
    within = (mass * own).sum(dim=2)
    is_content = places.own.sum(dim=1, keepdim=True)
    counted = (content >= LEAST_MASS) * is_content
    excess = ((within / content.clamp_min(LEAST_MASS) - places.expected) * counted).sum(dim=-1)
    block = excess / counted.sum(dim=-1)
    share = within.sum(dim=-1) / (content * is_content).sum(dim=-1)
    return [block + places.unless_pair, share - _share_by_offset(attention, places) + places.unless_pair]


def _share_by_offset(attention: Attention, places: _Places) -> Tensor:
    """[sequence, head]: what of the mass on content keys would be in the own segment, going by offsets alone."""
    sequence, key, where = places.columns
    heads = attention.weights.shape[1]
    special = attention.weights[sequence, :, :, key].transpose(1, 2).reshape(-1, heads)
    by_offset = attention.offset_mass.transpose(1, 2).flatten(0, 1)  # [sequence and offset, head]
    by_offset = by_offset.index_add(0, where, special, alpha=-1).view(len(places.own), -1, heads)
    return (by_offset * places.alike[..., None]).sum(dim=1) / by_offset.sum(dim=1)


def patterns_by_rule(scores: Tensor, thresholds: Thresholds) -> Tensor:
    """[…, 5]: 1 at the pattern of a map, in the order of PATTERNS, else 0; of scores […, 4], NaN where undefined."""
    upward, sideways, excess, beyond = scores.nan_to_num(nan=0.0).add(ROUNDING).unbind(dim=-1)
    vertical = (upward >= thresholds.strong) & (sideways < thresholds.weak)
    diagonal = (sideways >= thresholds.strong) & (upward < thresholds.weak)
    both = (upward + sideways >= thresholds.together) & (upward.minimum(sideways) >= thresholds.each)
    stays = (excess >= thresholds.excess) & (beyond >= thresholds.beyond)
    block = stays & ~(vertical | diagonal | both)
    both = both & ~(vertical | diagonal)
    none = ~(vertical | diagonal | both | block)
    return torch.stack([vertical, diagonal, both, block, none], dim=-1).to(scores.dtype)
