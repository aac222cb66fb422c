"""How much each token contributes to another through all heads of a layer together (Kobayashi et al. 2021).

Head h adds α_hij f_h(x_j) to token i. The contribution of token j is F_ij = Σ_h α_hij f_h(x_j). For i = j the residual
x_i is added to it. The attention block then returns Σ_j F_ij + b_O for token i. A LayerNorm after it divides each row
by one number, which cancels in shares of a row; apart from that it is linear, and maps F_ij to g·(F_ij − mean(F_ij)).

Two quantities are computed without storing a vector F_ij for every cell:

- the length of each F_ij, from the inner products ⟨f_h(x_j), f_g(x_j)⟩ of all pairs of heads (`contribution_shares`)
- the mixing ratio of token i, the share of its sum that comes from other tokens (`mixing_ratios`)

Which states are the residual, and whether a LayerNorm follows, is found by observing one small forward pass, as in
`model.anatomy` (`additions`).
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
    """The residual connection around a site.

    block  the name of the block whose input is the residual
    gain   [width]: the weight of the LayerNorm that follows the sum; None if there is none
    """

    block: str
    gain: Tensor | None


class _NormOfSum(NamedTuple):
    """A norm whose input is the sum of a block's input and the output of its attention.

    has_pre_norm  whether another norm of the block was applied to the block's input before
    """

    block: str
    module: nn.Module
    has_pre_norm: bool


def block_input(args: Any, kwargs: Any) -> Tensor:
    """The hidden states among the arguments of a block: its first floating point tensor."""
    tensors = (value for value in (*args, *kwargs.values()) if isinstance(value, Tensor))
    return next(tensor for tensor in tensors if tensor.is_floating_point())


def additions(model: AttentionModel) -> dict[Site, Addition]:
    """{site of self attention: its residual connection}; sites where the sum is not found are left out."""
    parts = {
        site: site_parts
        for site, site_parts in anatomy(model).items()
        if site_parts.projection and site.stack != "cross"
    }
    modules = dict(model.model.named_modules())
    names = {module: name for name, module in modules.items()}
    blocks = {site_parts.block for site_parts in parts.values()}
    projections = {site_parts.projection for site_parts in parts.values()}
    entered: list[tuple[str, Tensor]] = []  # (block, its input), in the order of calls
    norm_inputs: list[Tensor] = []  # of the current block
    # Outputs of output projections that are not yet found in the input of a norm
    projected: list[Tensor] = []
    norms: list[_NormOfSum] = []

    def enter(module: nn.Module, args: Any, kwargs: Any) -> None:
        entered.append((names[module], block_input(args, kwargs)))
        norm_inputs.clear()
        projected.clear()

    def store_projected(module: nn.Module, args: Any, output: Tensor) -> None:
        projected.append(output)

    def compare_norm_input(module: nn.Module, args: Any) -> None:
        if projected and entered:
            block, states = entered[-1]
            # Attention in MobileBERT is narrower than the block's input, which is then not the residual.
            same_width = states.shape == projected[-1].shape
            if same_width and _is_close(args[0], states + projected[-1]):
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
                stack.callback(module.register_forward_hook(store_projected).remove)
            if "Norm" in type(module).__name__:
                stack.callback(module.register_forward_pre_hook(compare_norm_input).remove)
        main_output(model, sample_inputs(model, batch=2))
    return _match_sites(parts, norms)


def _match_sites(parts: dict[Site, Parts], norms: list[_NormOfSum]) -> dict[Site, Addition]:
    """Match norms to the sites of their block, which are in the same order.

    In a pre-norm stack the norm that takes the sum belongs to the next sublayer, and does not change the residual
    stream: such sites have no gain.
    """
    result: dict[Site, Addition] = {}
    pre_norm_blocks = {norm.block for norm in norms if norm.has_pre_norm}
    pre_norm_stacks = {
        site.stack for site, site_parts in parts.items() if site_parts.block in pre_norm_blocks
    }
    for site, site_parts in parts.items():
        modules = [norm.module for norm in norms if norm.block == site_parts.block]
        if not modules:
            continue
        module = modules[min(site_parts.turn, len(modules) - 1)]
        gain: Tensor | None = module.weight if isinstance(module, nn.LayerNorm) else None
        gain = None if gain is None or site.stack in pre_norm_stacks else gain.detach()
        result[site] = Addition(site_parts.block, gain)
    return result


def _is_close(tensor: Tensor, other: Tensor) -> bool:
    """Whether two tensors are equal up to float32 rounding, relative to the largest element."""
    size = float(other.abs().max())
    return tensor.shape == other.shape and float((tensor - other).abs().max()) <= 1e-5 * max(
        size, 1e-6
    )


def contribution_shares(attention: Attention) -> dict[str, Tensor]:
    """{form: [sequence, query, key]}: the length of the contribution of a key through all heads, as a share of its row.

    norm            ‖F_ij‖ without the residual
    norm-residual   with the residual, in self attention
    norm-layernorm  with the residual, after the LayerNorm if there is one
    """
    layer, values = attention.layer, attention.values
    assert layer is not None
    assert values is not None
    raw = attention.raw.weights
    weights = raw.permute(0, 3, 1, 2).contiguous()  # [sequence, key, head, query]
    diagonal = torch.diagonal(raw, dim1=-2, dim2=-1).transpose(1, 2)  # [sequence, query, head]
    shares = {}
    for gain in (None,) if layer.gain is None else (None, layer.gain):
        # f_h(x_j): [sequence, key, head, out]
        moved = torch.einsum("shkd,hod->skho", values, _apply_gain_to_blocks(layer.blocks, gain))
        products = moved @ moved.transpose(-1, -2)  # [sequence, key, head, head]
        # ‖F_ij‖² = Σ_h Σ_g α_hij α_gij ⟨f_h(x_j), f_g(x_j)⟩: [sequence, query, key]
        squares = (products @ weights).mul_(weights).sum(dim=-2).transpose(1, 2)
        if gain is None:
            shares["norm"] = _lengths_as_shares(squares.clone())
        if layer.residual is not None and attention.within_one_text:
            # At i = j: ‖F_ii + x_i‖² = ‖F_ii‖² + 2⟨F_ii, x_i⟩ + ‖x_i‖²
            own = _apply_gain(layer.residual, gain)
            cross = ((diagonal[..., None, :] @ moved)[..., 0, :] * own).sum(dim=-1)
            torch.diagonal(squares, dim1=-2, dim2=-1).add_(2 * cross + own.square().sum(dim=-1))
            form = "norm-residual" if gain is None else "norm-layernorm"
            shares[form] = _lengths_as_shares(squares)
    return shares


def _lengths_as_shares(squares: Tensor) -> Tensor:
    """Lengths as shares of their row, from squared lengths [sequence, query, key], which are overwritten."""
    lengths = squares.clamp_min_(0).sqrt_()
    return lengths / lengths.sum(dim=-1, keepdim=True).clamp_min(torch.finfo(lengths.dtype).tiny)


def mixing_ratios(attention: Attention) -> dict[str, Tensor]:
    """{form: [sequence, query]}: the share of a token's new state that comes from other tokens.

    That is ‖Σ_{j≠i} F_ij‖ / (‖Σ_{j≠i} F_ij‖ + ‖F_ii‖): vectors are summed before their length is taken. The forms are
    those of `contribution_shares`, and two that use only weights:

    weight           1 − α_ii, averaged over heads
    weight-residual  half of it, as the residual connection counts as much as attention
    """
    layer, values = attention.layer, attention.values
    assert layer is not None
    assert values is not None
    weights = attention.raw.weights
    diagonal = torch.diagonal(weights, dim1=-2, dim2=-1)
    own = values * diagonal[..., None]
    projection = layer.blocks.permute(0, 2, 1).flatten(0, 1)  # [head * width, out]
    from_itself = own.transpose(1, 2).flatten(2) @ projection  # [sequence, query, out]
    from_others = (weights @ values - own).transpose(1, 2).flatten(2) @ projection
    by_weight = 1 - diagonal.mean(dim=1)
    ratios = {"weight": by_weight, "weight-residual": by_weight / 2}
    forms = FORMS[: 1 if layer.residual is None else 2] if layer.gain is None else FORMS
    for form in forms if attention.within_one_text else FORMS[:1]:
        gain = layer.gain if form == "norm-layernorm" else None
        residual = None if form == "norm" else layer.residual
        from_own = from_itself if residual is None else from_itself + residual
        others, itself = (_apply_gain(sums, gain).norm(dim=-1) for sums in (from_others, from_own))
        ratios[form] = others / (others + itself)
    return ratios


def _apply_gain_to_blocks(blocks: Tensor, gain: Tensor | None) -> Tensor:
    """The output projection [head, out, width] followed by the LayerNorm: cheaper than to apply it to all results."""
    return blocks if gain is None else _apply_gain(blocks.transpose(1, 2), gain).transpose(1, 2)


def _apply_gain(vectors: Tensor, gain: Tensor | None) -> Tensor:
    """Vectors [..., out] after a LayerNorm without its division by the deviation; unchanged if gain is None."""
    if gain is None:
        return vectors
    return (vectors - vectors.mean(dim=-1, keepdim=True)) * gain.to(vectors)
