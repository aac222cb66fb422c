"""What the heads of a layer add together, and to what (Kobayashi et al. 2021).

With F_ij = Σ_h α_hij f_h(x_j), and x_i added where i = j, token i leaves the layer as Σ_j F_ij + b_O; a LayerNorm
behind it is linear but for a number a row, which shares of a row do not feel: F_ij becomes g·(F_ij − mean(F_ij)). Two
things are made of it without a vector for every cell: the length of each F_ij, by the products ⟨f_h(x_j), f_g(x_j)⟩ of
every pair of heads, and the mixing ratio of a token, how much of what is added up is not its own.

Which block's input is added to a site's results, and whether a LayerNorm follows on the way on, is found out by looking
on at one small forward, as in `model.anatomy`.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from headscope.heads import Site
from headscope.model.anatomy import anatomy
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


def block_input(args: Any, kwargs: Any) -> Tensor:
    """The states that a block was called with."""
    given = (one for one in (*args, *kwargs.values()) if isinstance(one, Tensor))
    return next(one for one in given if one.is_floating_point())


def additions(model: AttentionModel) -> dict[Site, Addition]:
    """Of every site of a text that attends to itself; sites where the sum is not found are left out."""
    parts = {
        site: part
        for site, part in anatomy(model).items()
        if part.projection and site.stack != "cross"
    }
    modules = dict(model.model.named_modules())
    names = {module: name for name, module in modules.items()}
    blocks = {part.block for part in parts.values()}
    by_projection = {part.projection for part in parts.values()}
    entered: list[tuple[str, Tensor]] = []  # blocks with their input, in order
    normed: list[Tensor] = []  # what norms took since the last block began
    written: list[Tensor] = []  # what a projection gave, until a norm has taken the sum
    found: list[tuple[str, nn.Module, bool]] = []

    def enter(module: nn.Module, args: Any, kwargs: Any) -> None:
        entered.append((names[module], block_input(args, kwargs)))
        normed.clear()
        written.clear()

    def write(module: nn.Module, args: Any, output: Tensor) -> None:
        written.append(output)

    def norm(module: nn.Module, args: Any) -> None:
        if not (written and entered):
            normed.append(args[0])
            return
        block, states = entered[-1]
        is_as_wide = states.shape == written[-1].shape  # not behind MobileBERT's bottleneck
        if is_as_wide and _close(args[0], states + written[-1]):
            is_before = any(_close(one, states) for one in normed)
            found.append((block, module, is_before))
            written.clear()
        normed.append(args[0])

    with ExitStack() as stack, torch.inference_mode(), model.suspend_hooks():
        for name, module in modules.items():
            if name in blocks:
                stack.callback(
                    module.register_forward_pre_hook(enter, with_kwargs=True, prepend=True).remove
                )
            if name in by_projection:
                stack.callback(module.register_forward_hook(write).remove)
            if "Norm" in type(module).__name__:
                stack.callback(module.register_forward_pre_hook(norm).remove)
        main_output(model, sample_inputs(model, batch=2))
    return _placed(parts, found)


def _placed(
    parts: dict[Site, Any], found: list[tuple[str, nn.Module, bool]]
) -> dict[Site, Addition]:
    """The sums in their order are those of the sites in theirs; a stack where norms come first has none behind."""
    placed: dict[Site, Addition] = {}
    before = {
        site.stack
        for site, part in parts.items()
        for block, _, first in found
        if first and block == part.block
    }
    for site, part in parts.items():
        mine = [norm for block, norm, _ in found if block == part.block]
        if not mine:
            continue
        norm = mine[min(part.turn, len(mine) - 1)]
        is_behind = (
            site.stack not in before and isinstance(norm, nn.LayerNorm) and norm.weight is not None
        )
        placed[site] = Addition(part.block, norm.weight.detach() if is_behind else None)
    return placed


def _close(one: Tensor, other: Tensor) -> bool:
    size = float(other.abs().max())
    return one.shape == other.shape and float((one - other).abs().max()) <= 1e-5 * max(size, 1e-6)


def forms_of(attention: Attention) -> tuple[str, ...]:
    """What can be told of a site through the norm lens."""
    layer = attention.layer
    assert layer is not None
    if not attention.within_one_text:
        return FORMS[:1]
    return FORMS if layer.gain is not None else FORMS[: 1 if layer.residual is None else 2]


def contribution_shares(attention: Attention) -> dict[str, Tensor]:
    """By form, [sequence, query, key]: the length of what all heads together bring from a key, as shares of a row."""
    layer, values = attention.layer, attention.values
    assert layer is not None
    assert values is not None
    weights = attention.raw.weights.permute(0, 3, 1, 2).contiguous()  # [sequence, key, head, query]
    found = {}
    for gain in (None,) if layer.gain is None else (None, layer.gain):
        brought = torch.einsum("shkd,hod->skho", values, _blocks_through(layer.blocks, gain))
        products = brought @ brought.transpose(-1, -2)  # [sequence, key, head, head]
        squares = (products @ weights).mul_(weights).sum(dim=-2).transpose(1, 2)
        if gain is None:
            found["norm"] = _shares(squares.clone())
        if layer.residual is not None and attention.within_one_text:
            own = _through(layer.residual, gain)
            diagonal = torch.diagonal(attention.raw.weights, dim1=-2, dim2=-1).transpose(
                1, 2
            )  # [sequence, query, head]
            cross = ((diagonal[..., None, :] @ brought)[..., 0, :] * own).sum(dim=-1)
            torch.diagonal(squares, dim1=-2, dim2=-1).add_(2 * cross + own.square().sum(dim=-1))
            found["norm-residual" if gain is None else "norm-layernorm"] = _shares(squares)
    return found


def _shares(squares: Tensor) -> Tensor:
    lengths = squares.clamp_min_(0).sqrt_()
    return lengths / lengths.sum(dim=-1, keepdim=True).clamp_min(torch.finfo(lengths.dtype).tiny)


def mixing_ratios(attention: Attention) -> dict[str, Tensor]:
    """By form, [sequence, query]: the share of others in what is added up for a token. Vectors are summed first."""
    layer, values = attention.layer, attention.values
    assert layer is not None
    assert values is not None
    weights = attention.raw.weights
    diagonal = torch.diagonal(weights, dim1=-2, dim2=-1)
    own = values * diagonal[..., None]
    into = layer.blocks.permute(0, 2, 1).flatten(0, 1)  # [head and width, out]
    mine = own.transpose(1, 2).flatten(2) @ into
    others = (weights @ values - own).transpose(1, 2).flatten(2) @ into
    by_weight = 1 - diagonal.mean(dim=1)
    found = {"weight": by_weight, "weight-residual": by_weight / 2}
    for form in forms_of(attention):
        gain = layer.gain if form == "norm-layernorm" else None
        kept = mine if form == "norm" or layer.residual is None else mine + layer.residual
        far, near = (_through(one, gain).norm(dim=-1) for one in (others, kept))
        found[form] = far / (far + near)
    return found


def _blocks_through(blocks: Tensor, gain: Tensor | None) -> Tensor:
    """The output projection [head, out, width] with the LayerNorm behind it, which costs less than on what it gives."""
    return blocks if gain is None else _through(blocks.transpose(1, 2), gain).transpose(1, 2)


def _through(vectors: Tensor, gain: Tensor | None) -> Tensor:
    """Vectors [..., out] through a LayerNorm, but for the number that it divides a row by."""
    return (
        vectors
        if gain is None
        else (vectors - vectors.mean(dim=-1, keepdim=True)) * gain.to(vectors)
    )
