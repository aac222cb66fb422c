"""The output of a model as one number per sequence, which relevance attributes to the inputs.

For a language model this is the largest logit at one position, for a classifier the largest logit. For a bare encoder
it is the component of the text's vector (`model.reading`) along a direction, divided by the length of the vector. That
length is held fixed: a true cosine does not change with the length of the vector, so relevances would sum to 0.
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
    """[sequence]: the largest logit of a language model at one position of each sequence.

    Without `final_logits_bias`, a constant that some models add to the logits after the last layer.
    """
    columns = torch.as_tensor(positions, device=model.device)
    rows = torch.arange(len(columns), device=model.device)

    def select_positions(module: nn.Module, args: tuple[Tensor, ...]) -> Any:
        """Reduce states [sequence, token, width] to [sequence, 1, width]: logits at all positions need much memory."""
        return (args[0][rows, columns][:, None], *args[1:]) if args[0].dim() == 3 else None

    handle = model.model.get_output_embeddings().register_forward_pre_hook(select_positions)
    try:
        logits: Tensor = model(batch).logits
    finally:
        handle.remove()
    # MobileBERT multiplies by the weight without calling the module: its logits are those of all positions.
    logits = logits[:, 0] if logits.shape[1] == 1 else logits[rows, columns]
    top = logits.argmax(dim=-1)
    constant: Tensor | None = getattr(model.model, "final_logits_bias", None)
    return logits[rows, top] if constant is None else logits[rows, top] - constant[0, top]


def largest_logit(logits: Tensor) -> Tensor:
    """[sequence]: the logit of the predicted class."""
    return logits.max(dim=-1).values


def component_along(vectors: Tensor, directions: Tensor | None = None) -> Tensor:
    """[sequence]: the component of each vector along a direction, divided by the vector's length, which is held fixed.

    vectors     [sequence, width]
    directions  [sequence, width], of length 1; by default those of the vectors, which gives 1
    """
    constants = vectors.detach()
    length = constants.norm(dim=-1, keepdim=True).clamp_min(1e-30)
    along = constants / length if directions is None else directions.to(vectors)
    components: Tensor = (vectors * (along / length)).sum(dim=-1)
    return components
