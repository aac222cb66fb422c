"""Hard-concrete gates: their distribution, what they do to a model, and what training makes of them."""

from __future__ import annotations

import copy
import math
from itertools import islice
from typing import Any

import pytest
import torch
from transformers import BertForSequenceClassification

from headscope import Ablate, HeadSet, prune
from headscope.errors import HeadscopeError
from headscope.learning.gates import BETA, HIGH, LOW, Gates, gate_of, open_probability
from headscope.tasks import Item, get_task
from headscope.training.loop import LoopSettings, Training
from tiny import CASES, at_real_tokens, examples, family_of_case, inputs_for, outputs, shared
from worded import sentiments, translator, worded


@pytest.mark.parametrize("log_alpha", [-3.0, -1.0, 0.0, 0.7, 2.5])
def test_gates_are_zero_and_one_as_often_as_the_closed_forms_say(log_alpha: float) -> None:
    count = 100_000
    uniform = torch.rand(count, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    gates = gate_of(torch.full((count,), log_alpha, dtype=torch.float64), uniform)
    shift = BETA * math.log(-LOW / HIGH)
    for match, expected in (
        ((gates != 0).double().mean(), 1 / (1 + math.exp(-(log_alpha - shift)))),
        ((gates == 1).double().mean(), 1 / (1 + math.exp(-(log_alpha + shift)))),
    ):
        error = math.sqrt(expected * (1 - expected) / count)
        assert abs(float(match) - expected) < 4 * error
    likely = float(open_probability(torch.tensor(log_alpha, dtype=torch.float64)))
    assert likely == pytest.approx(1 / (1 + math.exp(-(log_alpha - shift))))


def test_without_noise_a_gate_is_exactly_closed_and_exactly_open() -> None:
    edges = torch.tensor([-2.5, -2.3, 0.0, 2.3, 2.5])
    assert gate_of(edges).tolist() == [
        0.0,
        pytest.approx(0.0092, abs=1e-3),
        0.5,
        pytest.approx(0.9908, abs=1e-3),
        1.0,
    ]


@pytest.mark.parametrize("case", CASES)
def test_open_gates_change_nothing_and_closed_ones_ablate(case: str) -> None:
    family = family_of_case(case)
    model = shared(family)
    chosen = examples(case)[:3]
    inputs = inputs_for(family, chosen)
    gates = Gates(model, penalty=0.0).eval()
    with torch.no_grad():
        plain = outputs(model, inputs)
        with model.edited(gates.edit()):
            gates.draw(0.0)
            assert torch.equal(outputs(model, inputs), plain)
            gates.log_alpha[::2] = -5.0
            gates.draw(0.0)
            gated = at_real_tokens(outputs(model, inputs), inputs)
        closed = [
            head
            for head, value in gates.by_head(gates.without_noise().tolist()).items()
            if value == 0
        ]
        with model.edited(Ablate(closed)):
            ablated = at_real_tokens(outputs(model, inputs), inputs)
    assert torch.allclose(gated, ablated, atol=1e-6)


def test_gates_to_a_plan_to_a_cut_model_is_the_gated_model() -> None:
    model = worded(BertForSequenceClassification, num_labels=2)
    gates = Gates(model, keep=3).eval()
    torch.manual_seed(1)
    with torch.no_grad():
        gates.log_alpha.copy_(torch.randn(len(gates.units)))
    gates.draw(1.0)
    assert gates.is_settled
    heads = gates.by_head(gates.fixed.tolist())
    assert sum(heads.values()) == 3
    cut = prune(
        model, HeadSet([head for head, value in heads.items() if not value], among=model.heads)
    ).model
    batch = model.tokenizer(["good bad", "the cat sat"], return_tensors="pt", padding=True)
    with torch.no_grad(), model.edited(gates.edit()):
        gated = model(batch).logits
    with torch.no_grad():
        assert torch.allclose(cut(batch).logits, gated, atol=1e-5)


def training(
    gates: dict[str, Any], settings: LoopSettings, *, frozen: bool = False
) -> tuple[Training, Gates]:
    torch.manual_seed(0)
    model = worded(BertForSequenceClassification, num_labels=2)
    task = get_task("sst2")
    items = [Item((text,), label, f"x:{i}") for i, (text, label) in enumerate(sentiments(40))]
    learned = Gates(model, **gates)
    return Training(
        model, task, task.prepare(model, items), settings, learned=learned, frozen=frozen
    ), learned


def test_a_penalty_alone_closes_all_gates_and_none_leaves_them() -> None:
    run, gates = training(
        {"penalty": 100.0, "settle": 2.0}, LoopSettings(epochs=20, batch_size=8), frozen=True
    )
    with run.model.edited(gates.edit()):
        list(run)
    assert gates.without_noise().max() == 0
    run, gates = training(
        {"penalty": 0.0, "settle": 2.0}, LoopSettings(epochs=1, batch_size=8), frozen=True
    )
    gates.cost(0.0).backward()
    assert gates.log_alpha.grad is not None
    assert not gates.log_alpha.grad.any()


def test_frozen_weights_stay_as_they_are_and_others_do_not() -> None:
    for frozen in (True, False):
        run, gates = training({"keep": 2}, LoopSettings(epochs=1, batch_size=8), frozen=frozen)
        before = copy.deepcopy(run.model.model.state_dict())
        with run.model.edited(gates.edit()):
            list(run)
        same = all(
            torch.equal(value, before[name]) for name, value in run.model.model.state_dict().items()
        )
        assert same == frozen
        assert not torch.equal(gates.log_alpha, torch.full_like(gates.log_alpha, 3.0))


def test_so_many_heads_are_kept_at_the_end() -> None:
    for keep in (1, 3, 4):
        run, gates = training({"keep": keep}, LoopSettings(epochs=2, batch_size=8), frozen=True)
        with run.model.edited(gates.edit()):
            list(run)
        assert gates.is_settled
        assert int(gates.fixed.sum()) == keep


def test_just_so_many_heads_are_open_at_every_step_as_shall_be_by_then() -> None:
    """Two of four: the expected number falls from the start's in the first half of the steps, and stays there."""
    gates = Gates(shared("bert"), keep=2, settle=1.0).train()
    most = len(gates.units)
    start = float(open_probability(gates.log_alpha).detach().sum())
    with torch.no_grad():
        gates.log_alpha.add_(torch.linspace(-2.0, 5.0, most))
    for progress in (0.0, 0.1, 0.25, 0.5, 0.9):
        gates.draw(progress)
        expected = start + (2 - start) * min(progress / 0.5, 1.0)
        assert float(
            open_probability(gates.log_alpha + gates.shift).detach().sum()
        ) == pytest.approx(expected, abs=1e-4)


def test_what_one_gate_gains_the_others_lose() -> None:
    """By finite differences: the gradient of a loss of the gates is that of a loss whose open share is held."""
    gates = Gates(shared("bert"), keep=2, settle=1.0).double().train()
    weights = torch.linspace(1.0, 3.0, len(gates.units), dtype=torch.float64)

    def loss(log_alpha: torch.Tensor) -> torch.Tensor:
        shift = gates.target.shift(log_alpha, gates._open_share, 0.5)  # type: ignore[union-attr]
        return (open_probability(log_alpha + shift) * weights).sum()

    at = torch.linspace(-1.0, 2.0, len(gates.units), dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(loss(at), at)
    steps = 1e-3 * torch.eye(len(at), dtype=torch.float64)
    expected = torch.stack([(loss(at + step) - loss(at - step)) / 2e-3 for step in steps]).detach()
    assert slope.abs().max() > 0.01
    assert torch.allclose(slope, expected, atol=1e-4)
    (share,) = torch.autograd.grad(
        gates._open_share(at + gates.target.shift(at, gates._open_share, 0.5)), at
    )  # type: ignore[union-attr]
    assert share.abs().max() < 1e-9


@pytest.mark.parametrize(
    ("family", "size"), [("llama", 2), ("qwen2", 2), ("mistral", 2), ("albert", 2)]
)
def test_heads_that_share_weights_are_kept_in_just_the_numbers_that_they_add_up_to(
    family: str, size: int
) -> None:
    model = shared(family)
    for keep in range(1, len(model.heads) + 1):
        if keep % size:
            near = f"{keep - 1} or {keep + 1}" if keep > 1 else "2"
            with pytest.raises(
                HeadscopeError,
                match=f"`keep` must be {near}, as .*, got {keep}\\.",
            ):
                Gates(model, keep=keep)
        else:
            gates = Gates(model, keep=keep)
            assert sum(gates.by_head(gates.binarize().tolist()).values()) == keep


def test_units_of_several_sizes_add_up_to_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Units of 3, 2 and 2: the most open one is left out where the others could not make up the rest."""
    model = shared("bert")
    heads = model.heads[:7]
    monkeypatch.setattr(
        "headscope.learning.gates.units", lambda model: [heads[:3], heads[3:5], heads[5:]]
    )
    for keep, expected in ((4, [0, 1, 1]), (5, [1, 0, 1]), (3, [1, 0, 0]), (7, [1, 1, 1])):
        gates = Gates(model, keep=keep)
        with torch.no_grad():
            gates.log_alpha.copy_(torch.tensor([3.0, 1.0, 2.0]))
        assert gates.binarize().tolist() == expected
    with pytest.raises(HeadscopeError, match=r"`keep` must be 5 or 7, as .*, got 6\."):
        Gates(model, keep=6)


def test_a_state_taken_up_goes_on_to_the_same_gates_and_weights() -> None:
    settings = LoopSettings(epochs=2, batch_size=8, learning_rate=1e-3)
    whole, gates = training({"keep": 2}, settings)
    with whole.model.edited(gates.edit()):
        list(whole)
    for at in (1, 4, 8):
        single, _ = first = training({"keep": 2}, settings)
        with single.model.edited(first[1].edit()):
            list(islice(single, at))
            state = copy.deepcopy(single.state())
        other, others = training({"keep": 2}, settings)
        other.restore(state)
        with other.model.edited(others.edit()):
            list(other)
        assert torch.equal(others.log_alpha, gates.log_alpha)
        for name, value in whole.model.model.state_dict().items():
            assert torch.equal(other.model.model.state_dict()[name], value)


def test_a_penalty_for_each_stack() -> None:
    model = translator()
    gates = Gates(model, penalty={"encoder": 2.0, "cross": 0.5})
    prices = gates.by_head(gates.prices.tolist())
    assert {head.stack: price for head, price in prices.items()} == {
        "encoder": 2.0,
        "decoder": 0.0,
        "cross": 0.5,
    }


REFUSED = [
    ({}, "gates require either `penalty` or `keep`"),
    ({"penalty": 0.1, "keep": 2}, "gates require either `penalty` or `keep`"),
    ({"penalty": -0.1}, "`penalty` must be at least 0, got -0.1."),
    ({"penalty": math.nan}, "`penalty` must be at least 0, got nan."),
    (
        {"penalty": {"decoder": 1.0}},
        "`penalty` must name stacks of the model (encoder), got decoder.",
    ),
    ({"keep": 5}, "`keep` must be 1 to 4, got 5."),
    ({"keep": 0}, "`keep` must be 1 to 4, got 0."),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_what_cannot_be_learned_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(HeadscopeError) as refused:
        Gates(worded(BertForSequenceClassification, num_labels=2), **options)
    assert message in str(refused.value)
