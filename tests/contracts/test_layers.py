"""What heads add together, with residual and LayerNorm: the cheap form against the tensor of all vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from headscope.heads import Site
from headscope.model.attention import Attention
from headscope.model.attention_model import AttentionModel
from headscope.model.contributions import contribution_shares, mixing_ratios
from reference import lenses as reference
from tiny import batch_for, examples, in_double, library_attentions, real_sides, shared

LENGTHS = ((9, 4), (12, 6), (5, None))
NORM_BEHIND = ("albert", "bert", "bart", "deberta-v2", "distilbert", "marian", "mpnet", "roberta")
NORM_BEFORE = ("gpt2", "llama", "t5", "vit", "esm")


def looked(
    model: AttentionModel, inputs: dict[str, Tensor]
) -> dict[tuple[Site, int], dict[str, Any]]:
    result = {}

    def keep(attention: Attention) -> None:
        first = range(len(next(iter(inputs.values()))))[attention.rows][0]
        ratios = mixing_ratios(attention) if attention.within_one_text else {}
        maps = contribution_shares(attention)
        layer = attention.layer
        assert layer is not None
        for i in range(len(attention.weights)):
            result[attention.site, first + i] = {
                "ratios": {form: one[i].numpy() for form, one in ratios.items()},
                "maps": {form: one[i].numpy() for form, one in maps.items()},
                "residual": None if layer.residual is None else layer.residual[i].numpy(),
                "gain": layer.gain,
            }

    with torch.inference_mode(), model.watched(keep, lens="norm"):
        model(**inputs)
    return result


def taken_by_norms(model: AttentionModel, inputs: dict[str, Tensor], gain: Tensor) -> list[Tensor]:
    """What the LayerNorm with this gain was given in a plain run, call by call."""
    seen: list[Tensor] = []
    norm = next(one for one in model.model.modules() if getattr(one, "weight", None) is not None
                and one.weight.data_ptr() == gain.data_ptr())  # fmt: skip
    handle = norm.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    with torch.inference_mode():
        model.model(**inputs)
    handle.remove()
    return seen


@pytest.mark.parametrize("family", [*NORM_BEHIND, *NORM_BEFORE])
def test_lengths_and_mixing_are_those_of_the_whole_tensor(family: str) -> None:
    model = in_double(shared(family))
    inputs = dict(batch_for(model, examples(family, lengths=LENGTHS)).inputs)
    seen = looked(model, inputs)
    parts = reference.values_and_projections(model, inputs)
    checked = 0
    for site, weights in library_attentions(model, inputs).items():
        queries, keys = real_sides(inputs, family, site.stack)
        for i in range(len(weights)):
            a = weights[i][:, queries[i]][:, :, keys[i]].double().numpy()
            values, blocks = parts[site][0][i][:, keys[i]].numpy(), parts[site][1].numpy()
            moved = np.einsum("hij,hjd,hod->ijo", a, values, blocks)
            call = seen[site, i]
            assert set(call["maps"]) == expected_forms(family, site)
            for form, match in call["maps"].items():
                cells = whole(moved, form, call)
                lengths = np.linalg.norm(cells, axis=-1)
                np.testing.assert_allclose(
                    match, lengths / lengths.sum(axis=1, keepdims=True), atol=1e-5
                )
                if site.stack != "cross":
                    own = np.stack([cells[k, k] for k in range(len(cells))])
                    far = np.linalg.norm(cells.sum(axis=1) - own, axis=-1)
                    ratio = far / (far + np.linalg.norm(own, axis=-1))
                    np.testing.assert_allclose(call["ratios"][form], ratio, atol=1e-5)
                    checked += 1
            if call["ratios"]:
                others = 1 - np.einsum("hii->hi", a).mean(axis=0)
                np.testing.assert_allclose(call["ratios"]["weight"], others, atol=1e-5)
                np.testing.assert_allclose(call["ratios"]["weight-residual"], others / 2, atol=1e-5)
    assert checked


def expected_forms(family: str, site: Site) -> set[str]:
    if site.stack == "cross":
        return {"norm"}
    return (
        {"norm", "norm-residual", "norm-layernorm"}
        if family in NORM_BEHIND
        else {"norm", "norm-residual"}
    )


def whole(moved: Any, form: str, call: dict[str, Any]) -> Any:
    """[query, key, out], the residual where a token meets itself, centred and scaled by the gain; for any row's std."""
    cells = moved.copy()
    if form != "norm":
        for k, own in enumerate(call["residual"]):
            cells[k, k] += own
    if form == "norm-layernorm":
        cells = (cells - cells.mean(axis=-1, keepdims=True)) * call["gain"].double().numpy()
    return cells


@pytest.mark.parametrize("family", NORM_BEHIND)
def test_what_is_added_up_is_what_the_norm_takes(family: str) -> None:
    """Σ_j F_ij + b_O is the LayerNorm's input: the right residual, the right norm."""
    model = in_double(shared(family))
    inputs = dict(batch_for(model, examples(family, lengths=((9, 4), (9, 6)))).inputs)
    seen = looked(model, inputs)
    parts = reference.values_and_projections(model, inputs)
    site = next(site for site in model.sites if site.stack == "encoder")
    weights = library_attentions(model, inputs)[site].double()
    summed = torch.einsum("bhij,bhjd,hod->bio", weights, *parts[site])
    residual = torch.from_numpy(np.stack([seen[site, i]["residual"] for i in range(2)]))
    taken = taken_by_norms(model, inputs, seen[site, 0]["gain"])[0]
    bias = taken - summed - residual
    assert float((bias - bias[0, 0]).abs().max()) < 1e-6, (
        "what is left over is one vector for all tokens: b_O"
    )


def test_nothing_stays_when_the_lens_is_closed() -> None:
    model = shared("bert")
    before = [len(module._forward_pre_hooks) for module in model.model.modules()]
    with pytest.raises(ZeroDivisionError), model.watched(lambda attention: 1 // 0, lens="norm"):
        model(**batch_for(model, examples("bert", lengths=LENGTHS)).inputs)
    assert [len(module._forward_pre_hooks) for module in model.model.modules()] == before
