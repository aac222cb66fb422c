"""Which models the rules of relevance cover, and a check that the relevances of a model sum to its output."""

from __future__ import annotations

import torch
from torch import Tensor

from headscope.errors import HeadscopeError
from headscope.model.attention_model import AttentionModel
from headscope.model.families import families
from headscope.model.relevance.sums import RelevanceSums

TOLERANCE = 1e-3  # relative to the output; rounding in float32 causes about 1e-6


def supported_types() -> tuple[str, ...]:
    """The model types that relevance is tested on: all text models that headscope supports."""
    return tuple(name for name, family in families().items() if family.takes_text)


def check_supported(model: AttentionModel) -> None:
    """Raise if the rules do not cover the layers of this model type, or if the dtype is less precise than float32."""
    model_type = model.model.config.model_type
    if model_type not in supported_types():
        raise HeadscopeError(
            f"the rules of relevance do not cover the layers of {model_type}",
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
    """Raise if the relevances of inputs and biases do not sum to the output: a nonlinear layer is not covered.

    Holds for the rules "voita" only. outputs  [sequence]
    """
    relevances = [
        *(by_token.sum(dim=-1) for by_token in sums.inputs.values()),
        *sums.biases.values(),
    ]
    terms = torch.stack([relevance.double().cpu() for relevance in relevances])  # [term, sequence]
    expected = outputs.detach().double().cpu()
    sizes = torch.maximum(expected.abs(), terms.abs().sum(dim=0))
    # Relative to the sum over the batch: for a single sequence with an output near 0, rounding alone would be too much.
    missing = float((expected - terms.sum(dim=0)).abs().sum() / sizes.sum().clamp_min(1e-30))
    if not missing < TOLERANCE:
        raise HeadscopeError(
            f"relevance does not add up in this {type(model.model).__name__}: {missing:.1%} came from layers that "
            "the rules do not cover",
            where=model.name,
            expected=f"a model built as transformers' {', '.join(supported_types())}",
        )
