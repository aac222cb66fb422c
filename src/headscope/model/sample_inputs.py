"""Small inputs for test forward passes, and the output by which two runs of a model are compared."""

from __future__ import annotations

import inspect
from itertools import islice
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from headscope.model.bfloat16 import prepare_bfloat16

if TYPE_CHECKING:
    from headscope.model.attention_model import AttentionModel

TOKENS = 9  # length of the inputs
# Token ids that exist in nearly every vocabulary; most of them are not special.
USUAL_IDS = range(3, 40)


def sample_inputs(model: AttentionModel, batch: int) -> dict[str, Tensor]:
    """Inputs of a forward pass: a few tokens per sequence, or an image of noise.

    The last third of the second sequence is padding.
    """
    config = model.model.config
    if not model.family.takes_text:
        size = config.image_size
        height, width = size if isinstance(size, tuple | list) else (size, size)
        noise = torch.Generator().manual_seed(0)
        pixels = torch.randn(batch, config.num_channels, height, width, generator=noise)
        return {"pixel_values": pixels.to(model.device)}
    vocabulary, padding = config.vocab_size, getattr(config, "pad_token_id", None)
    length = min(TOKENS, getattr(config, "max_position_embeddings", None) or TOKENS)
    usual = range(min(USUAL_IDS.start, vocabulary - 1), min(vocabulary, USUAL_IDS.stop))
    tokens = [token for token in usual if token != padding][:length]
    ids = torch.tensor([tokens] * batch, device=model.device)
    mask = torch.ones_like(ids)
    if batch > 1:
        padded = slice(len(tokens) * 2 // 3, None)
        mask[1, padded] = 0
        ids[1, padded] = padding if padding is not None and 0 <= padding < vocabulary else 0
    inputs = {"input_ids": ids, "attention_mask": mask}
    if model.is_encoder_decoder:
        # Shorter than the source, so that the query and key axes of cross attention have different lengths.
        shorter = slice(max(1, len(tokens) - 2))
        inputs["decoder_input_ids"] = ids[:, shorter]
        inputs["decoder_attention_mask"] = mask[:, shorter]
    further = model.family.dry_inputs(inputs)
    return inputs | {name: value.to(model.device) for name, value in further.items()}


def run_base_model(model: AttentionModel, inputs: dict[str, Tensor]) -> Any:
    """The output of the base model (without classifier or language model head), computed without a cache."""
    prepare_for_dtype(model)
    base = model.model.base_model
    return base(**inputs, **({"use_cache": False} if accepts(base, "use_cache") else {}))


def main_output(model: AttentionModel, inputs: dict[str, Tensor]) -> Tensor:
    """The first output of the base model at real tokens, as a flat float32 vector."""
    output: Tensor = run_base_model(model, inputs)[0]
    mask = inputs.get("decoder_attention_mask", inputs.get("attention_mask"))
    if mask is not None and output.dim() == 3 and output.shape[:2] == mask.shape:
        output = output[mask.bool()]
    return output.float().flatten()


def prepare_for_dtype(model: AttentionModel) -> None:
    """Make bfloat16 safe to use (`prepare_bfloat16`), since the model may have been cast after loading.

    Only the first parameter is checked, because this runs before every forward pass.
    """
    prepare_bfloat16(*islice(model.model.parameters(), 1))


def accepts(module: nn.Module, argument: str) -> bool:
    """Whether the forward method of a module has an argument of this name."""
    return argument in inspect.signature(module.forward).parameters
