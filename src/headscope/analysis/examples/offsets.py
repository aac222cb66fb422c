"""Positional roles: the largest weight of a content token should be at a fixed offset."""

from __future__ import annotations

import numpy as np

from headscope.analysis.examples._question import TokenQuestion, content_rows
from headscope.model.tokens import Tokens
from headscope.study.schema.names import RoleName

OFFSETS = {"previous token": -1, "next token": 1, "itself": 0}


def among_tokens(role: str, query: Tokens, key: Tokens) -> TokenQuestion | None:
    if query is not key:
        return None
    right = content_rows(query, key)
    if (offset := RoleName.parse(role).offset) is not None:
        # The statistic of positional roles counts only keys that are content tokens.
        right = right & key.content[0].cpu().numpy()
        return TokenQuestion(np.eye(len(right), k=offset, dtype=bool) & right, among_content=True)
    if role not in OFFSETS:
        return None
    return TokenQuestion(np.eye(len(right), k=OFFSETS[role], dtype=bool) & right)
