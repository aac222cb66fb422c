"""Every lens on every family: does it show what its formula says, padding or not?"""

from __future__ import annotations

import copy
from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import BertModel

import headscope
from headscope.errors import HeadscopeError, choices
from headscope.heads import Site
from headscope.model.attention import Attention
from headscope.model.attention_model import AttentionModel
from headscope.model.edits import Edit
from headscope.model.lenses import LENSES, ROWS, SIGN
from headscope.model.lenses.effective import row_by_row
from headscope.model.lenses.gradient import track_embeddings
from headscope.model.surgery import prune
from reference import lenses as reference
from reference.lenses.effective import effective
from tiny import (
    CASES,
    attentions_in,
    batch_for,
    eager_copy,
    examples,
    family_of_case,
    in_double,
    library_attentions,
    real_sides,
    shared,
    tiny,
)
from worded import worded

LONGER = (
    (14, 4),
    (14, 6),
    (5, None),
    (19, 3),
    (11, None),
    (1, None),
)  # beyond a head's width of 8, and below

# A projection is subtracted in float32.
ATOL = {"effective": 5e-5, "effective-simplex": 5e-5}


@cache
def batch_of(case: str) -> tuple[AttentionModel, dict[str, Tensor]]:
    model = (
        tiny("mistral", sliding_window=11) if case == "mistral" else shared(family_of_case(case))
    )
    return model, dict(batch_for(model, examples(case, lengths=LONGER)).inputs)


def seen_through(
    model: AttentionModel, inputs: dict[str, Tensor], lens: str
) -> dict[tuple[Site, int], Attention]:
    """Every sequence's `Attention` through a lens by itself, copied."""
    result = {}

    def keep(attention: Attention) -> None:
        first = range(len(next(iter(inputs.values()))))[attention.rows][0]
        for i in range(len(attention.weights)):
            part = attention.through(lens, attention.weights[i].clone())
            part.row_totals = (
                None if attention.row_totals is None else attention.row_totals[i].clone()
            )
            part.values = attention.values[i].clone()
            part.raw = attention.through("raw", attention.raw.weights[i].clone())
            part.rank = None if attention.rank is None else attention.rank[i].clone()
            result[attention.site, first + i] = part

    with torch.inference_mode(), model.watched(keep, lens=lens):
        model(**inputs)
    return result


def by_the_library(case: str, model: AttentionModel, inputs: dict[str, Tensor]):
    """(site, sequence, head, weights, values, block), padding removed by hand."""
    parts = reference.values_and_projections(model, inputs)
    for site, weights in library_attentions(model, inputs).items():
        values, blocks = parts[site]
        queries, keys = real_sides(inputs, family_of_case(case), site.stack)
        for i in range(len(weights)):
            for head in range(weights.shape[1]):
                single = weights[i, head][queries[i]][:, keys[i]].double().numpy()
                yield site, i, head, single, values[i, head][keys[i]].numpy(), blocks[head].numpy()


@pytest.mark.parametrize("lens", reference.LENSES)
@pytest.mark.parametrize("case", CASES)
def test_a_lens_is_its_reference(case: str, lens: str) -> None:
    model, inputs = batch_of(case)
    seen = seen_through(model, inputs, lens)
    compared = 0
    for site, i, head, weights, values, block in by_the_library(case, model, inputs):
        expected, totals = reference.compute_map(lens, weights, values, block)
        attention = seen[site, i]
        np.testing.assert_allclose(attention.weights[head], expected, atol=ATOL.get(lens, 2e-5))
        if totals is not None:
            np.testing.assert_allclose(attention.row_totals[head], totals, rtol=2e-4)
        compared += 1
    sites = {site for site, _ in seen}
    assert compared == sum(len(site.numbers or ()) for site in sites) * len(
        next(iter(inputs.values()))
    )


@pytest.mark.product
@pytest.mark.parametrize("lens", ["effective", "effective-simplex"])
@pytest.mark.parametrize("case", CASES)
def test_effective_attention_is_attention_less_its_null_space(case: str, lens: str) -> None:
    model, inputs = batch_of(case)
    seen = seen_through(model, inputs, lens)
    simplex = lens == "effective-simplex"
    changed: dict[str, int] = {}
    for site, i, head, weights, values, _ in by_the_library(case, model, inputs):
        single = seen[site, i]
        assert (
            np.abs(single.weights[head].double().numpy() @ values - weights @ values).max() < 1e-5
        )
        short = (weights > 0).sum(axis=1).max() <= values.shape[1] + simplex
        assert (single.rank is None) == short
        if simplex:
            np.testing.assert_allclose(single.weights[head].sum(dim=-1), 1.0, atol=1e-5)
        changed[site.stack] = changed.get(site.stack, 0) + (not short)
    assert all(changed.values())


