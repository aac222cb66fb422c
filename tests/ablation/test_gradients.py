"""The gradient's terms are derivatives: of each example's loss, by each head's gate, whatever the batch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification

from headscope import Gate
from headscope.ablation.agreement import of_items
from headscope.ablation.estimates.gradient import Terms, gradient_terms
from headscope.heads import Head
from headscope.tasks.inference import evaluate
from tiny import in_double, shared, tiny
from toys import Means, classes_of, means_of

# Their norms compute in float32 whatever the model's own precision is.
COARSE = ("llama", "t5", "xlnet")
FAMILIES = ["albert", "bert", "deberta-v2", "gpt2", "llama", "marian", "mpnet", "t5", "xlnet"]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_term_is_the_slope_of_the_loss_as_the_gate_is_moved(family: str) -> None:
    model, task, prepared = in_double(tiny(family)), Means(), means_of(family)
    result = gradient_terms(model, task, prepared, batch_size=3)
    for head in (result.heads[0], result.heads[len(result.heads) // 2], result.heads[-1]):
        step, tolerance = (1e-3, 3e-3) if family in COARSE else (1e-5, 1e-6)
        moved = []
        for gate in (1 + step, 1 - step):
            with model.edited(Gate({head: gate})):
                moved.append(evaluate(model, task, prepared, batch_size=3).losses)
        slope = (moved[0] - moved[1]) / (2 * step)
        mine = result.signed[:, result.heads.index(head)]
        assert np.abs(mine - slope).max() < tolerance * max(1.0, np.abs(slope).max()), str(head)
        assert np.abs(slope).max() > 1e-4, str(head)


def test_batches_and_padding_change_no_term() -> None:
    model, task, prepared = shared("bert"), Means(), means_of("bert")
    single, many = (gradient_terms(model, task, prepared, batch_size=size) for size in (1, 8))
    assert np.abs(single.signed - many.signed).max() < 1e-4
    assert np.abs(single.absolute - many.absolute).max() < 1e-4
    assert np.array_equal(single.tokens, many.tokens)


def test_absolute_values_a_token_are_at_least_those_an_example() -> None:
    result = gradient_terms(shared("bert"), Means(), means_of("bert"))
    assert (result.absolute >= np.abs(result.signed) - 1e-9).all()
    assert (result.absolute > np.abs(result.signed) + 1e-6).any()


def test_a_silent_head_has_no_term_at_all() -> None:
    model = tiny("bert")
    with torch.no_grad():
        model.model.encoder.layer[0].attention.output.dense.weight[:, 8:16] = 0
    result = gradient_terms(model, Means(), means_of("bert"))
    (silent,) = [i for i, head in enumerate(result.heads) if (head.layer, head.head) == (0, 1)]
    assert not result.signed[:, silent].any()
    assert not result.absolute[:, silent].any()
    everyone = np.arange(len(result.signed))
    assert all(of_items(values, everyone)[silent] == 0 for values in result.importances().values())
    assert np.abs(result.signed).sum(axis=0).astype(bool).sum() == len(result.heads) - 1


def test_the_variants_are_what_their_formulas_say() -> None:
    result = gradient_terms(shared("bert"), Means(), means_of("bert"))
    a = result.signed
    made = {
        name: of_items(values, np.arange(len(a))) for name, values in result.importances().items()
    }
    by_hand = {
        "gradient": [-sum(column) / len(a) for column in a.T],
        "gradient-absolute": [sum(map(abs, column)) / len(a) for column in a.T],
        "gradient-tokens": [
            sum(result.absolute[:, h]) / sum(result.tokens[:, h]) for h in range(a.shape[1])
        ],
        "gradient-fisher": [sum(x * x for x in column) / (2 * len(a)) for column in a.T],
        "gradient-second": [sum(-x + x * x / 2 for x in column) / len(a) for column in a.T],
        "gradient-batch": [
            abs(sum(column) / len(a)) for column in a.T
        ],  # fewer examples than one batch
    }
    assert set(made) == set(by_hand)
    for name, wanted in by_hand.items():
        assert np.allclose(made[name], wanted, rtol=1e-9, atol=1e-12), name


def test_normalized_importances_have_norm_one_in_every_layer() -> None:
    result = gradient_terms(shared("bert"), Means(), means_of("bert"))
    layers = np.array([head.layer for head in result.heads])
    for name, values in result.importances(normalized=True).items():
        for layer in set(layers):
            mine = of_items(values, np.arange(len(result.signed)))[layers == layer]
            assert np.linalg.norm(mine) == pytest.approx(1, abs=1e-9), (name, layer)


def test_a_token_is_counted_where_the_loss_depends_on_it() -> None:
    """A classifier reads the first token: in its last layer that is the only one, below it all of them."""
    model = tiny("bert", head=AutoModelForSequenceClassification, num_labels=3)
    task, prepared = classes_of("bert")
    result = gradient_terms(model, task, prepared)
    lengths = np.array([len(one.source.ids) for one in prepared.sequences])
    last = max(head.layer for head in result.heads)
    for index, head in enumerate(result.heads):
        assert np.array_equal(
            result.tokens[:, index], np.ones(len(lengths)) if head.layer == last else lengths
        ), head


def test_batches_are_what_gradient_batch_counts() -> None:
    signed = np.random.default_rng(0).normal(0.5, 1, size=(70, 3))
    heads = tuple(Head("encoder", 0, h) for h in range(3))
    result = Terms(heads, signed, np.abs(signed), np.ones_like(signed))
    wanted = np.stack([np.abs(signed[a:b].mean(axis=0)) for a, b in ((0, 32), (32, 64), (64, 70))])
    rows = [row for row in result.rows() if row.statistic == "gradient-batch"]
    assert [row.count for row in rows] == [3, 3, 3]
    assert [row.value for row in rows] == pytest.approx(wanted.mean(axis=0))
    half = 1.96 * wanted.std(axis=0, ddof=1) / np.sqrt(3)
    assert [row.high - row.value for row in rows] == pytest.approx(half)


def test_an_example_of_two_sequences_has_the_terms_of_both() -> None:
    """The same texts as eight examples of one sequence, and as four of two: the sums are the same."""
    model, task, alone = shared("bert"), Means(), means_of("bert")
    single = gradient_terms(model, task, alone).signed
    pairs = [(i, i + 1) for i in range(0, 8, 2)]

    class Paired(Means):
        def losses(self, answers, prepared, items):  # type: ignore[no-untyped-def]
            numbers = [number for item in items for number in prepared.parts[item]]
            each = ((answers - prepared.targets[numbers][:, : answers.shape[1]]) ** 2).mean(dim=1)
            return each.view(-1, 2).sum(dim=1)

    both = replace(alone, parts=pairs, items=alone.items[:4])
    double = gradient_terms(model, Paired(), both).signed
    assert np.abs(double - single.reshape(4, 2, -1).sum(axis=1)).max() < 1e-4


def test_without_labels_the_loss_is_against_what_the_model_says() -> None:
    model = tiny("bert", head=AutoModelForSequenceClassification, num_labels=3)
    task, prepared = classes_of("bert")
    output = torch.tensor(evaluate(model, task, prepared).scores[:, 1]).long()
    assert not torch.equal(output, prepared.targets)
    free = gradient_terms(model, task, prepared, self_labels=True).signed
    taught = gradient_terms(model, task, replace(prepared, targets=output)).signed
    assert np.array_equal(free, taught)
    assert np.abs(free - gradient_terms(model, task, prepared).signed).max() > 1e-3


def test_parameters_are_as_trainable_afterwards_as_before() -> None:
    model = tiny("bert")
    frozen = next(model.model.parameters())
    frozen.requires_grad_(False)
    before = [parameter.requires_grad for parameter in model.model.parameters()]
    gradient_terms(model, Means(), means_of("bert"))
    assert [parameter.requires_grad for parameter in model.model.parameters()] == before
    assert all(parameter.grad is None for parameter in model.model.parameters())
