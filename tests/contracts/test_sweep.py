"""The fast sweep gives what the plain masked loop gives, on every family, for every kind and mode of ablation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification

from headscope import Ablate, Head
from headscope.ablation.ablation_targets import Variant, variants_of
from headscope.ablation.modes import mode_class
from headscope.ablation.sweep import Sweep, Unit
from headscope.config.names import MODES
from headscope.model.anatomy import anatomy
from headscope.model.attention_model import AttentionModel
from headscope.tasks.base import Task
from headscope.tasks.inference import evaluate, sites_in_use
from headscope.tasks.prepared import Prepared
from tiny import ENCODER_DECODERS, FAMILIES, shared, tiny
from toys import Means, classes_of, means_of

TEXT_FAMILIES = [family for family in FAMILIES if family != "vit"]
BY_ROW = (
    "albert",
    "bert",
    "camembert",
    "data2vec-text",
    "distilbert",
    "electra",
    "ernie",
    "roberta",
    "xlm-roberta",
)
# XLNet's classifier reads the last token, which is padding in these batches, so that it depends on its neighbours.
CLASSIFIERS = [family for family in TEXT_FAMILIES if family not in (*ENCODER_DECODERS, "xlnet")]


def units_of(sweep: Sweep, variants: list[Variant]) -> dict[Variant, Unit]:
    result: dict[Variant, Any] = {}
    for number, items in enumerate(sweep.blocks()):
        for unit in sweep.run(number, items, sweep.groups(variants)):
            for i, variant in enumerate(unit.variants):
                losses, scores = result.setdefault(variant, ({}, {}))
                losses.update(zip(unit.items, unit.losses[i], strict=True))
                scores.update(zip(unit.items, unit.scores[i], strict=True))
    return result


def losses_of(result: dict[Variant, Any], variant: Variant) -> np.ndarray:
    losses = result[variant][0]
    return np.array([losses[i] for i in range(len(losses))])


def masked_loop(
    model: AttentionModel, task: Task, prepared: Prepared, heads: tuple[Head, ...]
) -> np.ndarray:
    with model.edited(Ablate(heads)):
        return evaluate(model, task, prepared, batch_size=3).losses


@pytest.mark.parametrize("family", TEXT_FAMILIES)
def test_removing_each_head_equals_the_plain_masked_loop(family: str) -> None:
    model, task, prepared = shared(family), Means(), means_of(family)
    variants = variants_of(model, "head")
    sweep = Sweep(model, task, prepared, batch_size=3)
    assert sweep.method == ("plain" if family == "xlnet" else "reuse"), sweep.notes
    assert bool(sweep.notes) == (family == "xlnet")
    result = units_of(sweep, variants)
    intact = evaluate(model, task, prepared).losses
    moved = 0.0
    for variant in variants:
        wanted = masked_loop(model, task, prepared, variant.heads)
        scale = max(1.0, float(np.abs(wanted).max()))
        assert np.abs(losses_of(result, variant) - wanted).max() < 2e-5 * scale, variant.named
        moved = max(moved, float(np.abs(wanted - intact).max()))
    assert moved > 1e-3  # or the equality would say nothing


@pytest.mark.parametrize("family", CLASSIFIERS)
def test_a_classifier_s_logits_equal_the_plain_run(family: str) -> None:
    model = tiny(family, head=AutoModelForSequenceClassification, num_labels=3)
    task, prepared = classes_of(family)
    variants = variants_of(model, "head")
    sweep = Sweep(model, task, prepared, batch_size=4)
    assert (sweep.method == "rows") == (family in BY_ROW), (sweep.method, sweep.notes)
    result = units_of(sweep, variants)
    for variant in variants:
        wanted = masked_loop(model, task, prepared, variant.heads)
        assert np.abs(losses_of(result, variant) - wanted).max() < 1e-5, variant.named


@pytest.mark.parametrize("family", ["albert", "bert", "marian", "llama", "t5"])
@pytest.mark.parametrize("kind", ["only", "site", "layer", "pair", "shared"])
def test_every_kind_of_ablation_equals_the_plain_masked_loop(family: str, kind: Any) -> None:
    if kind == "shared" and family != "albert":
        pytest.skip("no layers share their heads")
    model, task, prepared = shared(family), Means(), means_of(family)
    variants = variants_of(model, kind, model.heads[:4] if kind == "pair" else None)
    result = units_of(Sweep(model, task, prepared, batch_size=3), variants)
    for variant in variants:
        wanted = masked_loop(model, task, prepared, variant.heads)
        scale = max(1.0, float(np.abs(wanted).max()))
        assert np.abs(losses_of(result, variant) - wanted).max() < 2e-5 * scale, variant.named


@pytest.mark.parametrize("family", ["albert", "bert", "marian", "gpt2", "xlnet"])
@pytest.mark.parametrize("mode", MODES[1:])
def test_other_ablations_equal_the_plain_run(family: str, mode: Any) -> None:
    model, task, prepared = shared(family), Means(), means_of(family)
    sites = sites_in_use(model, task, prepared)
    assert (
        len(sites) < len(model.sites) or family != "xlnet"
    )  # its second stream has nothing to do here
    stacks = mode_class(mode).stacks
    sites = tuple(site for site in sites if stacks is None or site.stack in stacks)
    variants = [one for one in variants_of(model, "head", sites=sites) if one.heads[0].head < 2]
    fast = units_of(Sweep(model, task, prepared, mode=mode, batch_size=3), variants)
    plain = units_of(
        Sweep(model, task, prepared, mode=mode, batch_size=3, method="plain"), variants
    )
    zero = units_of(Sweep(model, task, prepared, batch_size=3), variants)
    for variant in variants:
        wanted = losses_of(plain, variant)
        scale = max(1.0, float(np.abs(wanted).max()))
        assert np.abs(losses_of(fast, variant) - wanted).max() < 2e-5 * scale, variant.named
        assert np.abs(losses_of(zero, variant) - wanted).max() > 1e-4, (
            variant.named
        )  # or it were zero ablation


def test_the_mean_is_that_of_real_tokens() -> None:
    from headscope.ablation.modes.mean import mean_results

    model, task, prepared = shared("bert"), Means(), means_of("bert")
    means = mean_results(model, task, prepared, batch_size=3)
    total, count = 0.0, 0
    for sequence in prepared.sequences:  # one by one: no padding anywhere
        seen = []
        handle = model.model.encoder.layer[1].attention.output.dense.register_forward_pre_hook(
            lambda module, args, seen=seen: seen.append(args[0])
        )
        with torch.inference_mode():
            model.model(input_ids=torch.tensor([sequence.source.ids]))
        handle.remove()
        total = total + seen[0][0].double().sum(dim=0)
        count += seen[0].shape[1]
    wanted = (total / count).view(4, -1)
    for head in range(4):
        assert torch.allclose(means[Head("encoder", 1, head)].double(), wanted[head], atol=1e-6)


def test_removing_a_head_is_cutting_its_columns_out_of_the_projection() -> None:
    """Without any of our own editing: the weights of a copy are zeroed."""
    model, task, prepared = tiny("bert"), Means(), means_of("bert")
    variants = variants_of(model, "head")
    result = units_of(Sweep(model, task, prepared, batch_size=3), variants)
    for variant in variants:
        head = variant.heads[0]
        dense = model.model.encoder.layer[head.layer].attention.output.dense
        before = dense.weight.detach().clone()
        width = before.shape[1] // 4
        with torch.no_grad():
            dense.weight[:, head.head * width : (head.head + 1) * width] = 0
        wanted = evaluate(model, task, prepared, batch_size=3).losses
        with torch.no_grad():
            dense.weight.copy_(before)
        assert np.abs(losses_of(result, variant) - wanted).max() < 1e-5, variant.named


@pytest.mark.parametrize("family", ["albert", "bert", "gpt2", "marian"])
def test_a_head_whose_projection_is_zero_changes_exactly_nothing(family: str) -> None:
    model, task, prepared = tiny(family), Means(), means_of(family)
    site = model.sites[-1]
    projection = dict(model.model.named_modules())[anatomy(model)[site].projection or ""]
    heads = sum(head.site == site for head in model.heads)
    with torch.no_grad():
        weight = (
            projection.weight if family != "gpt2" else projection.weight.T
        )  # GPT-2 stores [in, out]
        weight[:, weight.shape[1] // heads : 2 * (weight.shape[1] // heads)] = 0
    silent = Variant("head", "silent", (Head(site.stack, site.layer, 1),))
    result = units_of(Sweep(model, task, prepared, batch_size=3), [silent])
    intact = next(variant for variant in result if variant.named == "intact")
    assert np.array_equal(losses_of(result, silent), losses_of(result, intact))


def test_the_sweep_leaves_the_model_as_it_was() -> None:
    model, task, prepared = tiny("bert"), Means(), means_of("bert")
    before = evaluate(model, task, prepared).losses
    modules = {name: dict(module.__dict__) for name, module in model.model.named_modules()}
    sweep = Sweep(model, task, prepared)
    units = sweep.run(0, sweep.blocks()[0], sweep.groups(variants_of(model, "head")))
    next(units)
    next(units)
    units.close()  # given up half-way
    for name, module in model.model.named_modules():
        assert "forward" not in module.__dict__, name
        assert set(module.__dict__) == set(modules[name])
        assert not module._forward_hooks, name
        assert not module._forward_pre_hooks, name
    assert np.array_equal(evaluate(model, task, prepared).losses, before)


def test_blocks_do_not_change_the_answer() -> None:
    model, task, prepared = shared("bert"), Means(), means_of("bert")
    variants = variants_of(model, "head")
    sweep = Sweep(model, task, prepared, batch_size=2)
    whole = units_of(sweep, variants)
    parts: dict[Variant, dict[int, float]] = {}
    for number, items in enumerate([[5, 0, 2], [7, 1, 3], [4, 6]]):
        for unit in sweep.run(number, items, sweep.groups(variants)):
            for i, variant in enumerate(unit.variants):
                parts.setdefault(variant, {}).update(zip(unit.items, unit.losses[i], strict=True))
    for variant in variants:
        split = np.array([parts[variant][i] for i in range(len(prepared.items))])
        assert np.abs(split - losses_of(whole, variant)).max() < 1e-4
