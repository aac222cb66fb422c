"""The role `broad`: no weight of a content token should be large."""

from __future__ import annotations

from headscope.analysis.examples._question import TokenQuestion, content_rows
from headscope.model.tokens import Tokens


def among_tokens(role: str, query: Tokens, key: Tokens) -> TokenQuestion | None:
    if role != "broad":
        return None
    return TokenQuestion(content_rows(query, key), is_broad=True)
