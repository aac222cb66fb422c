"""Attention between words, from attention between the tokens (pieces) that they consist of.

Attention to a word is the sum over its pieces, attention from a word the mean over its pieces (Clark et al. 2019). The
code released with that paper uses only the first piece of the attending word, as `pool="first"` does. Attention to
special tokens is stored separately (`outside`), so that a word's row and its attention outside sum to 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from headscope.errors import HeadscopeError, choices
from headscope.model.tokens import Tokens

Pool = Literal["mean", "first", "max"]


@dataclass(frozen=True)
class WordAttention:
    """The attention between words at one site. Sequences may have different numbers of words.

    weights   [sequence, head, query word, key word]; 0 in rows and columns of words that a sequence does not have
    outside   [sequence, head, query word]: the attention of a word to special tokens
    queries   [sequence, query word], bool: whether a sequence has this query word
    keys      [sequence, key word], bool: whether a sequence has this key word
    """

    weights: Tensor
    outside: Tensor
    queries: Tensor
    keys: Tensor


# Weights with a smaller relative difference count as equal: rounding differs between batches and must not break ties.
SAME_WEIGHT = 1e-6


def check_pool(pool: str) -> None:
    """Raise if there is no such pooling of pieces."""
    if pool not in get_args(Pool):
        raise HeadscopeError(
            f'"{pool}" is not a pooling of pieces',
            where="pool",
            expected=choices(pool, get_args(Pool)),
        )


def word_attention(
    weights: Tensor, query_tokens: Tokens, key_tokens: Tokens, pool: Pool = "mean"
) -> WordAttention:
    """The attention between words, from weights [sequence, head, query, key] between tokens.

    pool  how the rows of the pieces of a word become one row: their mean, the first, or for each key the largest
          weight, renormalised (max)

    Statistics use `Attention.between_words`, which caches the result.
    """
    check_pool(pool)
    query = pieces_of_words(query_tokens)
    key = query if key_tokens is query_tokens else pieces_of_words(key_tokens)
    queries, keys = query.any(dim=1), key.any(dim=1)
    by_key = weights @ key[:, None].to(weights.dtype)  # [sequence, head, query piece, key word]
    inside = by_key.sum(dim=-1, keepdim=True)
    # The last column is the attention to special tokens: [sequence, head, query piece, key word + 1]
    rows = torch.cat([by_key, weights.sum(dim=-1, keepdim=True) - inside], dim=-1)
    if pool == "max":
        by_word = [
            rows.masked_fill(~is_piece[:, None, :, None], 0.0).amax(dim=2)
            for is_piece in query.unbind(dim=-1)
        ]
        pooled = torch.stack(by_word, dim=2)
        pooled = pooled / pooled.sum(dim=-1, keepdim=True).clamp_min(torch.finfo(pooled.dtype).tiny)
    else:
        pieces = query & (query.cumsum(dim=1) == 1) if pool == "first" else query
        share = pieces / pieces.sum(dim=1, keepdim=True).clamp_min(1)  # [sequence, piece, word]
        pooled = share.transpose(1, 2)[:, None].to(rows.dtype) @ rows
    return WordAttention(pooled[..., :-1], pooled[..., -1], queries, keys)


def mean_between(weights: Tensor, words: Tensor, selected: Tensor) -> Tensor:
    """[head, word, word]: the attention between some words, as with the pool "mean" but without all other words.

    weights   [head, token, token]
    words     [token]: which word a token is a piece of
    selected  [word]: their numbers
    """
    pieces = (words[:, None] == selected).to(weights.dtype)  # [token, word]
    return (pieces / pieces.sum(dim=0)).T @ weights @ pieces


def pieces_of_words(tokens: Tokens) -> Tensor:
    """[sequence, token, word], bool: whether a token is a piece of a word."""
    if tokens.words is None:
        raise HeadscopeError(
            "the words of these tokens are not known", expected="batches from headscope.encode"
        )
    count = int(tokens.words.max()) + 1
    return tokens.words[..., None] == torch.arange(count, device=tokens.words.device)
