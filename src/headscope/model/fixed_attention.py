"""Heads that have no queries and keys, since a fixed pattern says where they attend.

A module that has some knows them by its `FixedHeads`. As long as nobody looks, their results are gathered from the
values, or are running sums of them: the weights are never written out, and the cost grows with the length of a text
and not with its square. When the seam is asked for weights or scores, `whole` gives the call as if all heads had
queries and keys: zeros, and the logarithm of the pattern as a bias of the scores.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from headscope.model.edits import masked_score
from headscope.model.fixed_patterns import fixed_pattern
from headscope.model.tokens import pattern_over_tokens

if TYPE_CHECKING:
    from headscope.model.kernels import Call

ATTRIBUTE = "fixed_heads"
IMPLEMENTATION = "headscope-fixed"  # what a module with fixed heads asks transformers for


@dataclass(frozen=True)
class FixedHeads:
    """Which heads of an attention module are fixed.

    patterns   of each head, by its place in the module; None: it has queries and keys
    query, key the names of the projections inside the module, which have only the rows of the other heads
    width      of a head
    is_causal  whether no query sees what comes after it
    """

    patterns: tuple[str | None, ...]
    query: str
    key: str
    width: int
    is_causal: bool

    @property
    def learned(self) -> list[int]:
        """The places of the heads that have queries and keys."""
        return [place for place, name in enumerate(self.patterns) if name is None]

    def places(self, pattern: str) -> list[int]:
        return [place for place, name in enumerate(self.patterns) if name == pattern]

    @property
    def names(self) -> list[str]:
        """The patterns that are in use, each once."""
        return list(dict.fromkeys(name for name in self.patterns if name is not None))


def get_fixed_heads(module: nn.Module) -> FixedHeads | None:
    """What a module knows of its fixed heads; None where it has none."""
    found: FixedHeads | None = module.__dict__.get(ATTRIBUTE)
    return found


def set_fixed_heads(core: nn.Module, fixed: FixedHeads) -> None:
    """Tell an attention module which of its heads are fixed, whether its rows were cut just now or long ago."""
    setattr(core, ATTRIBUTE, fixed)
    if not any(name is not None for name in fixed.patterns):  # all that were are gone
        delattr(core, ATTRIBUTE)
        return
    config: Any = copy.copy(core.config)  # its own: other modules ask for what they did
    config._attn_implementation_internal = IMPLEMENTATION
    core.config = config
    if not fixed.learned:
        for name in (fixed.query, fixed.key):
            setattr(core, name, NoProjection(fixed.width))


class NoProjection(nn.Module):
    """In the place of the queries and keys of a module all of whose heads are fixed: one head of zeros.

    It has no weights; a cache of earlier tokens still reads from it how many there were.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden.new_zeros(()).expand(*hidden.shape[:-1], self.width)


def real_keys(mask: Tensor | None, keys: int, device: torch.device) -> Tensor:
    """[sequence or 1, key]: which keys are no padding. The last query sees all of them, in a causal stack too."""
    if mask is None:
        return torch.ones(1, keys, dtype=torch.bool, device=device)
    last = mask[:, 0, -1]
    return last if last.dtype == torch.bool else last > masked_score(last.dtype)


