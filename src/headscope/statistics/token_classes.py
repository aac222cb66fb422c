"""Kinds of tokens that exclude one another, for tables by layer."""

from __future__ import annotations

import torch
from torch import Tensor

from headscope.model.tokens import Tokens

TOKEN_CLASSES = ("cls", "sep", "first", "punctuation", "other")


def class_columns(tokens: Tokens) -> Tensor:
    """[sequence, token, class], bool: classification token, separators, first token, "." and ",", other content.

    The first token is a class of its own where it is neither of the two before it: in decoders it is the sink. Padding
    must be removed.
    """
    marked = tokens.classification | tokens.separator
    first = torch.zeros_like(marked)
    first[:, 0] = ~marked[:, 0]
    named = [
        tokens.classification,
        tokens.separator & ~tokens.classification,
        first,
        tokens.punctuation & ~first,
    ]
    return torch.stack([*named, tokens.content & ~tokens.punctuation & ~first], dim=-1)
