"""The seam's backend for most families: an attention function and a mask function, registered with transformers.

transformers calls the attention function that is named in a module's configuration. While the seam is open, all
configurations of a model name headscope's function. The function finds its seam in an attribute of the attention
module (`ATTRIBUTE`).
"""

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

# Must not contain "flash", "sdpa" or "flex": transformers checks such names for their requirements.
IMPLEMENTATION = "headscope"
ATTRIBUTE = "_headscope"  # of an attention module: (seam, name of the module)
# Keyword arguments that attention modules pass to the function, but that do not change the weights any more: masks and
# positions were already applied to mask, queries and keys.
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
    """The attention function that transformers calls while the seam is open.

    query, key, value  [batch, head, token, width]

    Returns the heads' outputs [batch, query, head, width], and None in place of weights.
    """

    def library_kernel() -> Tensor:
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

    address: tuple[Seam, str] | None = module.__dict__.get(ATTRIBUTE)
    if address is None:  # a module of another model that shares the configuration object
        return library_kernel(), None
    # An unknown argument may change the weights: an error is better than wrong numbers.
    unknown = [
        name for name, value in others.items() if isinstance(value, Tensor) and name not in HARMLESS
    ]
    if unknown or others.get("softcap") is not None:
        raise HeadscopeError(
            f"{type(module).__name__} attends with {', '.join(unknown) or 'softcap'}: not supported"
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
    seam, name = address
    return seam.attend(name, call, library_kernel), None


def attend_by_library(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    position_bias: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attention by transformers' SDPA kernel: (outputs [batch, query, head, width], None).

    In a module with fixed heads the kernel computes only the other heads, and the outputs of fixed heads are inserted.
    """
    fixed = get_fixed_heads(module)
    if fixed is None:
        output: Tensor = sdpa_attention_forward(
            module, query, key, value, attention_mask, position_bias=position_bias, **others
        )[0]
        return output, None
    learned = None
    if indices := fixed.learned:
        bias = None if position_bias is None else position_bias[:, indices]
        learned = sdpa_attention_forward(
            module, query, key, value[:, indices], attention_mask, position_bias=bias, **others
        )[0]
    return combine_heads(fixed, learned, value, attention_mask, query.shape[2]), None


# A mask function must be registered under the same name: without it, transformers silently makes no mask at all, so
# that padding is attended to and causal models see later tokens.
for _name, _function in ((IMPLEMENTATION, attend), (WITH_FIXED, attend_by_library)):
    AttentionInterface.register(_name, _function)
    AttentionMaskInterface.register(_name, sdpa_mask)


@contextmanager
def open_interface(seam: Seam) -> Iterator[None]:
    """While open, route the attention of the seam's model through the seam."""
    # In the test forward pass that finds the sites they are not known yet: then every module gets the attribute.
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
    """The configuration objects of a model and its parts, each once."""
    configs = (getattr(module, "config", None) for module in root.modules())
    by_id = {id(c): c for c in configs if hasattr(c, "_attn_implementation_internal")}
    return list(by_id.values())
