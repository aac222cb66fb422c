"""Roles of one kind of token: the largest weight of a content token should be on a token of this kind."""

from __future__ import annotations

from headscope.analysis.examples._question import TokenQuestion, content_rows
from headscope.model.tokens import Tokens

MARKED = {  # role: attribute of `Tokens`
    "classification token": "classification",
    "separators": "separator",
    "special tokens": "special",
    "punctuation": "punctuation",
    "confident": "content",
}


def among_tokens(role: str, query: Tokens, key: Tokens) -> TokenQuestion | None:
    if role not in MARKED:
        return None
    marked = getattr(key, MARKED[role])[0].cpu().numpy()
    return TokenQuestion(content_rows(query, key) & marked)
