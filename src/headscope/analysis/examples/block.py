"""The role `block`: the largest weight of a content token should be in its own segment."""

from __future__ import annotations

from headscope.analysis.examples._question import RoleQuestion, content_rows
from headscope.model.tokens import Tokens


def among_tokens(role: str, query: Tokens, key: Tokens, row: int) -> RoleQuestion | None:
    if role != "block" or query.segments is None or query is not key:
        return None
    everywhere = content_rows(query, key, row)
    segments = query.segments[row].cpu().numpy()
    return RoleQuestion((segments[:, None] == segments) & everywhere, everywhere)
