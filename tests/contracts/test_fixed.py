"""Heads that follow a fixed pattern: they attend just so, in every family, and the others as before."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from headscope.ablation.modes.fixed import nearest_patterns
from headscope.errors import HeadscopeError
from headscope.heads import Site
from headscope.model.attention import Attention
from headscope.model.attention_model import AttentionModel
from headscope.model.fixed_patterns import LOOK_AHEAD, PATTERNS, Fixed, fixed_pattern
from tiny import (
    CASES,
    DECODERS,
    at_real_tokens,
    batch_for,
    examples,
    family_of_case,
    inputs_for,
    outputs,
    shared,
)
from toys import Means, means_of


def seen_on(model: AttentionModel, batch: object) -> dict[tuple[Site, int], Tensor]:
    result: dict[tuple[Site, int], Tensor] = {}

    def see(attention: Attention) -> None:
        for index, row in enumerate(range(attention.rows.start, attention.rows.stop)):
            result[attention.site, row] = attention.weights[index].clone()

    with torch.no_grad(), model.watched(see):
        model(batch)  # type: ignore[arg-type]
    return result


# Mistral and ModernBERT see a window only; XLNet's second stream hides tokens of its own.
WIDE = [case for case in CASES if case not in ("mistral", "modernbert", "xlnet/two-streams")]
POSSIBLE = [
    (case, name)
    for case in WIDE
    for name in PATTERNS
    if case not in DECODERS or name not in LOOK_AHEAD
]


@pytest.mark.product
@pytest.mark.parametrize(("case", "name"), POSSIBLE)
def test_a_head_attends_by_its_pattern_and_the_others_as_before(case: str, name: str) -> None:
    family = family_of_case(case)
    model = shared(family)
    heads = [
        head for head in model.heads if head.stack in ("encoder", "decoder") and head.head == 1
    ]
    if name in LOOK_AHEAD:
        heads = [head for head in heads if head.stack == "encoder"]
    assert heads
    batch = batch_for(model, examples(case)[:4])
    plain = seen_on(model, batch)
    with model.edited(Fixed(dict.fromkeys(heads, name))):
        result = seen_on(model, batch)
    sites = {head.site for head in heads}
    for (site, row), weights in result.items():
        if site in sites:
            pattern = fixed_pattern(name, weights.shape[-1], site.stack == "decoder").float()
            assert torch.allclose(weights[1], pattern, atol=1e-5)
        if site.layer == 0 and site.stack == "encoder":
            assert torch.allclose(weights[0], plain[site, row][0], atol=1e-6)


def test_unwatched_is_as_watched_and_gradients_flow_around_it() -> None:
    model = shared("bert")
    inputs = inputs_for("bert", examples("bert")[:4])
    with model.edited(Fixed({"0.*": "previous", "1.2": "end"})):
        result = outputs(model, inputs)
        with torch.no_grad(), model.watched(lambda attention: None):
            assert torch.allclose(
                at_real_tokens(result, inputs),
                at_real_tokens(outputs(model, inputs), inputs),
                atol=1e-5,
            )
        result.sum().backward()
    query = model.model.encoder.layer[0].attention.self.query.weight
    value = model.model.encoder.layer[0].attention.self.value.weight
    assert query.grad is not None
    assert not query.grad.any()  # a fixed head needs no queries
    assert value.grad is not None
    assert value.grad.any()
    model.model.zero_grad()


def test_the_nearest_pattern_of_a_head_that_follows_one_is_that_one() -> None:
    model, task, prepared = shared("bert"), Means(), means_of("bert")
    wanted = {"0.0": "previous", "0.1": "next", "1.0": "uniform", "1.3": "current"}
    with model.edited(Fixed(wanted)):
        result = nearest_patterns(model, task, prepared, batch_size=3)
    assert {
        f"{head.layer}.{head.head}": name for head, name in result.items()
    }.items() >= wanted.items()


def test_what_cannot_be_fixed_is_refused() -> None:
    with pytest.raises(HeadscopeError, match='"spiral" is not a fixed pattern'):
        Fixed({"0.1": "spiral"})
    with (
        pytest.raises(HeadscopeError, match="cannot look ahead, as next does"),
        shared("gpt2").edited(Fixed({"0.1": "next"})),
    ):
        pass
    across = shared("marian").edited(Fixed({"cross.0.1": "first"}))
    with pytest.raises(HeadscopeError, match="reads one text and attends to another"), across:
        pass
