"""Kinds of tokens that exclude one another, for tables by layer."""

from __future__ import annotations

import torch
from torch import Tensor

from headscope.model.tokens import Tokens

TOKEN_CLASSES = ("cls", "sep", "punctuation", "other")


def class_columns(tokens: Tokens) -> Tensor:
    """[sequence, token, class], bool: classification token, separators, "." and ",", and all other content."""
    named = [tokens.classification, tokens.separator & ~tokens.classification, tokens.punctuation]
    return torch.stack([*named, tokens.content & ~tokens.punctuation], dim=-1)
