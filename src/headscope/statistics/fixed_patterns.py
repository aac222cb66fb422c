"""Could a fixed pattern do what a head does?

The Jensen-Shannon divergence in nats between a row of attention and what the same row would be under a fixed pattern:
0 where they are the same, ln 2 = 0.693 where they share no token. The seven patterns are those of Raganato et al. 2020,
beside them uniform attention and attention to the first token. Row i of n:

    current, previous, next   all on token i, i - 1, i + 1
    left                      on tokens 0 … i - 2, growing towards i as (j + 1)^3; right: its mirror image
    end                       on all tokens, growing towards the last as (j + 1)^3; start: its mirror image
    uniform                   on all tokens alike
    first                     all on token 0

Where there is no such token (previous of the first, left of the first two …) the mass is on the first token, or on the
last for next and right; the paper does not say. In a causal stack uniform is over the tokens up to the row, and the
patterns that look ahead (next, right, end, start) have no rows.

Four rows of each sequence are compared, those in the middle of its quarters: the same for every head and pattern, and
whatever the order of the examples. All rows would cost many times what the rest of a pass does.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

from headscope.model.attention import Attention
from headscope.statistics.base import Definition, PerSequence

ROWS = 4
POINTED = ("current", "previous", "next", "first")  # all on one token
SPREAD = ("left", "right", "end", "start", "uniform")
LOOK_AHEAD = ("next", "right", "end", "start")
_TITLES = {
    "current": ("the token itself", "all attention on the token itself"),
    "previous": ("the previous token", "all attention on the previous token"),
    "next": ("the next token", "all attention on the next token"),
    "left": ("the left context", "attention growing towards the token over all but its left neighbour"),
    "right": ("the right context", "attention growing towards the token over all but its right neighbour"),
    "end": ("the end", "attention growing towards the end of the sequence"),
    "start": ("the start", "attention growing towards the start of the sequence"),
    "uniform": ("uniform attention", "the same attention on every token"),
    "first": ("the first token", "all attention on the first token"),
}


class FixedPatterns(PerSequence):
    definitions = {
        f"js-{name}": Definition("nats", f"Distance from attending to {short}", f"Divergence from {long}, in nats.")
        for name, (short, long) in _TITLES.items()
    }

    def measure(self, attention: Attention) -> Tensor | None:
        if not attention.within_one_text:
            return None
        is_causal = attention.site.stack == "decoder"
        chosen = rows_of(attention.length)
        rows = attention.weights[:, :, list(chosen)]
        rows = rows.float() if rows.dtype in (torch.float16, torch.bfloat16) else rows
        places, spread, entropies = _patterns(attention.length, is_causal, rows.dtype, rows.device)
        pointed = _from_pointed(rows, places)
        broad = _from_spread(rows, spread, entropies)
        found = dict(zip((*POINTED, *SPREAD), torch.cat([pointed, broad], dim=-1).unbind(dim=-1), strict=True))
        if is_causal:
            found |= {name: torch.full_like(found["first"], torch.nan) for name in LOOK_AHEAD}
        return torch.stack([found[name] for name in _TITLES], dim=-1)


def rows_of(length: int) -> tuple[int, ...]:
    """The rows in the middle of the quarters of a sequence."""
    return tuple((2 * k + 1) * length // (2 * ROWS) for k in range(ROWS))


def _from_pointed(rows: Tensor, places: Tensor) -> Tensor:
    """[sequence, head, pattern]: divergence from all mass on one token, which only depends on the weight of that."""
    sequences, heads = rows.shape[:2]
    weight = rows.gather(-1, places.expand(sequences, heads, -1, -1)).clamp(0.0, 1.0)
    half = (1 + weight) / 2
    divergence: Tensor = (torch.special.xlogy(weight, weight) + (1 - weight) * math.log(2)) / 2 - half * half.log()
    return divergence.clamp_min(0.0).mean(dim=2)


def _from_spread(rows: Tensor, spread: Tensor, entropies: Tensor) -> Tensor:
    """[sequence, head, pattern]: JS = H((p + t) / 2) - (H(p) + H(t)) / 2, and the sum p + t needs no halving first."""
    both = rows[:, :, None] + spread
    of_both = both.clamp_min(1e-30).log_().mul_(both).sum(dim=-1)
    of_rows = rows.clamp_min(1e-30).log_().mul_(rows).sum(dim=-1)
    divergence = math.log(2) + (of_rows[:, :, None] - entropies - of_both) / 2
    return divergence.clamp_min(0.0).mean(dim=-1)


@lru_cache(maxsize=64)
def _patterns(length: int, is_causal: bool, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Where POINTED point [row, pattern]; SPREAD [pattern, row, key] and their entropies [pattern, row]."""
    last, rows = length - 1, rows_of(length)
    places = [[i, max(i - 1, 0), min(i + 1, last), 0] for i in rows]
    ramp = torch.arange(1, length + 1, dtype=torch.float64) ** 3
    spread = torch.zeros(len(SPREAD), len(rows), length, dtype=torch.float64)
    for k, i in enumerate(rows):
        spread[0, k, : max(i - 1, 1)] = ramp[: max(i - 1, 1)]
        after = max(last - i - 1, 1)  # a context that is empty is the boundary token
        spread[1, k, length - after :] = ramp[:after].flip(0)
        spread[2, k] = ramp
        spread[3, k] = ramp.flip(0)
        spread[4, k, : i + 1 if is_causal else length] = 1.0
    spread /= spread.sum(dim=-1, keepdim=True)
    entropies = torch.special.entr(spread).sum(dim=-1)
    return torch.tensor(places, device=device), spread.to(device, dtype), entropies.to(device, dtype)
