"""Layer-wise relevance of tokens, by the rules of Voita and of AttnLRP."""

from __future__ import annotations

import numpy as np

from headscope.analysis.token_map_result import TokenMap
from headscope.errors import HeadscopeError
from headscope.model.one_input import OneInput
from headscope.model.relevance.maps import relevance_map
from headscope.model.relevance.rules import RULES

TAKES_TARGET = True
HOW = (
    "Relevance (LRP): how much a token at the input of the layer contributes to the output ({what}{only}); in layer 0, "
    "how much its embedding does. Negative numbers lower the output. With the rules of Voita, a row of layer 0{across} "
    "sums to the output minus what the biases contribute."
)


def compute_map(text: OneInput) -> TokenMap:
    """Relevance maps of one input, one form for each set of rules."""
    if text.model.is_encoder_decoder and "decoder_input_ids" not in text.batch.inputs:
        raise HeadscopeError(
            f"{text.model.name} has no output for a source alone",
            where="lens relevance",
            expected="a source and its target",
            fix="Give the target as the second text",
        )
    requested = None if text.target is None else [text.target]
    by_rules = [
        relevance_map(text.model, text.batch, targets=requested, rules=rules) for rules in RULES
    ]
    first, targets = by_rules[0], by_rules[0].targets
    maps = {}
    for stack, cells in first.maps.items():
        sides = text.batch.layout.sides(stack)
        assert sides is not None
        shape = (len(cells), len(RULES), sides[0].length, sides[1].length)
        maps[stack] = np.zeros(shape, dtype=np.float32)
        for form, result in enumerate(by_rules):
            maps[stack][:, form, list(result.targets)] = result.maps[stack]
    only = "" if len(targets) > 1 else f"; token {targets[0]} has the one row that is filled"
    across = ", of source and target together," if "cross" in maps else ""
    how = HOW.format(what=first.what, only=only, across=across)
    return TokenMap("relevance", maps, how, text.tokens(maps), RULES, shares=False)
