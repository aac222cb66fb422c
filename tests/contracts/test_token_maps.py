"""Token maps of every family against loops over what the library itself attends to."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import (
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
)

from headscope.errors import HeadscopeError
from headscope.heads import Site
from headscope.model.edits import Edit
from headscope.model.flow import flow
from headscope.model.gradient_rollout import gradient_rollout
from headscope.model.one_input import OneInput
from headscope.model.rollout import is_masked, rollout, uniform_weights
from headscope.model.scalar_output import scalar_output
from reference import token_maps as slow
from tiny import (
    ENCODER_DECODERS,
    FAMILIES,
    batch_for,
    examples,
    in_double,
    library_attentions,
    shared,
    tiny,
)

ONE = ((7, 3),)


def library_weights(family: str) -> slow.Weights:
    model = in_double(shared(family))
    inputs = dict(batch_for(model, examples(family, seed=3, lengths=ONE)).inputs)
    result = library_attentions(model, inputs)
    return {
        (site.stack, site.layer): weights[0].double().numpy() for site, weights in result.items()
    }


def layers_of(weights: slow.Weights) -> dict[str, int]:
    return {
        stack: 1 + max(layer for other, layer in weights if other == stack) for stack, _ in weights
    }


def attending(maps: dict[tuple[str, int], list[list[float]]]) -> dict[Site, NDArray[np.float64]]:
    return {
        Site(stack, layer): np.array([rows], dtype=float) for (stack, layer), rows in maps.items()
    }


@pytest.mark.parametrize("family", FAMILIES)
def test_rollout_follows_every_way_down(family: str) -> None:
    model = in_double(shared(family))
    batch = batch_for(model, examples(family, seed=3, lengths=ONE))
    result = rollout(OneInput(model, batch).weights, model.sites)
    weights = library_weights(family)
    layers = layers_of(weights)
    assert set(result) == set(layers)
    for stack, values in result.items():
        side, goal = ("encoder", "encoder") if stack == "encoder" else ("decoder", "decoder")
        goal = "encoder" if stack == "cross" else goal
        assert values.shape[:2] == (layers[stack], 1)
        for layer in range(layers[stack]):
            for query in range(values.shape[2]):
                shares = slow.rollout(weights, layers, side, layer, query)
                wanted = [shares.get((goal, key), 0.0) for key in range(values.shape[3])]
                np.testing.assert_allclose(values[layer, 0, query], wanted, atol=1e-6)
    if "cross" in result:
        together = result["decoder"].sum(axis=-1) + result["cross"].sum(axis=-1)
        np.testing.assert_allclose(together, 1, atol=1e-6)
        assert (result["cross"].sum(axis=-1) > 0.2).all()


@pytest.mark.parametrize("family", ["gpt2", "marian", "mistral"])
def test_the_baseline_is_rollout_of_even_attention_to_what_is_seen(family: str) -> None:
    model = in_double(shared(family))
    batch = batch_for(model, examples(family, seed=3, lengths=ONE))
    result = rollout(uniform_weights(OneInput(model, batch).weights), model.sites)
    weights = {
        position: np.zeros((1, *cells.shape[1:]))
        for position, cells in library_weights(family).items()
    }
    window = model.model.config.sliding_window if family == "mistral" else 1000
    for (stack, _), cells in weights.items():
        for query in range(cells.shape[1]):
            keys = range(cells.shape[2])
            seen = [key for key in keys if stack != "decoder" or query - window < key <= query]
            cells[0, query, seen] = 1 / len(seen)
    layers = layers_of(weights)
    for stack, values in result.items():
        side, goal = (
            "encoder" if stack == "encoder" else "decoder",
            "decoder" if stack == "decoder" else "encoder",
        )
        for query in range(values.shape[2]):
            shares = slow.rollout(weights, layers, side, layers[stack] - 1, query)
            wanted = [shares.get((goal, key), 0.0) for key in range(values.shape[3])]
            np.testing.assert_allclose(values[-1, 0, query], wanted, atol=1e-6)


def test_even_attention_of_three_tokens_in_two_layers() -> None:
    sites = [Site("decoder", layer) for layer in range(2)]
    weights = dict.fromkeys(sites, np.array([[[1, 0, 0], [0.9, 0.1, 0], [0.2, 0.1, 0.7]]]))
    assert is_masked(weights)
    assert not is_masked({Site("encoder", 0): np.full((1, 3, 3), 1 / 3)})
    result = rollout(uniform_weights(weights), sites)["decoder"]
    np.testing.assert_allclose(result[0, 0, 2], [1 / 6, 1 / 6, 2 / 3], atol=1e-7)
    np.testing.assert_allclose(result[1, 0, 2], [23 / 72, 17 / 72, 4 / 9], atol=1e-7)


def test_identity_attention_leaves_every_token_to_itself() -> None:
    sites = [Site("encoder", layer) for layer in range(4)]
    result = rollout({site: np.eye(6)[None].repeat(3, axis=0) for site in sites}, sites)
    np.testing.assert_allclose(
        result["encoder"], np.eye(6)[None, None].repeat(4, axis=0), atol=1e-7
    )


def test_looking_one_back_in_every_layer_spreads_as_the_binomial() -> None:
    depth, length = 5, 9
    sites = [Site("decoder", layer) for layer in range(depth)]
    back = np.eye(length, k=-1)
    back[0, 0] = 1
    result = rollout(dict.fromkeys(sites, back[None]), sites)["decoder"]
    for layer in range(depth):
        for query in range(depth, length):
            for steps in range(depth + 1):
                wanted = comb(layer + 1, steps) / 2 ** (layer + 1)
                assert result[layer, 0, query, query - steps] == pytest.approx(wanted, abs=1e-7)


def test_a_layer_without_heads_passes_everything_on() -> None:
    sites = [Site("encoder", layer) for layer in range(3)]
    weights = np.random.default_rng(0).dirichlet(np.ones(5), size=(2, 5))
    result = rollout({sites[0]: weights, sites[2]: weights}, sites)["encoder"]
    np.testing.assert_array_equal(result[0], result[1])
    np.testing.assert_allclose(
        result[2, 0], (np.eye(5) + weights.mean(axis=0)) / 2 @ result[1, 0], atol=1e-6
    )


# Flow


@pytest.mark.parametrize("family", FAMILIES)
def test_flow_is_the_largest_that_every_way_together_lets_through(family: str) -> None:
    model = in_double(shared(family))
    batch = batch_for(model, examples(family, seed=3, lengths=((5, 2),)))
    weights = OneInput(model, batch).weights
    result = flow(weights, model.sites)
    plain = {(site.stack, site.layer): cells for site, cells in weights.items()}
    layers = layers_of(plain)
    sides = {"encoder": ["encoder"], "decoder": ["decoder"]} if "cross" not in layers else {}
    for stack, values in result.items():
        side = "encoder" if stack == "encoder" else "decoder"
        goals = sides.get(side, ["encoder"] if side == "encoder" else ["encoder", "decoder"])
        own = "encoder" if stack in ("encoder", "cross") else "decoder"
        sizes = {
            "encoder": plain["encoder", 0].shape[1] if "encoder" in layers else 0,
            "decoder": values.shape[2],
        }
        for layer, query in np.ndindex(values.shape[0], values.shape[2]):
            every = {
                (goal, key): slow.flow(plain, layers, side, layer, query, goal, key)
                for goal in goals
                for key in range(sizes[goal])
            }
            wanted = [every[own, key] / sum(every.values()) for key in range(values.shape[3])]
            np.testing.assert_allclose(values[layer, 0, query], wanted, atol=1e-6)


def test_flow_is_limited_by_the_narrowest_place() -> None:
    """Both tokens see only token 0: all of a token's other half stays, whichever way it goes."""
    sites = [Site("encoder", layer) for layer in range(2)]
    cells = np.array([[[1.0, 0.0], [1.0, 0.0]]])
    result = flow(dict.fromkeys(sites, cells), sites)["encoder"]
    np.testing.assert_allclose(result[0, 0], [[1, 0], [0.5, 0.5]], atol=1e-7)
    # from token 1 to input 1 only ½ can go; to input 0 ½ at once and ½ of what stayed: 1, before the row is divided
    np.testing.assert_allclose(result[1, 0, 1], [1 / 1.5, 0.5 / 1.5], atol=1e-7)


