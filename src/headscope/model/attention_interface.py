"""The first door to the seam: one attention function (and its mask function) registered with transformers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from headscope.errors import HeadscopeError
from headscope.model.fixed_attention import IMPLEMENTATION as WITH_FIXED
from headscope.model.fixed_attention import combine_heads, get_fixed_heads
from headscope.model.kernels import Call
from headscope.model.seam import Seam

IMPLEMENTATION = (
    "headscope"  # names with "flash", "sdpa" or "flex" in them trigger checks in transformers
)
ATTRIBUTE = "_headscope"
# What attention modules pass along that changes no weight here (the mask already has it).
HARMLESS = frozenset(
    {"position_ids", "cache_position", "position_embeddings", "attention_mask", "input_ids"}
)


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    is_causal: bool | None = None,
    position_bias: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """The attention function that transformers calls for every module whose configuration names it."""

    def own() -> Tensor:
        return attend_by_library(
            module,
            query,
            key,
            value,
            attention_mask,
            dropout=dropout,
            scaling=scaling,
            is_causal=is_causal,
            position_bias=position_bias,
            **others,
        )[0]

    door: tuple[Seam, str] | None = module.__dict__.get(ATTRIBUTE)
    if door is None:  # another model that shares the configuration object
        return own(), None
    strange = [
        name for name, value in others.items() if isinstance(value, Tensor) and name not in HARMLESS
    ]
    if strange or others.get("softcap") is not None:
        raise HeadscopeError(
            f"{type(module).__name__} attends with {', '.join(strange) or 'softcap'}: not supported"
        )
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    call = Call(
        module,
        query,
        key,
        value,
        attention_mask,
        scaling=query.shape[-1] ** -0.5 if scaling is None else scaling,
        dropout=dropout if module.training else 0.0,
        bias=position_bias,
        is_causal=bool(causal) and attention_mask is None and query.shape[2] > 1,
        fixed=get_fixed_heads(module),
    )
    seam, name = door
    return seam.attend(name, call, own), None


def attend_by_library(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    position_bias: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """The library's kernel; of a module with fixed heads for its other heads alone, the fixed ones beside them."""
    fixed = get_fixed_heads(module)
    if fixed is None:
        plain: Tensor = sdpa_attention_forward(
            module, query, key, value, attention_mask, position_bias=position_bias, **others
        )[0]
        return plain, None
    learned = None
    if places := fixed.learned:
        bias = None if position_bias is None else position_bias[:, places]
        learned = sdpa_attention_forward(
            module, query, key, value[:, places], attention_mask, position_bias=bias, **others
        )[0]
    return combine_heads(fixed, learned, value, attention_mask, query.shape[2]), None


# Under one name: with no mask function of that name, transformers silently drops padding and causality.
for _name, _function in ((IMPLEMENTATION, attend), (WITH_FIXED, attend_by_library)):
    AttentionInterface.register(_name, _function)
    AttentionMaskInterface.register(_name, sdpa_mask)


@contextmanager
def open_interface(seam: Seam) -> Iterator[None]:
    """Route the model's attention through the seam while this is open."""
    modules = {
        name: module
        for name, module in seam.root.named_modules()
        if not seam.sites or name in seam.sites
    }
    configs = _configs(seam.root)
    before = [config._attn_implementation_internal for config in configs]
    try:
        for name, module in modules.items():
            module.__dict__[ATTRIBUTE] = (seam, name)
        for config in configs:
            config._attn_implementation_internal = IMPLEMENTATION
        yield
    finally:
        for config, implementation in zip(configs, before, strict=True):
            config._attn_implementation_internal = implementation
        for module in modules.values():
            module.__dict__.pop(ATTRIBUTE, None)


def _configs(root: nn.Module) -> list[Any]:
    """Every distinct configuration object of the model and its parts."""
    found = {}
    for module in root.modules():
        config = getattr(module, "config", None)
        if hasattr(config, "_attn_implementation_internal"):
            found[id(config)] = config
    return list(found.values())