@pytest.mark.parametrize("mask", ["causal", "window", "by chance"])
@pytest.mark.parametrize("rank", [2, 5])
def test_each_row_has_the_null_space_of_the_values_it_sees(mask: str, rank: int) -> None:
    """Also across the blocks in which rows are done, where heads see different keys and values lack rank."""
    chance = torch.Generator().manual_seed(0)
    heads, keys, width = 3, 41, 5
    factors = [
        torch.randn(heads, *shape, generator=chance, dtype=torch.float64)
        for shape in ((keys, rank), (rank, 5))
    ]
    values = factors[0] @ factors[1]
    values[1, 20:] = values[1, :21].clone()  # the same tokens again
    offsets = torch.arange(keys)[:, None] - torch.arange(keys)
    allowed = {
        "causal": (offsets >= 0).expand(heads, -1, -1),
        "window": torch.stack([(offsets >= 0) & (offsets < wide) for wide in (4, 9, 30)]),
        "by chance": torch.rand(heads, keys, keys, generator=chance) < 0.4,
    }[mask]
    weights = (
        torch.rand(heads, keys, keys, generator=chance, dtype=torch.float64) + 0.01
    ) * allowed
    weights /= weights.sum(dim=-1, keepdim=True)
    cells, ranks = row_by_row(weights, values, allowed)
    assert (cells @ values - weights @ values).abs().max() < 1e-10
    for head in range(heads):
        expected = effective(
            weights[head].numpy(), values[head].numpy(), np.eye(width), simplex=False
        )
        np.testing.assert_allclose(cells[head], expected, atol=1e-9)
        assert int(ranks[head]) == (0 if mask == "window" and head == 0 else rank)
    assert not cells[~allowed].any()


# Gradients


def judged(output: Tensor) -> Tensor:
    """A loss of every sequence that depends on all of its output."""
    pattern = torch.linspace(-1, 1, output[0].numel(), dtype=output.dtype).view_as(output[0])
    return (output * pattern).flatten(1).sum(dim=1) + 0.1 * output.square().flatten(1).mean(dim=1)


def gradients(
    model: AttentionModel, inputs: dict[str, Tensor]
) -> dict[tuple[Site, int], Attention]:
    result = {}

    def keep(attention: Attention) -> None:
        first = range(len(next(iter(inputs.values()))))[attention.rows][0]
        for i in range(len(attention.weights)):
            part = attention.through("gradient", attention.weights[i])
            part.gradient, part.row_totals = attention.gradient[i], attention.row_totals[i]
            result[attention.site, first + i] = part

    with model.watched(keep, lens="gradient"), track_embeddings(model) as embeddings:
        torch.autograd.grad(judged(model(**inputs)[0]).sum(), embeddings, allow_unused=True)
    return result


# XLNet's own weights are copies that are on no graph (finite differences below). With windows the library's rows of
# padding are not numbers, and neither are its gradients.
@pytest.mark.parametrize("case", [case for case in CASES if family_of_case(case) != "xlnet"])
def test_the_gradient_lens_is_the_gradient_by_the_weights_of_the_library(case: str) -> None:
    model = in_double(shared(family_of_case(case)))
    lengths = LONGER[:2] if case in ("mistral", "modernbert") else LONGER
    inputs = dict(batch_for(model, examples(case, lengths=lengths)).inputs)
    seen = gradients(model, inputs)
    eager = eager_copy(model)
    output = eager(**inputs, output_attentions=True)
    weights = attentions_in(output, family_of_case(case), inputs)
    expected = dict(
        zip(weights, torch.autograd.grad(judged(output[0]).sum(), weights.values()), strict=True)
    )
    for site, gradient in expected.items():
        queries, keys = real_sides(inputs, family_of_case(case), site.stack)
        for i in range(len(gradient)):
            g = gradient[i][:, queries[i]][:, :, keys[i]]
            a = weights[site][i].detach()[:, queries[i]][:, :, keys[i]]
            assert (seen[site, i].gradient - g).abs().max() <= 1e-5 * max(
                float(g.abs().max()), 1e-3
            )
            cells = (a * g).abs()
            share = cells / cells.sum(dim=(1, 2), keepdim=True).clamp_min(1e-300) * cells.shape[1]
            torch.testing.assert_close(
                seen[site, i].weights.double(), share.double(), atol=2e-4, rtol=1e-3
            )
    assert {site for site, _ in seen} == set(expected)
    before = [
        parameter.requires_grad for parameter in shared(family_of_case(case)).model.parameters()
    ]
    assert [parameter.requires_grad for parameter in model.model.parameters()] == before


class Nudge(Edit):
    """Adds to one weight."""

    def __init__(self, site: Site, position: tuple[int, int, int, int], by: float) -> None:
        self.site, self.where, self.by = site, position, by

    def changes_weights(self, site: Site) -> bool:
        return site == self.site

    def weights(self, site: Site, weights: Tensor) -> Tensor:
        changed = weights.clone()
        changed[self.where] += self.by
        return changed


