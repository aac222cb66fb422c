"""A head that is what a pattern says loses nothing when it is fixed; one that is not loses something."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from headscope.heads import Head
from headscope.model.attention_model import AttentionModel
from headscope.model.fix_heads import fix
from headscope.statistics.fixed_patterns import FixedPatterns
from planted import planted

TEXTS = ["the cat sat on the mat .", "the dog , the cat", "the mat on the mat on the cat ."]


def states(model: AttentionModel, side: str) -> Tensor:
    """Of all tokens but the first, before which there is none."""
    model.tokenizer.padding_side = side
    inputs = model.tokenizer(TEXTS, return_tensors="pt", padding=True)
    real = inputs["attention_mask"]
    inputs["position_ids"] = (real.cumsum(dim=1) - 1).clamp_min(0)
    with torch.inference_mode():
        result = model(**inputs)[0]
    return result[real.bool() & (inputs["position_ids"] > 0)]


def nearest(model: AttentionModel) -> dict[str, str]:
    patterns = FixedPatterns()
    with torch.inference_mode(), model.watched(patterns.update):
        states(model, "right")
    result: dict[Head, list[tuple[float, str]]] = {}
    for row in patterns.table():
        result.setdefault(Head(row.stack, row.layer, row.head), []).append(
            (row.value, row.statistic[3:])
        )
    return {f"{head.layer}.{head.head}": min(rows)[1] for head, rows in result.items()}


@pytest.mark.parametrize("side", ["right", "left"])
def test_a_head_that_follows_a_pattern_loses_nothing_when_fixed(side: str) -> None:
    model = planted(roles={"0.0": "next", "0.1": "previous", "2.0": "previous", "2.1": "next"})
    model.model.double()
    result = nearest(model)
    assert (
        result.items()
        >= {"0.0": "next", "0.1": "previous", "2.0": "previous", "2.1": "next"}.items()
    )
    fixed = fix(model, {name: result[name] for name in ("0.0", "0.1", "2.0")})
    assert (states(fixed, side) - states(model, side)).abs().max() < 1e-9


def test_a_head_that_looks_for_a_word_loses_something() -> None:
    model = planted(roles={"2.0": "previous", "2.1": "cat"})
    model.model.double()
    fixed = fix(model, {"2.1": nearest(model)["2.1"]})
    assert (states(fixed, "right") - states(model, "right")).abs().max() > 1e-6
