"""AttentionModel.copy: the same model with weights of its own."""

from __future__ import annotations

import pytest
import torch

import headscope
from headscope.errors import HeadscopeError
from tiny import tiny


@pytest.mark.parametrize("case", ["bert", "gpt2", "marian"])
def test_a_copy_has_the_same_weights_and_shares_none(case: str) -> None:
    model = tiny(case)
    copied = model.copy()
    assert copied.heads == model.heads
    assert (copied.name, copied.path, copied.reading) == (model.name, model.path, model.reading)
    weights = dict(copied.model.named_parameters())
    assert weights.keys() == dict(model.model.named_parameters()).keys()
    for name, weight in model.model.named_parameters():
        assert torch.equal(weight, weights[name])
        assert weight.data_ptr() != weights[name].data_ptr()


def test_a_copy_of_a_pruned_model_keeps_its_head_numbers() -> None:
    pruned = headscope.prune(tiny("bert"), "0.1").model
    assert pruned.copy().heads == pruned.heads


def test_a_model_under_edits_cannot_be_copied() -> None:
    model = tiny("bert")
    with model.edited("0.1"), pytest.raises(HeadscopeError, match="edited or observed"):
        model.copy()
    model.copy()
