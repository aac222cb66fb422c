"""The sum of a layer's heads and what it is added to (Kobayashi et al. 2021).

With F_ij = Σ_h α_hij f_h(x_j), and x_i added where i = j, token i leaves the layer as Σ_j F_ij + b_O. A LayerNorm
after it is linear except for one number per row, which cancels in shares of a row: F_ij becomes g·(F_ij − mean(F_ij)).
Two quantities follow without a vector for every cell: the length of each F_ij, from the products ⟨f_h(x_j), f_g(x_j)⟩
of every pair of heads, and the mixing ratio of a token, the share of the sum that does not come from the token itself.

Which block's input is added to a site's results, and whether a LayerNorm follows, is found by observing one small
forward pass, as in `model.anatomy`.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from headscope.heads import Site
from headscope.model.anatomy import Parts, anatomy
from headscope.model.attention import Attention
from headscope.model.sample_inputs import main_output, sample_inputs

if TYPE_CHECKING:
    from headscope.model.attention_model import AttentionModel

FORMS = ("norm", "norm-residual", "norm-layernorm")


@dataclass(frozen=True)
class Addition:
    """The block whose input a site's results are added to, and the gain of the LayerNorm that the sum then passes."""

    block: str
    gain: Tensor | None


class _NormOfSum(NamedTuple):
    """A norm that takes the sum of a block's input and its attention.

    has_pre_norm  whether another norm of the block took the block's input
    """

    block: str
    module: nn.Module
    has_pre_norm: bool


def block_input(args: Any, kwargs: Any) -> Tensor:
    """The states among the arguments of a block."""
    tensors = (value for value in (*args, *kwargs.values()) if isinstance(value, Tensor))
    return next(tensor for tensor in tensors if tensor.is_floating_point())


def additions(model: AttentionModel) -> dict[Site, Addition]:
    """The additions of the sites of self-attention; sites where the sum is not found are left out."""
    parts = {
        site: part
        for site, part in anatomy(model).items()
        if part.projection and site.stack != "cross"
    }
    modules = dict(model.model.named_modules())
    names = {module: name for name, module in modules.items()}
    blocks = {part.block for part in parts.values()}
    projections = {part.projection for part in parts.values()}
    entered: list[tuple[str, Tensor]] = []  # blocks with their input, in order
    norm_inputs: list[Tensor] = []  # since the last block began
    projected: list[Tensor] = []  # outputs of projections that no norm has taken yet
    norms: list[_NormOfSum] = []

    def enter(module: nn.Module, args: Any, kwargs: Any) -> None:
        entered.append((names[module], block_input(args, kwargs)))
        norm_inputs.clear()
        projected.clear()

    def keep_projected(module: nn.Module, args: Any, output: Tensor) -> None:
        projected.append(output)

    def compare_norm_input(module: nn.Module, args: Any) -> None:
        if projected and entered:
            block, states = entered[-1]
            is_as_wide = states.shape == projected[-1].shape  # not after MobileBERT's bottleneck
            if is_as_wide and _is_close(args[0], states + projected[-1]):
                has_pre_norm = any(_is_close(tensor, states) for tensor in norm_inputs)
                norms.append(_NormOfSum(block, module, has_pre_norm))
                projected.clear()
        norm_inputs.append(args[0])

    with ExitStack() as stack, torch.inference_mode(), model.suspend_hooks():
        for name, module in modules.items():
            if name in blocks:
                hook = module.register_forward_pre_hook(enter, with_kwargs=True, prepend=True)
                stack.callback(hook.remove)
            if name in projections:
                stack.callback(module.register_forward_hook(keep_projected).remove)
            if "Norm" in type(module).__name__:
                stack.callback(module.register_forward_pre_hook(compare_norm_input).remove)
        main_output(model, sample_inputs(model, batch=2))
    return _match_sites(parts, norms)


def _match_sites(parts: dict[Site, Parts], norms: list[_NormOfSum]) -> dict[Site, Addition]:
    """Sums and sites of a block are in the same order; a pre-norm stack has no LayerNorm after the sum."""
    result: dict[Site, Addition] = {}
    pre_norm_blocks = {norm.block for norm in norms if norm.has_pre_norm}
    pre_norm_stacks = {site.stack for site, part in parts.items() if part.block in pre_norm_blocks}
    for site, part in parts.items():
        modules = [norm.module for norm in norms if norm.block == part.block]
        if not modules:
            continue
        module = modules[min(part.turn, len(modules) - 1)]
        gain: Tensor | None = module.weight if isinstance(module, nn.LayerNorm) else None
        gain = None if gain is None or site.stack in pre_norm_stacks else gain.detach()
        result[site] = Addition(part.block, gain)
    return result


