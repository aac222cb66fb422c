"""Speed is measured, with sizes as they were asked for; what it says of parameters is counted."""

from __future__ import annotations

import pytest

from headscope.errors import HeadscopeError
from headscope.model.surgery import prune, units
from headscope.pruning.speed import Layers, inputs_of, layers, measure, thinned
from tiny import FAMILIES, shared


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_can_be_measured_with_fewer_heads(family: str) -> None:
    model = shared(family)
    found = layers(model, batch_size=2, length=7, repeats=2)
    assert found.share[0] == found.time[0] == 1.0
    assert list(found.share) == sorted(set(found.share), reverse=True)
    least = min(len(unit) for unit in units(model)) / len(model.heads)
    assert found.share[-1] == least, "one unit stays, as one must"
    assert all(time > 0 for time in found.time)


def test_the_batch_is_as_large_as_asked_for() -> None:
    inputs = inputs_of(shared("bert"), 3, 17)
    assert {tuple(value.shape) for value in inputs.values()} == {(3, 17)}
    assert inputs["attention_mask"].all()
    with pytest.raises(HeadscopeError, match="221 tokens are too many"):
        inputs_of(shared("bert"), 1, 221)


def test_what_was_cut_is_counted() -> None:
    model = shared("bert")
    cut = prune(model, "0.1,1.*")
    before, after = measure([model, cut], batch_size=2, length=5, repeats=2)
    assert (before.heads, after.heads) == (8, 3)
    assert before.parameters - after.parameters == 5 * (4 * 32 * 8 + 3 * 8)
    assert before.ratio == 1.0


def test_thinning_leaves_the_share_in_every_layer() -> None:
    model = thinned(shared("bert"), 0.5)
    assert [sum(head.layer == layer for head in model.heads) for layer in range(2)] == [2, 2]
    assert len(thinned(shared("bert"), 0.0).heads) == 1


def test_between_two_measurements_the_time_is_between_them() -> None:
    found = Layers((1.0, 0.5, 0.0), (1.0, 0.8, 0.5))
    assert found.at(0.75) == pytest.approx(0.9)
    assert found.bound == pytest.approx(2.0)
