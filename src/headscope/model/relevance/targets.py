"""A model's output as one number for each sequence, whose relevance is attributed to the inputs.

For a language model the largest logit at one position, for a classifier the largest logit; for a bare encoder the
component of the text's vector (`model.reading`) along a given direction, with its length held fixed (a cosine does not
change with the length of the vector, so that its parts would add up to 0).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from headscope.model.attention_model import AttentionModel
from headscope.model.tokens import Batch


def largest_logit_at(
    model: AttentionModel, batch: Batch | Mapping[str, Tensor], positions: Sequence[int]
) -> Tensor:
    """[sequence]: a language model's largest logit at one position of each sequence, without its constant bias."""
    columns = torch.as_tensor(positions, device=model.device)
    rows = torch.arange(len(columns), device=model.device)

    def pick(module: nn.Module, args: tuple[Tensor, ...]) -> Any:
        return (args[0][rows, columns][:, None], *args[1:]) if args[0].dim() == 3 else None

    handle = model.model.get_output_embeddings().register_forward_pre_hook(pick)
    try:
        logits: Tensor = model(batch).logits
    finally:
        handle.remove()
    # MobileBERT's head never calls its output embeddings and gives logits at all positions.
    logits = logits[:, 0] if logits.shape[1] == 1 else logits[rows, columns]
    top = logits.argmax(dim=-1)
    constant: Tensor | None = getattr(model.model, "final_logits_bias", None)
    return logits[rows, top] if constant is None else logits[rows, top] - constant[0, top]


def largest_logit(logits: Tensor) -> Tensor:
    """[sequence]: the logit of the predicted class."""
    return logits.max(dim=-1).values


def component_along(vectors: Tensor, directions: Tensor | None = None) -> Tensor:
    """[sequence]: the component of a vector along a direction, as a share of its length; along itself: 1.

    vectors, directions  [sequence, width]; directions are of length 1
    """
    held = vectors.detach()
    length = held.norm(dim=-1, keepdim=True).clamp_min(1e-30)
    along = held / length if directions is None else directions.to(vectors)
    components: Tensor = (vectors * (along / length)).sum(dim=-1)
    return components
