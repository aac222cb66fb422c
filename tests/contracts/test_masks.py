"""Every named mask on every family: forbidden keys get nothing, the rest is what it would be without them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from headscope.errors import HeadscopeError
from headscope.heads import Site
from headscope.masks import Masked, read_mask
from headscope.masks.patterns import PATTERNS
from headscope.model.attention import Attention
from headscope.model.attention_model import AttentionModel
from headscope.model.edits import MaskScores
from tiny import (
    CASES,
    DECODERS,
    ENCODER_DECODERS,
    MOVED_BY_LEFT_PADDING,
    at_real_tokens,
    batch_for,
    examples,
    family_of_case,
    inputs_for,
    library_attentions,
    outputs,
    real_sides,
    shared,
    tiny,
)

NAMES = [*PATTERNS, "longformer-no-diagonal"]


def expected(name: str, weights: Tensor, queries: Tensor, keys: Tensor) -> Tensor:
    """The library's weights [head, query, key] of a sequence without padding, the forbidden ones taken away by hand."""
    real = weights[:, queries][:, :, keys]
    length = real.shape[-1]
    mask = read_mask(name).at(length)[0]
    result = torch.zeros_like(real)
    for head in range(real.shape[0]):
        for row in range(length):
            left = real[head, row] * mask[row]
            if left.sum() > 0:
                result[head, row] = left / left.sum()
            else:
                result[head, row, row] = 1.0
    return result


def seen_on(model: AttentionModel, batch: object) -> dict[Site, dict[int, Tensor]]:
    result: dict[Site, dict[int, Tensor]] = {}

    def see(attention: Attention) -> None:
        for index, row in enumerate(range(attention.rows.start, attention.rows.stop)):
            result.setdefault(attention.site, {})[row] = attention.weights[index].clone()

    with torch.no_grad(), model.watched(see):
        model(batch)  # type: ignore[arg-type]
    return result


@pytest.mark.product
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("case", CASES)
def test_forbidden_keys_get_nothing_and_the_others_their_share(case: str, name: str) -> None:
    family = family_of_case(case)
    model = shared(family)
    chosen = examples(case)[:5]
    batch = batch_for(model, chosen)
    inputs = inputs_for(family, chosen)
    with model.edited(Masked(name)):
        seen = seen_on(model, batch)
    library = library_attentions(model, inputs)
    for site, rows in seen.items():
        for row, weights in rows.items():
            assert torch.allclose(weights.sum(dim=-1), torch.ones(()), atol=1e-5)
            if site.stack not in ("encoder", "decoder"):
                continue
            mask = read_mask(name).at(weights.shape[-1])[0]
            if case != family:  # XLNet with two streams has hidden tokens of its own
                continue
            queries, keys = (side[row] for side in real_sides(inputs, family, site.stack))
            may = mask & (library[site][row][:, queries][:, :, keys] > 0).any(
                dim=0
            )  # causal, or in a window
            own = torch.eye(len(mask), dtype=torch.bool) & ~may.any(dim=-1, keepdim=True)
            assert not weights[:, ~(may | own)].any()
            if site.layer == 0:  # above it the states differ
                assert torch.allclose(
                    weights, expected(name, library[site][row], queries, keys), atol=2e-5
                )


# The first token of a decoder has nothing but itself to see.
BY_HAND = [(case, name) for case in CASES for name in ("star", "bigbird")]
BY_HAND += [(case, "no-diagonal") for case in CASES if case not in (*DECODERS, *ENCODER_DECODERS)]


@pytest.mark.product
@pytest.mark.parametrize(("case", "name"), BY_HAND)
def test_unwatched_outputs_are_those_of_scores_masked_by_hand(case: str, name: str) -> None:
    family = family_of_case(case)
    model = shared(family)
    chosen = [one for one in examples(case) if one.image is not None or len(one.source) == 12][:2]
    chosen = [one if one.target is None else replace(one, target=one.source) for one in chosen]
    inputs = inputs_for(family, chosen)
    mask = read_mask(name).at(17 if family == "vit" else 12)[None]
    heads = [head for head in model.heads if head.stack in ("encoder", "decoder")]
    with torch.no_grad():
        with model.edited(Masked(name)):
            result = at_real_tokens(outputs(model, inputs), inputs)
        with model.edited(MaskScores(mask, heads)):
            by_hand = at_real_tokens(outputs(model, inputs), inputs)
        plain = at_real_tokens(outputs(model, inputs), inputs)
    assert torch.allclose(result, by_hand, atol=2e-4, rtol=1e-4)
    assert not torch.allclose(result, plain, atol=1e-3)


@pytest.mark.parametrize(
    "case", [case for case in CASES if case not in MOVED_BY_LEFT_PADDING and case != "vit"]
)
def test_padding_on_either_side_is_the_same(case: str) -> None:
    family = family_of_case(case)
    model = shared(family)
    chosen = examples(case)[:5]
    actual = []
    for side in ("right", "left"):
        inputs = inputs_for(family, chosen, side)
        with torch.no_grad(), model.edited(Masked("longformer:width=1,globals=first/last")):
            actual.append(at_real_tokens(outputs(model, inputs), inputs))
    assert torch.allclose(*actual, atol=2e-4, rtol=1e-4)


def test_special_tokens_stay_open_only_where_they_are_known() -> None:
    """A decoder that generates with a cache is given its last token alone."""
    model = tiny("gpt2", head=AutoModelForCausalLM)
    ids = torch.tensor([[5, 6, 7]])
    with model.edited(Masked("window", open_special=True)):
        model.model(input_ids=ids, use_cache=False)
        with pytest.raises(HeadscopeError, match="got keys from a cache"):
            model.model.generate(ids, max_new_tokens=2)


def test_generating_under_a_mask_with_a_cache_is_as_without_one() -> None:
    model = tiny("gpt2", head=AutoModelForCausalLM)
    ids = torch.tensor([[5, 6, 7, 8, 9, 10]])
    with torch.no_grad(), model.edited(Masked("window:width=2")):
        lines = [
            model.model.generate(ids, max_new_tokens=6, do_sample=False, use_cache=cache)
            for cache in (True, False)
        ]
    assert torch.equal(*lines)


def test_special_tokens_can_stay_open() -> None:
    model = shared("bert")
    batch = batch_for(model, examples("bert")[:5])
    with model.edited(Masked("diagonal", open_special=True)):
        seen = seen_on(model, batch)
    tokens = batch.layout.encoder
    assert tokens is not None
    for rows in seen.values():
        for row, weights in rows.items():
            special = tokens.special[row][tokens.real[row]]
            allowed = (
                torch.eye(len(special), dtype=torch.bool) | special[:, None] | special[None, :]
            )
            assert torch.equal(weights > 0, allowed.expand_as(weights))
