"""The role `block`: the largest weight of a content token should be in its own segment."""

from __future__ import annotations

from headscope.analysis.examples._question import TokenQuestion, content_rows
from headscope.model.tokens import Tokens


def among_tokens(role: str, query: Tokens, key: Tokens) -> TokenQuestion | None:
    if role != "block" or query.segments is None or query is not key:
        return None
    everywhere = content_rows(query, key)
    segments = query.segments[0].cpu().numpy()
    return TokenQuestion((segments[:, None] == segments) & everywhere)