def _is_close(tensor: Tensor, other: Tensor) -> bool:
    size = float(other.abs().max())
    return tensor.shape == other.shape and float((tensor - other).abs().max()) <= 1e-5 * max(
        size, 1e-6
    )


def contribution_shares(attention: Attention) -> dict[str, Tensor]:
    """By form, [sequence, query, key]: the length of what all heads together add from a key, as a share of the row."""
    layer, values = attention.layer, attention.values
    assert layer is not None
    assert values is not None
    raw = attention.raw.weights
    weights = raw.permute(0, 3, 1, 2).contiguous()  # [sequence, key, head, query]
    diagonal = torch.diagonal(raw, dim1=-2, dim2=-1).transpose(1, 2)  # [sequence, query, head]
    shares = {}
    for gain in (None,) if layer.gain is None else (None, layer.gain):
        moved = torch.einsum("shkd,hod->skho", values, _apply_gain_to_blocks(layer.blocks, gain))
        products = moved @ moved.transpose(-1, -2)  # [sequence, key, head, head]
        squares = (products @ weights).mul_(weights).sum(dim=-2).transpose(1, 2)
        if gain is None:
            shares["norm"] = _lengths_as_shares(squares.clone())
        if layer.residual is not None and attention.within_one_text:
            own = _apply_gain(layer.residual, gain)
            cross = ((diagonal[..., None, :] @ moved)[..., 0, :] * own).sum(dim=-1)
            torch.diagonal(squares, dim1=-2, dim2=-1).add_(2 * cross + own.square().sum(dim=-1))
            form = "norm-residual" if gain is None else "norm-layernorm"
            shares[form] = _lengths_as_shares(squares)
    return shares


def _lengths_as_shares(squares: Tensor) -> Tensor:
    lengths = squares.clamp_min_(0).sqrt_()
    return lengths / lengths.sum(dim=-1, keepdim=True).clamp_min(torch.finfo(lengths.dtype).tiny)


def mixing_ratios(attention: Attention) -> dict[str, Tensor]:
    """By form, [sequence, query]: the share of other tokens in a token's sum. Vectors are summed before lengths."""
    layer, values = attention.layer, attention.values
    assert layer is not None
    assert values is not None
    weights = attention.raw.weights
    diagonal = torch.diagonal(weights, dim1=-2, dim2=-1)
    own = values * diagonal[..., None]
    projection = layer.blocks.permute(0, 2, 1).flatten(0, 1)  # [head and width, out]
    from_itself = own.transpose(1, 2).flatten(2) @ projection
    from_others = (weights @ values - own).transpose(1, 2).flatten(2) @ projection
    by_weight = 1 - diagonal.mean(dim=1)
    ratios = {"weight": by_weight, "weight-residual": by_weight / 2}
    forms = FORMS[: 1 if layer.residual is None else 2] if layer.gain is None else FORMS
    for form in forms if attention.within_one_text else FORMS[:1]:
        gain = layer.gain if form == "norm-layernorm" else None
        residual = None if form == "norm" else layer.residual
        near = from_itself if residual is None else from_itself + residual
        others, itself = (_apply_gain(sums, gain).norm(dim=-1) for sums in (from_others, near))
        ratios[form] = others / (others + itself)
    return ratios


def _apply_gain_to_blocks(blocks: Tensor, gain: Tensor | None) -> Tensor:
    """The output projection [head, out, width] followed by the LayerNorm, which is cheaper than on its results."""
    return blocks if gain is None else _apply_gain(blocks.transpose(1, 2), gain).transpose(1, 2)


def _apply_gain(vectors: Tensor, gain: Tensor | None) -> Tensor:
    """Vectors [..., out] through a LayerNorm, without its division of each row by a number."""
    if gain is None:
        return vectors
    return (vectors - vectors.mean(dim=-1, keepdim=True)) * gain.to(vectors)
