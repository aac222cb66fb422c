"""Planted truth: what lenses must show of heads whose weights we wrote, and of maps with a free part."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headscope.heads import Site
from headscope.model.attention import Attention
from headscope.model.attention_model import AttentionModel
from headscope.model.lenses.effective import column_basis
from headscope.model.lenses.gradient import subtract_row_mean, track_embeddings
from tiny import batch_for, examples, tiny

HERE = Site("encoder", 0)
HEAD, PLACE = 2, 0  # the head attends to the first token, whose value is 0


def planted() -> tuple[AttentionModel, dict[str, torch.Tensor]]:
    """A BERT one head of whose first layer looks at the first token and finds nothing there."""
    model = tiny("bert")
    inputs = dict(batch_for(model, examples("bert", lengths=((14, 4), (14, 6)))).inputs)
    with torch.no_grad():
        states = model.model.embeddings(inputs["input_ids"])
        first = states[0, PLACE]
        core = model.model.encoder.layer[0].attention.self
        rows = slice(HEAD * 8, HEAD * 8 + 8)
        direction = first / first.norm()
        core.value.weight[rows] -= torch.outer(core.value.weight[rows] @ direction, direction)
        core.value.bias[rows] = 0.0
        core.key.weight[rows] = torch.outer(torch.ones(8), direction)
        core.query.weight[rows] = 0.0
        core.query.bias[rows] = 0.4
    return model, inputs


def seen(model: AttentionModel, inputs: dict[str, torch.Tensor], lens: str) -> Attention:
    actual: list[Attention] = []

    def keep(attention: Attention) -> None:
        if attention.site == HERE:
            copied = attention.through(lens, attention.weights.clone())
            copied.raw = attention.through("raw", attention.raw.weights.clone())
            copied.row_totals, copied.gradient = attention.row_totals, attention.gradient
            actual.append(copied)

    with model.watched(keep, lens=lens), track_embeddings(model) as embeddings:
        loss = model(**inputs)[0].square().sum()
        if lens == "gradient":
            torch.autograd.grad(loss, embeddings, allow_unused=True)
    return actual[0]


def test_strong_attention_to_a_value_of_zero_has_norm_0_and_gradient_0() -> None:
    model, inputs = planted()
    norm = seen(model, inputs, "norm")
    weights = norm.raw.weights[:, HEAD]
    assert float(weights[0, :, PLACE].min()) > 0.5, "the head attends to it strongly"
    assert float(norm.weights[0, HEAD, :, PLACE].max()) < 1e-5
    assert float(norm.weights[0, HEAD, :, 1:].sum(dim=-1).min()) > 0.999
    gradient = seen(model, inputs, "gradient")
    assert gradient.gradient is not None
    of_others = gradient.gradient[0, HEAD, :, 1:].abs().mean()
    assert float(gradient.gradient[0, HEAD, :, PLACE].abs().max()) < 1e-5 * float(of_others)
    assert float(gradient.weights[0, HEAD, :, PLACE].max()) < 1e-4
    # Weight that leaves it goes elsewhere, and that does change the loss: the centred gradient is not 0.
    moved = subtract_row_mean(weights, gradient.gradient[:, HEAD])
    assert float(moved[0, :, PLACE].abs().mean()) > 1e-3 * float(of_others)


def test_a_head_whose_output_projection_is_zero_has_no_effective_attention() -> None:
    model, inputs = planted()
    with torch.no_grad():
        model.model.encoder.layer[0].attention.output.dense.weight[:, HEAD * 8 : HEAD * 8 + 8] = 0.0
    effective = seen(model, inputs, "effective")
    assert float(effective.weights[:, HEAD].abs().max()) == 0.0
    assert float(effective.weights[:, 0].abs().max()) > 0.0


@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(
    keys=st.integers(9, 60),
    width=st.integers(1, 8),
    lost=st.integers(0, 3),
    scale=st.floats(-4, 4),
    seed=st.integers(0, 1000),
)
def test_effective_attention_leaves_outputs_unchanged(
    keys: int, width: int, lost: int, scale: float, seed: int
) -> None:
    noise = torch.Generator().manual_seed(seed)
    rank = max(width - lost, 1)
    values = (
        torch.randn(keys, rank, generator=noise)
        @ torch.randn(rank, width, generator=noise)
        * 10.0**scale
    )
    weights = torch.softmax(torch.randn(5, keys, generator=noise) * 3, dim=-1)
    basis, result = column_basis(values)
    assert int(result) == rank
    basis = basis.float()
    effective = weights @ basis @ basis.T
    size = float(values.norm(dim=1).max())
    assert float((effective @ values - weights @ values).abs().max()) <= 1e-5 * size
    null = torch.linalg.svd(values.double(), full_matrices=True)[0][:, rank:].float()
    free = torch.randn(5, null.shape[1], generator=noise) @ null.T
    torch.testing.assert_close((weights + free) @ basis @ basis.T, effective, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("keys", [20, 200])
def test_the_rank_is_reported_at_the_stated_tolerance(keys: int) -> None:
    """A singular value a hundred times above the tolerance counts, one a hundred times below does not."""
    noise = np.random.default_rng(0)
    left = np.linalg.qr(noise.normal(size=(keys, 4)))[0]
    tolerance = keys * 2.0**-23
    for last, rank in ((100 * tolerance, 4), (0.01 * tolerance, 3)):
        values = torch.from_numpy(left * [1.0, 0.5, 0.1, last])
        basis, result = column_basis(values)
        assert int(result) == rank
        whole = torch.tensor([1.0] * rank + [0.0] * (4 - rank)).double()
        torch.testing.assert_close(torch.linalg.svdvals(basis), whole, atol=1e-6, rtol=0)