class TokenPositions:
    """Where the tokens of a call stand among the real ones. Every tensor is [sequence or 1, token].

    place  of each query: its position
    order  the keys in the order of their positions, padding last
    """

    def __init__(self, real: Tensor, queries: int) -> None:
        self.real = real
        self.rank = (real.cumsum(dim=1) - 1).clamp_min(0)
        self.count = real.sum(dim=1, keepdim=True).clamp_min(1)
        self.place = self.rank[:, -queries:]  # with a cache the queries are the last of the keys
        self.order = (~real).to(torch.int8).argsort(dim=1, stable=True)

    def taken(self, tensor: Tensor, place: Tensor) -> Tensor:
        """tensor [sequence, head, key, width] at the keys that stand at these places [sequence or 1, query]."""
        key = self.order.gather(1, place.clamp_min(0).minimum(self.count - 1))
        batch, heads, _, width = tensor.shape
        return tensor.gather(2, key[:, None, :, None].expand(batch, heads, -1, width))

    def results(self, name: str, value: Tensor, is_causal: bool) -> Tensor:
        """[sequence, head, query, width]: what heads of this pattern make of their values [.., .., key, width]."""
        pointed = {"current": 0, "previous": -1, "next": 1}
        if name in pointed:
            return self.taken(value, self.place + pointed[name])
        if name == "first":
            return self.taken(value, self.place * 0)
        exact = value.to(torch.promote_types(value.dtype, torch.float32))
        towards = self.rank + 1 if name in ("left", "end") else self.count - self.rank
        share = towards.to(exact.dtype) / self.count
        weight = ((torch.ones_like(share) if name == "uniform" else share**3) * self.real)[
            :, None, :, None
        ]
        if name == "left":
            found = self._summed(exact, weight, self.place - 2)
        elif name == "right":  # running sums from the end
            found = self._summed(exact, weight, self.place + 2, from_the_end=True)
        elif name == "uniform" and is_causal:
            found = self._summed(exact, weight, self.place)
        else:
            mean = (exact * weight).sum(dim=2, keepdim=True) / weight.sum(dim=2, keepdim=True)
            found = mean.expand(-1, -1, self.place.shape[1], -1)
        return found.to(value.dtype)

    def _summed(
        self, value: Tensor, weight: Tensor, place: Tensor, *, from_the_end: bool = False
    ) -> Tensor:
        """The weighted mean of the values up to these places, or from them on."""

        def running(tensor: Tensor) -> Tensor:
            return tensor.flip(2).cumsum(dim=2).flip(2) if from_the_end else tensor.cumsum(dim=2)

        return self.taken(running(value * weight), place) / self.taken(running(weight), place)


def combine_heads(
    fixed: FixedHeads, learned: Tensor | None, value: Tensor, mask: Tensor | None, queries: int
) -> Tensor:
    """The heads' results [batch, query, head, width] in their order: those of the others, and of the fixed ones."""
    positions = TokenPositions(real_keys(mask, value.shape[2], value.device), queries)
    parts = [] if learned is None else [learned]
    places = fixed.learned
    for name in fixed.names:
        here = fixed.places(name)
        parts.append(positions.results(name, value[:, here], fixed.is_causal).transpose(1, 2))
        places = places + here
    order = sorted(range(len(places)), key=places.__getitem__)
    return torch.cat(parts, dim=2)[:, :, order]


def expand_fixed_heads(call: Call) -> Call:
    """The call as if its fixed heads had queries and keys."""
    fixed = call.fixed
    assert fixed is not None
    batch, heads, queries, keys = call.shape
    learned = torch.tensor(fixed.learned, dtype=torch.long, device=call.query.device)

    def spread(states: Tensor) -> Tensor:
        nothing = states.new_zeros(batch, heads, *states.shape[2:])
        return nothing.index_copy(1, learned, states) if len(learned) else nothing

    real = real_keys(call.mask, keys, call.query.device)
    lowest = masked_score(call.query.dtype)
    logs = {}
    for name in fixed.names:
        pattern = pattern_over_tokens(
            real,
            lambda length, name=name: fixed_pattern(name, length, fixed.is_causal),  # type: ignore[misc]
        )
        logs[name] = pattern[:, -queries:].log().clamp_min(lowest).to(call.query)
    own = call.query.new_zeros(1, heads, 1, 1) if call.bias is None else call.bias
    size = (max([len(own), *map(len, logs.values())]), queries, keys)
    bias = [
        (own[:, place] if name is None else logs[name]).expand(size)
        for place, name in enumerate(fixed.patterns)
    ]
    return replace(
        call,
        query=spread(call.query),
        key=spread(call.key),
        bias=torch.stack(bias, dim=1),
        fixed=None,
    )
