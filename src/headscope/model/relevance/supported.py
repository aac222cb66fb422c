"""The models that the rules of relevance cover, and the check that relevance adds up."""

from __future__ import annotations

import torch
from torch import Tensor

from headscope.errors import HeadscopeError
from headscope.model.attention_model import AttentionModel
from headscope.model.families import families
from headscope.model.relevance.sums import RelevanceSums

TOLERANCE = 1e-3  # share of the output; rounding makes about 1e-6 in float32


def supported_types() -> tuple[str, ...]:
    """The model types that relevance is tested on."""
    return tuple(name for name, family in families().items() if family.takes_text)


def check_supported(model: AttentionModel) -> None:
    """Refuse a family whose layers the rules do not cover, and numbers too coarse for them."""
    kind = model.model.config.model_type
    if kind not in supported_types():
        raise HeadscopeError(
            f"the rules of relevance do not cover the layers of {kind}",
            where=model.name,
            expected=f"one of {', '.join(supported_types())}",
        )
    if model.model.dtype.itemsize < 4:
        raise HeadscopeError(
            f"in {str(model.model.dtype).removeprefix('torch.')} relevances do not add up",
            where=model.name,
            fix="Load it with dtype float32",
        )


def check_adds_up(model: AttentionModel, sums: RelevanceSums, outputs: Tensor) -> None:
    """Refuse a model whose output is not made up of inputs and biases: something is neither linear nor covered."""
    by_part = [*(part.sum(dim=-1) for part in sums.inputs.values()), *sums.biases.values()]
    parts = torch.stack([part.double().cpu() for part in by_part])  # [part, sequence]
    whole = outputs.detach().double().cpu()
    sizes = torch.maximum(whole.abs(), parts.abs().sum(dim=0))
    # Over the whole batch: a sequence with an output near 0 would need more digits than there are.
    missing = float((whole - parts.sum(dim=0)).abs().sum() / sizes.sum().clamp_min(1e-30))
    if not missing < TOLERANCE:
        raise HeadscopeError(
            f"relevance does not add up in this {type(model.model).__name__}: {missing:.1%} came from layers that "
            "the rules do not cover",
            where=model.name,
            expected=f"a model built as transformers' {', '.join(supported_types())}",
        )
