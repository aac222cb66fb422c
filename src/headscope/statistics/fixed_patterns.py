"""Could a fixed pattern do what a head does?

The value is the Jensen-Shannon divergence in nats between a row of attention and the same row under a fixed pattern.
It is 0 if they are equal, and ln 2 = 0.693 if they share no token. The patterns are those of `model.fixed_patterns`.

Four rows of each sequence are compared, those in the middle of its quarters. They are the same for every head and
pattern, and do not depend on the order of the examples. All rows would cost many times as much as the rest of a pass.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import ClassVar

import torch
from torch import Tensor

from headscope.model.fixed_patterns import LOOK_AHEAD, pattern_row
from headscope.model.row_sums import Wanted
from headscope.model.tokens import Tokens
from headscope.statistics.base import Definition, PerSequence, Quantities

ROWS = 4
POINTED = ("current", "previous", "next", "first")  # patterns with all attention on one token
SPREAD = ("left", "right", "end", "start", "uniform")


def _distance(short: str, long: str) -> Definition:
    title = f"Distance from {short}"
    return Definition(
        "nats", title, f"Jensen–Shannon divergence between the head's attention and {long}."
    )


class FixedPatterns(PerSequence):
    definitions = {
        "js-current": _distance(
            "attention to the token itself", "all attention on the token itself"
        ),
        "js-previous": _distance(
            "attention to the previous token", "all attention on the previous token"
        ),
        "js-next": _distance("attention to the next token", "all attention on the next token"),
        "js-left": _distance(
            "attention to the left context",
            "a pattern on the tokens before the left neighbour, with more weight on nearer tokens",
        ),
        "js-right": _distance(
            "attention to the right context",
            "a pattern on the tokens after the right neighbour, with more weight on nearer tokens",
        ),
        "js-end": _distance(
            "attention to the end", "a pattern with more weight on later tokens of the sequence"
        ),
        "js-start": _distance(
            "attention to the start", "a pattern with more weight on earlier tokens of the sequence"
        ),
        "js-uniform": _distance("uniform attention", "equal weights on all tokens"),
        "js-first": _distance("attention to the first token", "all attention on the first token"),
    }

    quantities: ClassVar[frozenset[str]] = frozenset()

    def wanted(self, examples: Sequence[int]) -> Wanted:
        return Wanted(requests=(middle_rows,))

    def measure(self, attention: Quantities) -> Tensor | None:
        if (
            not attention.within_one_text
        ):  # cross-attention: the patterns are defined by positions in one text
            return None
        is_causal = attention.site.stack == "decoder"
        rows = attention.rows_of(middle_rows)
        rows = rows.float() if rows.dtype in (torch.float16, torch.bfloat16) else rows
        keys, spread, entropies = _patterns_of(attention.query, is_causal, rows.dtype)
        values = torch.cat([_from_one_key(rows, keys), _from_spread(rows, spread, entropies)], -1)
        by_pattern = dict(zip((*POINTED, *SPREAD), values.unbind(dim=-1), strict=True))
        if is_causal:
            undefined = torch.full_like(by_pattern["first"], torch.nan)
            by_pattern |= dict.fromkeys(LOOK_AHEAD, undefined)
        return torch.stack([by_pattern[name.removeprefix("js-")] for name in self.definitions], -1)


def rows_of(length: int) -> tuple[int, ...]:
    """The rows in the middle of the quarters of a sequence."""
    return tuple((2 * k + 1) * length // (2 * ROWS) for k in range(ROWS))


def middle_rows(query: Tokens, stack: str) -> Tensor:
    """[sequence, row]: positions of the compared rows."""
    lengths = query.real.sum(dim=-1, keepdim=True)
    return (2 * torch.arange(ROWS, device=lengths.device) + 1) * lengths // (2 * ROWS)


def _from_one_key(rows: Tensor, keys: Tensor) -> Tensor:
    """[sequence, head, pattern]: divergence from all mass on one key; it depends only on the weight w of this key.

    JS = (w ln w + (1 − w) ln 2) / 2 − h ln h, with h = (1 + w) / 2.
    """
    weight = rows.gather(-1, keys[:, None].expand(-1, rows.shape[1], -1, -1)).clamp(0.0, 1.0)
    half = (1 + weight) / 2
    row_term = torch.special.xlogy(weight, weight) + (1 - weight) * math.log(2)
    divergence: Tensor = row_term / 2 - half * half.log()
    return divergence.clamp_min(0.0).mean(dim=2)


def _from_spread(rows: Tensor, spread: Tensor, entropies: Tensor) -> Tensor:
    """[sequence, head, pattern]: JS = H((p + t) / 2) − (H(p) + H(t)) / 2 of a row p and the row t of a pattern.

    spread     the rows of the patterns [sequence, pattern, row, key]
    entropies  H(t) [sequence, pattern, row]

    With s = p + t the first term is H(s / 2) = ln 2 − (Σ s ln s) / 2, so s need not be halved.
    """
    both = rows[:, :, None] + spread[:, None]
    of_both = both.clamp_min(1e-30).log_().mul_(both).sum(dim=-1)
    of_rows = rows.clamp_min(1e-30).log_().mul_(rows).sum(dim=-1)
    divergence = math.log(2) + (of_rows[:, :, None] - entropies[:, None] - of_both) / 2
    return divergence.clamp_min(0.0).mean(dim=-1)


@lru_cache(maxsize=8)
def _patterns_of(
    tokens: Tokens, is_causal: bool, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """The patterns of each sequence: keys [sequence, row, pattern], rows [sequence, pattern, row, key] and entropies.

    Computed once for all layers of a batch. Rows are padded with zeros, which do not change a divergence.
    """
    lengths = tokens.real.sum(dim=-1).tolist()
    by_length = {n: _patterns(n, is_causal, dtype) for n in set(lengths)}
    keys = torch.stack([by_length[n][0] for n in lengths])
    widths = ((by_length[n][1], tokens.length - n) for n in lengths)
    spread = torch.stack([torch.nn.functional.pad(rows, (0, more)) for rows, more in widths])
    entropies = torch.stack([by_length[n][2] for n in lengths])
    device = tokens.real.device
    return keys.to(device), spread.to(device), entropies.to(device)


@lru_cache(maxsize=256)
def _patterns(length: int, is_causal: bool, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """The keys of POINTED [row, pattern]; the rows of SPREAD [pattern, row, key] and their entropies [pattern, row]."""

    def rows(name: str, is_causal: bool) -> Tensor:
        return torch.stack([pattern_row(name, i, length, is_causal) for i in rows_of(length)])

    keys = torch.stack([rows(name, False).argmax(dim=-1) for name in POINTED], dim=-1)
    spread = torch.stack([rows(name, is_causal) for name in SPREAD])
    entropies = torch.special.entr(spread).sum(dim=-1)
    return keys, spread.to(dtype), entropies.to(dtype)
