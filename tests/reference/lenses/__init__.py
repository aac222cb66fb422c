"""The lenses, written from their formulas: every vector is built, the null space is spanned, in float64.

Where the values and the output projection are is known by the names that the library gives them, as nothing here may
lean on how headscope finds them.

A file is the reference of the lens of its name: `compute_map(weights, values, block)` returns one head's map and the
sums of its rows before they are normalised, or None for sums that are not compared. `test_a_lens_is_its_reference`
finds it.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headscope.heads import Site
from headscope.model.attention_model import AttentionModel
from tiny import DECODERS, eager_copy

Array = Any
LENSES = sorted(path.stem.replace("_", "-") for path in Path(__file__).parent.glob("[a-z]*.py"))
# (the module that gives the values, the module that takes the heads' results), by the end of their names
NAMES = {
    "albert": ("attention.value", "attention.dense"),
    "bart": ("v_proj", "out_proj"),
    "deberta-v2": ("self.value_proj", "attention.output.dense"),
    "distilbert": ("v_lin", "out_lin"),
    "gpt2": ("attn.c_attn", "attn.c_proj"),
    "llama": ("v_proj", "o_proj"),
    "modernbert": ("attn.Wqkv", "attn.Wo"),
    "mpnet": ("attn.v", "attn.o"),
    "t5": ("Attention.v", "Attention.o"),
}
ALIKE = {
    **dict.fromkeys(("m2m_100", "marian", "mbart", "pegasus"), "bart"),
    **dict.fromkeys(("mistral", "qwen2", "qwen3", "vit"), "llama"),
    "mt5": "t5",
}
LIKE_BERT = ("self.value", "attention.output.dense")


def values_and_projections(
    model: AttentionModel, inputs: dict[str, Tensor]
) -> dict[Site, tuple[Tensor, Tensor]]:
    """Of each site: values [batch, head, key, width] and the blocks [head, out, width] of the output projection."""
    reference, family = eager_copy(model), model.model.config.model_type
    if family == "xlnet":
        return _of_xlnet(reference, inputs)
    value, output = NAMES.get(ALIKE.get(family, family), LIKE_BERT)
    modules = dict(reference.named_modules())
    result: dict[Site, tuple[Tensor, Tensor]] = {}
    layers: dict[str, int] = {}

    def keep(name: str) -> Callable[..., None]:
        def hook(module: Any, args: Any, hidden: Tensor) -> None:
            stack = _stack(name, family)
            layer = layers.get(stack, 0)
            layers[stack] = layer + 1
            heads = _heads(reference.config, stack)
            block = name.removesuffix(value) + output
            if family == "deberta-v2" or value == "self.value":
                block = name.rpartition(".self.")[0] + ".output.dense"
            weight = modules[block].weight.detach()
            if family == "gpt2":  # transposed, and queries, keys and values side by side
                weight, hidden = weight.T, hidden.chunk(3, dim=-1)[2]
            if family == "modernbert":
                hidden = hidden.unflatten(-1, (3, -1))[..., 2, :]
            blocks = torch.stack(list(weight.chunk(heads, dim=1)))
            by_head = torch.stack(list(hidden.split(blocks.shape[2], dim=-1)), dim=1)
            by_head = torch.stack(
                [by_head[:, h * by_head.shape[1] // heads] for h in range(heads)], dim=1
            )
            result[Site(stack, layer)] = by_head.detach().double(), blocks.double()

        return hook

    for name, module in modules.items():
        if name.endswith("." + value) or name.endswith(value):
            module.register_forward_hook(keep(name))
    with torch.no_grad():
        reference(**inputs)
    return result


def _of_xlnet(reference: Any, inputs: dict[str, Tensor]) -> dict[Site, tuple[Tensor, Tensor]]:
    """Time first, parameters without modules; both streams read the same values."""
    result = {}
    for n, layer in enumerate(reference.layer):

        def hook(module: Any, args: Any, n: int = n) -> None:
            values = torch.einsum("jbd,dhw->bhjw", args[0], module.v)
            for stack in ("encoder", "query"):
                result[Site(stack, n)] = (
                    values.detach().double(),
                    module.o.permute(1, 0, 2).detach().double(),
                )

        layer.rel_attn.register_forward_pre_hook(hook)
    with torch.no_grad():
        reference(**inputs)
    return result


def _stack(name: str, family: str) -> str:
    if "encoder_attn" in name or "EncDec" in name:
        return "cross"
    return "decoder" if name.startswith("decoder") or family in DECODERS else "encoder"


def _heads(config: Any, stack: str) -> int:
    if stack != "encoder" and hasattr(config, "decoder_attention_heads"):
        return int(config.decoder_attention_heads)
    return int(config.num_attention_heads)


def compute_map(
    lens: str, weights: Array, values: Array, block: Array
) -> tuple[Array, Array | None]:
    """One head's map by the reference of a lens, and the sums of its rows if they are compared."""
    module = import_module(f"{__name__}.{lens.replace('-', '_')}")
    result: tuple[Array, Array | None] = module.compute_map(weights, values, block)
    return result
