"""The role `broad`: no weight of a content token should be large."""

from __future__ import annotations

from headscope.analysis.examples._question import RoleQuestion, content_rows
from headscope.model.tokens import Tokens


def among_tokens(role: str, query: Tokens, key: Tokens, row: int) -> RoleQuestion | None:
    if role != "broad":
        return None
    everywhere = content_rows(query, key, row)
    return RoleQuestion(everywhere, everywhere, is_broad=True)
