"""Attention of fixed heads: heads without queries and keys, whose weights are a fixed pattern of positions.

`FixedHeads` describes the fixed heads of an attention module. Their outputs are usually computed without weights
(`combine_heads`): values are gathered or summed up along the text, so that the cost is linear in the length of the text
instead of quadratic. If the seam needs weights or scores, `expand_fixed_heads` turns the call into one in which all
heads have queries and keys. Those of fixed heads are zeros, and the logarithm of the pattern is added as a bias to the
scores.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from headscope.model.edits import masked_score
from headscope.model.fixed_patterns import fixed_pattern
from headscope.model.tokens import pattern_over_tokens

if TYPE_CHECKING:
    from headscope.model.kernels import Call

ATTRIBUTE = "fixed_heads"
IMPLEMENTATION = "headscope-fixed"  # name of the attention function of modules with fixed heads


@dataclass(frozen=True)
class FixedHeads:
    """The fixed heads of an attention module.

    patterns   the pattern of each head, in the order of the module; None for a head with queries and keys ("learned")
    query, key the names of the projections inside the module, which have rows only for the learned heads
    width      the width of a head
    is_causal  whether a query sees only keys up to its own position
    """

    patterns: tuple[str | None, ...]
    query: str
    key: str
    width: int
    is_causal: bool

    @property
    def learned(self) -> list[int]:
        """The indices of the heads that have queries and keys."""
        return self.heads_with(None)

    def heads_with(self, pattern: str | None) -> list[int]:
        """The indices of the heads with this pattern."""
        return [head for head, name in enumerate(self.patterns) if name == pattern]

    @property
    def names(self) -> list[str]:
        """The patterns in use, each once."""
        return list(dict.fromkeys(name for name in self.patterns if name is not None))


def get_fixed_heads(module: nn.Module) -> FixedHeads | None:
    """The fixed heads of an attention module; None if it has none."""
    fixed: FixedHeads | None = module.__dict__.get(ATTRIBUTE)
    return fixed


def set_fixed_heads(core: nn.Module, fixed: FixedHeads) -> None:
    """Give an attention module these fixed heads; used after surgery and on loading."""
    setattr(core, ATTRIBUTE, fixed)
    if not fixed.names:  # all fixed heads have been pruned
        delattr(core, ATTRIBUTE)
        return
    # Modules share the configuration; only this one is changed.
    config: Any = copy.copy(core.config)
    config._attn_implementation_internal = IMPLEMENTATION
    core.config = config
    if not fixed.learned:
        for name in (fixed.query, fixed.key):
            setattr(core, name, NoProjection(fixed.width))


class NoProjection(nn.Module):
    """Replaces the query and key projections of a module without learned heads: returns one head of zeros.

    Something must be returned, because a cache of earlier tokens counts tokens by the keys.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden.new_zeros(()).expand(*hidden.shape[:-1], self.width)


def real_keys(mask: Tensor | None, keys: int, device: torch.device) -> Tensor:
    """[sequence or 1, key], bool: which keys are not padding.

    mask  [sequence, head or 1, query, key]; its last query sees all real keys, also in a causal stack
    """
    if mask is None:
        return torch.ones(1, keys, dtype=torch.bool, device=device)
    last = mask[:, 0, -1]
    return last if last.dtype == torch.bool else last > masked_score(last.dtype)


