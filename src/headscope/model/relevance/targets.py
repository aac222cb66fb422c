"""What a model says, as one number a sequence: what relevance is shared out of.

A language model's largest logit at one place, a classifier's at all; of a bare encoder how far its vector of the text
(`model.reading`) reaches in a given direction, its length being held fixed (a cosine does not change with its vector's
length, so that its parts would add up to nothing).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from headscope.model.attention_model import AttentionModel
from headscope.model.tokens import Batch


def largest_logit_at(
    model: AttentionModel, batch: Batch | Mapping[str, Tensor], places: Sequence[int]
) -> Tensor:
    """[sequence]: a language model's largest logit at one place of each sequence, without a constant bias of it."""
    where = torch.as_tensor(places, device=model.device)
    everyone = torch.arange(len(where), device=model.device)

    def pick(module: nn.Module, args: tuple[Tensor, ...]) -> Any:
        return (args[0][everyone, where][:, None], *args[1:]) if args[0].dim() == 3 else None

    handle = model.model.get_output_embeddings().register_forward_pre_hook(pick)
    try:
        logits: Tensor = model(batch).logits
    finally:
        handle.remove()
    # MobileBERT's head never calls its output embeddings, so that all places are there.
    here = logits[:, 0] if logits.shape[1] == 1 else logits[everyone, where]
    top = here.argmax(dim=-1)
    said = here[everyone, top]
    constant: Tensor | None = getattr(model.model, "final_logits_bias", None)
    return said if constant is None else said - constant[0, top]


def largest_logit(logits: Tensor) -> Tensor:
    """[sequence]: the logit of the class that the model says."""
    return logits.max(dim=-1).values


def component_along(vectors: Tensor, directions: Tensor | None = None) -> Tensor:
    """[sequence]: how far a vector goes in a direction, in lengths of itself; in its own: 1 (that is all of it).

    vectors, directions  [sequence, width]; directions are of length 1
    """
    held = vectors.detach()
    length = held.norm(dim=-1, keepdim=True).clamp_min(1e-30)
    wanted = held / length if directions is None else directions.to(vectors)
    found: Tensor = (vectors * (wanted / length)).sum(dim=-1)
    return found
