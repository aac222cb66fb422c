"""Mutually exclusive classes of tokens, for tables by layer."""

from __future__ import annotations

import torch
from torch import Tensor

from headscope.model.tokens import Tokens

TOKEN_CLASSES = ("cls", "sep", "first", "punctuation", "other")


def class_columns(tokens: Tokens) -> Tensor:
    """[sequence, token, class], bool: classification token, separators, first token, "." and ",", other content.

    The first token is a class of its own, unless it is a classification token or separator, because it is the usual
    sink in decoders. Padding must be removed.
    """
    special = tokens.classification | tokens.separator
    first = torch.zeros_like(special)
    first[:, 0] = ~special[:, 0]
    separator = tokens.separator & ~tokens.classification
    punctuation, other = tokens.punctuation & ~first, tokens.content & ~tokens.punctuation & ~first
    return torch.stack([tokens.classification, separator, first, punctuation, other], dim=-1)
