"""The role `sink`: the largest weight of a content token should be on the first token of the sequence.

The first query is left out: in a causal stack it can attend only to itself. Heads whose sink is another token have no
examples (`_question.heads_with_roles`), since the right position would differ between heads.
"""

from __future__ import annotations

from headscope.analysis.examples._question import TokenQuestion, content_rows
from headscope.model.tokens import Tokens


def among_tokens(role: str, query: Tokens, key: Tokens) -> TokenQuestion | None:
    if role != "sink":
        return None
    right = content_rows(query, key).copy()
    right[:, 1:] = False
    if query is key:
        right[0] = False
    return TokenQuestion(right)
