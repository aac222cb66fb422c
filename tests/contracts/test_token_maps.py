"""Token maps of every family against loops over what the library itself attends to."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest
from numpy.typing import NDArray

from headscope.heads import Site
from headscope.model.rollout import rollout
from headscope.model.token_map import weights_of
from reference import token_maps as slow
from tiny import FAMILIES, batch_for, examples, in_double, library_attentions, shared

ONE = ((7, 3),)


def library_weights(family: str) -> slow.Weights:
    model = in_double(shared(family))
    inputs = dict(batch_for(model, examples(family, seed=3, lengths=ONE)).inputs)
    found = library_attentions(model, inputs)
    return {(site.stack, site.layer): weights[0].double().numpy() for site, weights in found.items()}


def layers_of(weights: slow.Weights) -> dict[str, int]:
    return {stack: 1 + max(layer for other, layer in weights if other == stack) for stack, _ in weights}


def attending(maps: dict[tuple[str, int], list[list[float]]]) -> dict[Site, NDArray[np.float64]]:
    return {Site(stack, layer): np.array([rows], dtype=float) for (stack, layer), rows in maps.items()}


@pytest.mark.parametrize("family", FAMILIES)
def test_rollout_follows_every_way_down(family: str) -> None:
    model = in_double(shared(family))
    batch = batch_for(model, examples(family, seed=3, lengths=ONE))
    found = rollout(weights_of(model, batch), model.sites)
    weights = library_weights(family)
    layers = layers_of(weights)
    assert set(found) == set(layers)
    for stack, values in found.items():
        side, goal = ("encoder", "encoder") if stack == "encoder" else ("decoder", "decoder")
        goal = "encoder" if stack == "cross" else goal
        assert values.shape[:2] == (layers[stack], 1)
        for layer in range(layers[stack]):
            for query in range(values.shape[2]):
                shares = slow.rollout(weights, layers, side, layer, query)
                wanted = [shares.get((goal, key), 0.0) for key in range(values.shape[3])]
                np.testing.assert_allclose(values[layer, 0, query], wanted, atol=1e-6)
    if "cross" in found:
        together = found["decoder"].sum(axis=-1) + found["cross"].sum(axis=-1)
        np.testing.assert_allclose(together, 1, atol=1e-6)
        assert (found["cross"].sum(axis=-1) > 0.2).all()


def test_identity_attention_leaves_every_token_to_itself() -> None:
    sites = [Site("encoder", layer) for layer in range(4)]
    found = rollout({site: np.eye(6)[None].repeat(3, axis=0) for site in sites}, sites)
    np.testing.assert_allclose(found["encoder"], np.eye(6)[None, None].repeat(4, axis=0), atol=1e-7)


def test_looking_one_back_in_every_layer_spreads_as_the_binomial() -> None:
    depth, length = 5, 9
    sites = [Site("decoder", layer) for layer in range(depth)]
    back = np.eye(length, k=-1)
    back[0, 0] = 1
    found = rollout(dict.fromkeys(sites, back[None]), sites)["decoder"]
    for layer in range(depth):
        for query in range(depth, length):
            for steps in range(depth + 1):
                wanted = comb(layer + 1, steps) / 2 ** (layer + 1)
                assert found[layer, 0, query, query - steps] == pytest.approx(wanted, abs=1e-7)


def test_a_layer_without_heads_passes_everything_on() -> None:
    sites = [Site("encoder", layer) for layer in range(3)]
    weights = np.random.default_rng(0).dirichlet(np.ones(5), size=(2, 5))
    found = rollout({sites[0]: weights, sites[2]: weights}, sites)["encoder"]
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_allclose(found[2, 0], (np.eye(5) + weights.mean(axis=0)) / 2 @ found[1, 0], atol=1e-6)
