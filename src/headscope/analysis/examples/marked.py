"""Roles of tokens of one kind: the largest weight of a content token should be on a separator, on punctuation …"""

from __future__ import annotations

from headscope.analysis.examples._question import TokenQuestion, content_rows
from headscope.model.tokens import Tokens

MARKED = {
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