class TokenPositions:
    """The positions of the tokens of a call, counted over real tokens. Every tensor is [sequence or 1, token].

    position        the position of each key
    query_position  the position of each query
    count           [sequence or 1, 1]: the number of real tokens
    order           the indices of the keys in the order of their positions, padding last
    """

    def __init__(self, real: Tensor, queries: int) -> None:
        self.real = real
        self.position = (real.cumsum(dim=1) - 1).clamp_min(0)
        self.count = real.sum(dim=1, keepdim=True).clamp_min(1)
        # With a cache of earlier tokens the queries are the last keys.
        self.query_position = self.position[:, -queries:]
        self.order = (~real).to(torch.int8).argsort(dim=1, stable=True)

    def gather(self, tensor: Tensor, position: Tensor) -> Tensor:
        """[sequence, head, query, width]: the vectors of `tensor` at the keys at these positions.

        tensor    [sequence, head, key, width]
        position  [sequence or 1, query]

        Positions before the first or after the last real token are replaced by the first or last.
        """
        key = self.order.gather(1, position.clamp_min(0).minimum(self.count - 1))
        batch, heads, _, width = tensor.shape
        return tensor.gather(2, key[:, None, :, None].expand(batch, heads, -1, width))

    def results(self, name: str, value: Tensor, is_causal: bool) -> Tensor:
        """[sequence, head, query, width]: the outputs of heads with this pattern.

        value  [sequence, head, key, width]
        """
        offsets = {"current": 0, "previous": -1, "next": 1}
        if name in offsets:
            return self.gather(value, self.query_position + offsets[name])
        if name == "first":
            return self.gather(value, self.query_position * 0)
        # The other patterns are weighted means of all values, of those up to a position, or of those from a position
        # on. Weights (rank / count)^3 give the same means as the pattern's rank^3, and sums of small numbers.
        precise = value.to(torch.promote_types(value.dtype, torch.float32))
        rank = self.position + 1 if name in ("left", "end") else self.count - self.position
        share = rank.to(precise.dtype) / self.count
        ramp = torch.ones_like(share) if name == "uniform" else share**3
        weight = (ramp * self.real)[:, None, :, None]
        if name == "left":
            result = self._running_mean(precise, weight, self.query_position - 2)
        elif name == "right":
            result = self._running_mean(precise, weight, self.query_position + 2, from_end=True)
        elif name == "uniform" and is_causal:
            result = self._running_mean(precise, weight, self.query_position)
        else:
            mean = (precise * weight).sum(dim=2, keepdim=True) / weight.sum(dim=2, keepdim=True)
            result = mean.expand(-1, -1, self.query_position.shape[1], -1)
        return result.to(value.dtype)

    def _running_mean(
        self, value: Tensor, weight: Tensor, position: Tensor, *, from_end: bool = False
    ) -> Tensor:
        """The weighted mean of the values up to these positions, as a quotient of two running sums.

        from_end  the mean of the values from these positions on
        """

        def running_sum(tensor: Tensor) -> Tensor:
            return tensor.flip(2).cumsum(dim=2).flip(2) if from_end else tensor.cumsum(dim=2)

        sums, weights = running_sum(value * weight), running_sum(weight)
        return self.gather(sums, position) / self.gather(weights, position)


def combine_heads(
    fixed: FixedHeads, learned: Tensor | None, value: Tensor, mask: Tensor | None, queries: int
) -> Tensor:
    """The outputs [batch, query, head, width] of all heads, in the order of the module.

    learned  [batch, query, learned head, width]: the outputs of the learned heads; None if there are none
    value    [batch, head, key, width]
    """
    positions = TokenPositions(real_keys(mask, value.shape[2], value.device), queries)
    outputs = [] if learned is None else [learned]
    heads = fixed.learned
    for name in fixed.names:
        indices = fixed.heads_with(name)
        results = positions.results(name, value[:, indices], fixed.is_causal)
        outputs.append(results.transpose(1, 2))
        heads = heads + indices
    order = sorted(range(len(heads)), key=heads.__getitem__)
    return torch.cat(outputs, dim=2)[:, :, order]


def expand_fixed_heads(call: Call) -> Call:
    """The same call in a form in which fixed heads have queries and keys, so that every kernel can compute it.

    Scores of fixed heads are 0 plus the logarithm of the pattern, whose softmax is the pattern.
    """
    fixed = call.fixed
    assert fixed is not None
    batch, heads, queries, keys = call.shape
    learned = torch.tensor(fixed.learned, dtype=torch.long, device=call.query.device)

    def with_all_heads(states: Tensor) -> Tensor:
        """[batch, head, token, width] from states of the learned heads, with zeros for fixed heads."""
        zeros = states.new_zeros(batch, heads, *states.shape[2:])
        return zeros.index_copy(1, learned, states) if len(learned) else zeros

    real = real_keys(call.mask, keys, call.query.device)
    lowest = masked_score(call.query.dtype)
    log_patterns = {}
    for name in fixed.names:
        pattern = pattern_over_tokens(real, partial(fixed_pattern, name, is_causal=fixed.is_causal))
        log_patterns[name] = pattern[:, -queries:].log().clamp_min(lowest).to(call.query)
    call_bias = call.query.new_zeros(1, heads, 1, 1) if call.bias is None else call.bias
    size = (max([len(call_bias), *map(len, log_patterns.values())]), queries, keys)
    bias = [
        (call_bias[:, head] if name is None else log_patterns[name]).expand(size)
        for head, name in enumerate(fixed.patterns)
    ]
    return replace(
        call,
        query=with_all_heads(call.query),
        key=with_all_heads(call.key),
        bias=torch.stack(bias, dim=1),
        fixed=None,
    )
