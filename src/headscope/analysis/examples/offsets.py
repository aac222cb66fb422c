"""Positional roles: the largest weight of a content token should be at a fixed offset."""

from __future__ import annotations

import numpy as np

from headscope.analysis.examples._question import RoleQuestion, content_rows
from headscope.model.tokens import Tokens
from headscope.study.schema.names import RoleName

OFFSETS = {"previous token": -1, "next token": 1, "itself": 0}


def among_tokens(role: str, query: Tokens, key: Tokens, row: int) -> RoleQuestion | None:
    if query is not key:
        return None
    allowed = content_rows(query, key, row)
    offset = OFFSETS.get(role)
    if (of_role := RoleName.parse(role).offset) is not None:
        offset = of_role
        # The statistic of positional roles counts only keys that are content tokens.
        allowed = allowed & key.content[row].cpu().numpy()
    if offset is None:
        return None
    return RoleQuestion(np.eye(len(allowed), k=offset, dtype=bool) & allowed, allowed)
