"""A model of the same shape that has learned nothing: what a finding looks like when there is nothing to find."""

from __future__ import annotations

import copy

import torch

from headscope.model.attention_model import AttentionModel
from headscope.model.precision import cast


def random_twin(model: AttentionModel, seed: int = 0) -> AttentionModel:
    """The same architecture and tokenizer with freshly drawn weights, embeddings included."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        untrained = type(model.model)(copy.deepcopy(model.model.config))
    cast(untrained, model.model.dtype)
    untrained = untrained.to(model.device).eval()
    name = f"{model.name} with random weights"
    return AttentionModel(untrained, model.tokenizer, name=name, reading=model.reading).wear(
        *model.worn
    )