# The last two compute norms, or everything, in float32.
@pytest.mark.parametrize(
    "family", ["bert", "albert", "marian", "mpnet", "deberta-v2", "llama", "xlnet"]
)
def test_gradients_are_finite_differences(family: str) -> None:
    step, tolerance = (1e-2, 2e-2) if family in ("llama", "xlnet") else (1e-5, 1e-5)
    model = in_double(shared(family))
    inputs = dict(batch_for(model, examples(family, lengths=((9, 4), (9, 5)))).inputs)
    seen = gradients(model, inputs)
    for site in {site for site, _ in seen}:
        for position in ((0, 0, 2, 1), (1, 1, 3, 3)):
            losses = []
            for by in (step, -step):
                with torch.inference_mode(), model.edited(Nudge(site, position, by)):
                    losses.append(judged(model(**inputs)[0])[position[0]])
            slope = float((losses[0] - losses[1]) / (2 * step))
            assert float(seen[site, position[0]].gradient[position[1:]]) == pytest.approx(
                slope, rel=tolerance, abs=1e-3 * tolerance
            )


def test_without_a_graph_the_gradient_lens_says_so() -> None:
    model, inputs = batch_of("bert")
    opened = model.watched(print, lens="gradient")
    with pytest.raises(HeadscopeError, match="enable_grad"), torch.inference_mode(), opened:
        model(**inputs)


def test_a_gradient_lens_to_which_nothing_comes_back_says_so() -> None:
    model, inputs = batch_of("bert")
    opened = model.watched(print, lens="gradient")
    with pytest.raises(HeadscopeError, match="backward"), opened:
        model(**inputs)


def test_several_lenses_at_once_are_refused() -> None:
    opened = shared("bert").watched(print, lens=["norm", "raw"])  # type: ignore[arg-type]
    with pytest.raises(HeadscopeError, match="inside each other"), opened:
        pass


@pytest.mark.usefixtures("safe_bfloat16")
@pytest.mark.parametrize("lens", ["norm", "effective", "effective-simplex"])
def test_half_precision_is_seen_nearly_as_it_is_in_float32(lens: str) -> None:
    model = worded(BertModel)
    half = AttentionModel(copy.deepcopy(model.model).bfloat16(), model.tokenizer)
    texts = ["the old cat sat on the mat .", "a dog ran , who saw the red house ?"]
    whole, coarse = (headscope.analyze(one, texts=texts, lens=lens).heads for one in (model, half))
    both = whole.merge(coarse, on=["stack", "layer", "head", "statistic"])
    both = both[
        both["statistic"].isin([f"special@{lens}", f"row-total@{lens}", f"raw-correlation@{lens}"])
    ]
    assert len(both)
    assert (both["value_x"] - both["value_y"]).abs().max() < 0.05


@pytest.mark.usefixtures("safe_bfloat16")
def test_half_precision_has_no_gradient_lens() -> None:
    half = AttentionModel(copy.deepcopy(shared("bert").model).bfloat16(), shared("bert").tokenizer)
    with pytest.raises(HeadscopeError, match="float32"), half.watched(print, lens="gradient"):
        pass


# Every lens


@pytest.mark.product
@pytest.mark.parametrize("lens", LENSES)
@pytest.mark.parametrize("case", CASES)
def test_maps_have_the_properties_that_their_lens_claims(case: str, lens: str) -> None:
    model, inputs = batch_of(case)
    kind = LENSES[lens]
    seen = gradients(model, inputs) if kind.needs_gradient else seen_through(model, inputs, lens)
    raw = seen_through(model, inputs, "raw")
    if kind.needs_gradient and case == "xlnet/two-streams":
        # The output is that of the query stream, which reads the other stream up to its last layer but one.
        last = max(site.layer for site, _ in raw)
        raw = {key: attention for key, attention in raw.items() if key[0] != Site("encoder", last)}
    assert seen.keys() == raw.keys()
    for key, attention in seen.items():
        weights = attention.weights
        assert weights.shape == raw[key].weights.shape
        assert torch.isfinite(weights).all()
        assert (attention.row_totals is None) == (lens == "raw")
        if ROWS in kind.gives:
            torch.testing.assert_close(weights.sum(dim=-1), torch.ones(weights.shape[:-1]))
        if SIGN in kind.gives:
            assert (weights >= 0).all()


# Others


def test_a_cut_model_is_seen_through_the_blocks_it_has_left() -> None:
    model = tiny("bert")
    inputs = dict(batch_for(model, examples("bert", lengths=LONGER)).inputs)
    whole = seen_through(model, inputs, "norm")
    cut = prune(tiny("bert"), "0.1,1.0,1.3")
    left = seen_through(cut, inputs, "norm")
    first = Site("encoder", 0)
    kept = [0, 2, 3]
    for i in range(len(LONGER)):  # the first layer's input is the same
        torch.testing.assert_close(
            left[first, i].weights, whole[first, i].weights[kept], atol=1e-6, rtol=1e-4
        )


def test_an_unknown_lens_is_refused_with_the_choices() -> None:
    opened = shared("bert").watched(print, lens="norms")
    with (
        pytest.raises(HeadscopeError, match=choices("", LENSES)),
        opened,
    ):
        pass