def test_flow_refuses_what_would_take_hours_and_says_how_much_it_takes() -> None:
    sites = [Site("encoder", layer) for layer in range(6)]
    weights = dict.fromkeys(sites, np.full((1, 100, 100), 0.01))
    with pytest.raises(
        HeadscopeError,
        match=r"lens flow: 100 tokens have 10,000 pairs, .* Expected at most 66 tokens",
    ):
        flow(weights, sites)


# Gradients


class Nudge(Edit):
    """One weight of one head a little larger."""

    def __init__(self, site: Site, position: tuple[int, int, int], by: float) -> None:
        self.site, self.position, self.by = site, position, by

    def changes_weights(self, site: Site) -> bool:
        return site == self.site

    def weights(self, site: Site, weights: Tensor) -> Tensor:
        weights = weights.clone()
        weights[(0, *self.position)] += self.by
        return weights


HEADS = {
    "masked": AutoModelForMaskedLM,
    "classes": AutoModelForSequenceClassification,
    "bare": None,
}
HEADED = [
    ("bert", "masked"),
    ("bert", "classes"),
    ("roberta", "classes"),
    ("albert", "masked"),
    ("mpnet", "bare"),
]
HEADED += [
    ("t5", "translation"),
    ("marian", "translation"),
    ("gpt2", "bare"),
    ("llama", "bare"),
    ("bart", "bare"),
]


