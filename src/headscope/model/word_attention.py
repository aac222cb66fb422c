"""Attention between words instead of pieces.

A word's columns are summed over its pieces; its rows are averaged over them (Clark et al. 2019; their released code
takes the first piece only, which `pool="first"` imitates). Attention to special tokens is counted separately, so that
a word's row and its mass outside sum to 1.
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
    """One site's attention between words, over sequences that may have different numbers of words.

    weights     [sequence, head, query word, key word]; 0 in rows and columns of words a sequence does not have
    outside     [sequence, head, query word]: the attention of a word to special tokens
    queries     [sequence, query word]: whether the sequence has this word; keys: the same for the key side
    """

    weights: Tensor
    outside: Tensor
    queries: Tensor
    keys: Tensor


SAME_WEIGHT = 1e-6  # relative: rounding differs from batch to batch, and must not break ties


def check_pool(pool: str) -> None:
    if pool not in get_args(Pool):
        raise HeadscopeError(
            f'"{pool}" is not a pooling of pieces',
            where="pool",
            expected=choices(pool, get_args(Pool)),
        )


def word_attention(
    weights: Tensor, query_tokens: Tokens, key_tokens: Tokens, pool: Pool = "mean"
) -> WordAttention:
    """Attention between words from weights [sequence, head, query, key] between tokens.

    `pool` combines the rows of a word's pieces: their mean, the first, or the largest weights, renormalised. Statistics
    use `Attention.between_words`, which is computed once for all of them.
    """
    check_pool(pool)
    query = pieces_of_words(query_tokens)
    key = query if key_tokens is query_tokens else pieces_of_words(key_tokens)
    queries, keys = query.any(dim=1), key.any(dim=1)
    by_key = weights @ key[:, None].to(weights.dtype)  # [sequence, head, query piece, key word]
    inside = by_key.sum(dim=-1, keepdim=True)
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
        share = pieces / pieces.sum(dim=1, keepdim=True).clamp_min(1)
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
    """[sequence, token, word]: whether a token is a piece of a word; words are counted from 0."""
    if tokens.words is None:
        raise HeadscopeError(
            "the words of these tokens are not known", expected="batches from headscope.encode"
        )
    count = int(tokens.words.max()) + 1
    return tokens.words[..., None] == torch.arange(count, device=tokens.words.device)
