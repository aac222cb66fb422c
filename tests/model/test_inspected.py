"""Attention calls can be inspected: their queries and keys give the weights that observers see."""

from __future__ import annotations

import pytest
import torch

from headscope import Attention, Site
from headscope.model.kernels import Call
from tiny import tiny


def test_queries_and_keys_of_a_call_give_the_observed_weights() -> None:
    model = tiny("bert")
    calls: dict[Site, Call] = {}
    observed: dict[Site, torch.Tensor] = {}

    def observe(attention: Attention) -> None:
        observed[attention.site] = attention.weights.clone()

    with torch.inference_mode(), model.inspected(calls.__setitem__), model.watched(observe):
        model(input_ids=torch.arange(5, 12).unsqueeze(0))
    assert list(calls) == list(model.sites) == list(observed)
    for site, call in calls.items():
        weights = torch.softmax(call.query @ call.key.transpose(2, 3) * call.scaling, dim=-1)
        torch.testing.assert_close(weights, observed[site], rtol=1e-5, atol=1e-6)


def test_one_inspector_at_a_time_and_none_after_an_exception() -> None:
    model = tiny("bert")
    calls: list[Site] = []
    with model.inspected(lambda site, call: calls.append(site)):
        with (
            pytest.raises(RuntimeError, match="inspected already"),
            model.inspected(lambda site, call: None),
        ):
            pass
        model(input_ids=torch.arange(5, 9).unsqueeze(0))
    assert calls == list(model.sites)
    with pytest.raises(KeyError), model.inspected(lambda site, call: {}[site]):
        model(input_ids=torch.arange(5, 9).unsqueeze(0))
    with model.inspected(lambda site, call: calls.append(site)):
        model(input_ids=torch.arange(5, 9).unsqueeze(0))
    assert len(calls) == 2 * len(model.sites)


@pytest.mark.parametrize(("family", "modules"), [("bert", None), ("albert", 1)])
def test_attention_modules_serve_every_site(family: str, modules: int | None) -> None:
    model = tiny(family)
    served = [site for sites in model.attention_modules.values() for site in sites]
    assert sorted(served) == sorted(model.sites)
    assert len(model.attention_modules) == (modules or len(model.sites))
    for name in model.attention_modules:
        model.model.get_submodule(name)