@pytest.mark.parametrize(("family", "head"), HEADED)
def test_gradients_are_those_of_finite_differences(family: str, head: str) -> None:
    kind = AutoModelForSeq2SeqLM if head == "translation" else HEADS[head]
    model = in_double(tiny(family, head=kind))
    batch = batch_for(model, examples(family, seed=3, lengths=ONE))
    weights, gradients, _ = OneInput(model, batch).gradients
    with torch.inference_mode():
        held = _held(model, batch)
    chance = np.random.default_rng(0)
    step, tolerance = (
        (2e-3, 2e-2) if family in ("t5", "llama") else (1e-5, 1e-5)
    )  # their norms are float32 inside
    for site, cells in weights.items():
        position = tuple(int(chance.integers(size)) for size in cells.shape)
        with torch.inference_mode():
            ends = []
            for by in (step, -step):
                with model.edited(Nudge(site, position, by)):  # type: ignore[arg-type]
                    ends.append(held())
        wanted = (ends[0] - ends[1]) / (2 * step)
        assert gradients[site][position] == pytest.approx(
            wanted, rel=tolerance, abs=1e-3 * tolerance
        ), f"{site} {position}"


def _held(model, batch):  # type: ignore[no-untyped-def]
    """What the model says, what is held fixed in it (classes, lengths, directions) being that of now."""
    output = model(batch)
    if hasattr(output, "logits"):
        top = output.logits.argmax(dim=-1, keepdim=True)
        return lambda: float(model(batch).logits.gather(-1, top).sum())
    now = output.last_hidden_state[0].mean(dim=0)
    return lambda: float(model(batch).last_hidden_state[0].mean(dim=0) @ now / now.norm() ** 2)


@pytest.mark.parametrize("family", FAMILIES)
def test_gradient_rollout_is_that_of_loops(family: str) -> None:
    if family == "vit":
        pytest.skip("vit has no text that would be given to token maps")
    model = shared(family)
    batch = batch_for(model, examples(family, seed=3, lengths=ONE))
    weights, gradients, _ = OneInput(model, batch).gradients
    result = gradient_rollout(weights, gradients, model.sites)
    plain, derived = (
        {(site.stack, site.layer): cells for site, cells in both.items()}
        for both in (weights, gradients)
    )
    wanted = slow.gradient_rollout(plain, derived, layers_of(plain))
    assert sum(len(values) for values in result.values()) == len(wanted)
    assert ("cross" in result) == (family in ENCODER_DECODERS)
    for (stack, layer), cells in wanted.items():
        np.testing.assert_allclose(
            result[stack][layer, 0], cells, rtol=1e-4, atol=1e-7 + 1e-6 * np.abs(cells).max()
        )
        assert cells.max() > 0


def test_the_map_of_one_token_follows_the_target() -> None:
    model = tiny("bert", head=AutoModelForMaskedLM)
    batch = batch_for(model, examples("bert", seed=3, lengths=ONE))
    with torch.no_grad():
        parts = [float(scalar_output(model, batch, target)[0]) for target in range(7)]
        whole, what = scalar_output(model, batch)
    assert float(whole) == pytest.approx(sum(parts), rel=1e-5)
    assert what == "the sum of every token's largest logit"
    with pytest.raises(HeadscopeError, match=r"`target`: there is no token 7\. Expected 0 to 6"):
        scalar_output(model, batch, 7)
    classifier = tiny("bert", head=AutoModelForSequenceClassification)
    with pytest.raises(
        HeadscopeError,
        match="target: BertForSequenceClassification has one output for the whole input",
    ):
        scalar_output(classifier, batch, 0)


def test_gradients_leave_nothing_behind() -> None:
    model = tiny("bert")
    batch = batch_for(model, examples("bert", seed=3, lengths=ONE))
    OneInput(model, batch).gradients  # noqa: B018
    assert not model.is_open
    assert all(parameter.grad is None for parameter in model.model.parameters())
    for parameter in model.model.parameters():
        parameter.requires_grad_(False)
    _, frozen, _ = OneInput(model, batch).gradients
    for parameter in model.model.parameters():
        parameter.requires_grad_(True)
    _, thawed, _ = OneInput(model, batch).gradients
    for site in frozen:
        np.testing.assert_allclose(frozen[site], thawed[site], atol=1e-7)
