"""The loop: what a step does, and that it can be taken up anywhere."""

from __future__ import annotations

import copy
from itertools import islice, pairwise

import pytest
import torch
from transformers import BertForSequenceClassification

from headscope.config.training import TrainingConfig
from headscope.errors import HeadscopeError
from headscope.tasks import Item, get_task
from headscope.tasks.inference import answers
from headscope.training.loop import LoopSettings, Training
from worded import sentiments, worded

CLIP = 1e-7  # so small that Adam's epsilon shows it: else a step would not depend on the gradients' length


def training(settings: LoopSettings, count: int = 40) -> Training:
    """Weights as they are before training, not as large as trained ones: these are to be learned."""
    torch.manual_seed(0)
    model = worded(BertForSequenceClassification, num_labels=2)
    model.model.apply(model.model._init_weights)
    task = get_task("sst2")
    items = [Item((text,), label, f"x:{i}") for i, (text, label) in enumerate(sentiments(count))]
    return Training(model, task, task.prepare(model, items), settings)


def weights(run: Training) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in run.model.model.state_dict().items()}


def test_the_loss_goes_down_on_a_task_that_can_be_learned() -> None:
    steps = list(training(LoopSettings(epochs=12, batch_size=8, learning_rate=1e-2)))
    assert [step.number for step in steps] == list(range(1, 61))
    assert {step.epoch for step in steps} == set(range(12))
    assert sum(step.ends_epoch for step in steps) == 12
    first, last = ([step.loss for step in steps if step.epoch == epoch] for epoch in (0, 11))
    assert sum(last) / len(last) < 0.3 * sum(first) / len(first)


def test_every_epoch_sees_every_example_once_in_another_order() -> None:
    run = training(LoopSettings(epochs=3, batch_size=7))
    epochs = [[item for batch in run._epoch(epoch) for item in batch] for epoch in range(3)]
    for order in epochs:
        assert sorted(order) == list(range(40))
    assert epochs[0] != epochs[1] != epochs[2]
    assert epochs == [[item for batch in run._epoch(epoch) for item in batch] for epoch in range(3)]


def test_a_state_taken_up_by_another_run_goes_on_to_the_same_weights() -> None:
    """With dropout on: chance is part of the state."""
    settings = LoopSettings(epochs=3, batch_size=8, learning_rate=1e-3)
    whole = training(settings)
    assert whole.model.model.config.hidden_dropout_prob > 0
    losses = [step.loss for step in whole]
    for at in (1, 5, 8):
        single = training(settings)
        begun = [step.loss for step in islice(single, at)]
        state = copy.deepcopy(single.state())
        other = training(settings)
        torch.manual_seed(99)
        other.restore(state)
        assert begun + [step.loss for step in other] == losses
        for name, value in weights(whole).items():
            assert torch.equal(weights(other)[name], value), name


def test_the_first_step_is_adamw_s_with_clipped_gradients() -> None:
    """Written out for one step: rate, norm, and the decay of weights but not of biases and norms."""
    settings = LoopSettings(
        epochs=1, batch_size=40, learning_rate=1e-2, warmup=0.0, clip=CLIP, weight_decay=10.0
    )
    run = training(settings)
    model = run.model.model
    before = weights(run)
    for module in model.modules():  # the same numbers in a pass of our own
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    model.config.attention_probs_dropout_prob = 0.0
    for layer in model.bert.encoder.layer:
        layer.attention.self.dropout.p = 0.0
    model.train()
    run._loss(list(range(40))).backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    norm = float(torch.sqrt(sum((g**2).sum() for g in gradients.values())))
    assert norm > 1e3 * CLIP
    list(run)
    for name, parameter in model.named_parameters():
        if name not in gradients:
            continue
        gradient = gradients[name] * (CLIP / (norm + 1e-6))
        decay = 0.0 if "bias" in name or "LayerNorm" in name else 10.0
        wanted = before[name] * (1 - 1e-2 * decay) - 1e-2 * gradient / (gradient.abs() + 1e-8)
        assert torch.allclose(parameter, wanted, atol=2e-5), name


def test_the_rate_rises_and_falls() -> None:
    run = training(LoopSettings(epochs=2, batch_size=4, warmup=0.25))
    rates = []
    for number in range(run.total):
        run.number = number
        rates.append(run._rate_factors()[0])
    assert rates[:5] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert rates[-1] == pytest.approx(1 / 15)
    assert all(a > b for a, b in pairwise(rates[5:]))


def test_the_model_is_left_evaluating_and_a_loss_that_is_no_number_stops_the_run() -> None:
    run = training(LoopSettings(epochs=1, batch_size=8))
    next(iter(run))
    assert not run.model.model.training
    with torch.no_grad():
        run.model.model.classifier.weight.fill_(float("nan"))
    with pytest.raises(
        HeadscopeError,
        match=r"the loss is nan at step 2\. Try a smaller `learning_rate` than 0\.0001\.",
    ):
        list(run)
    assert not run.model.model.training


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": 0}, "`epochs` must be at least 1, got 0."),
        ({"batch_size": 0}, "`batch_size` must be at least 1, got 0."),
        ({"learning_rate": 0.0}, "`learning_rate` must be above 0, got 0."),
        (
            {"learning_rate": float("inf")},
            "`learning_rate` must be above 0, got inf.",
        ),
        ({"warmup": 1.5}, "`warmup` must be at least 0 and at most 1, got 1.5."),
        ({"weight_decay": -1.0}, "`weight_decay` must be at least 0, got -1."),
        ({"clip": float("nan")}, "`clip` must be above 0, got nan."),
    ],
)
def test_impossible_settings_are_refused(changes: dict[str, float], message: str) -> None:
    with pytest.raises(HeadscopeError) as error:
        TrainingConfig(**changes)  # type: ignore[arg-type]
    assert str(error.value) == message


def test_a_teacher_is_imitated() -> None:
    """A pupil with a teacher comes nearer to its answers than one without, and the teacher stays as it was."""
    settings = LoopSettings(epochs=6, batch_size=8, learning_rate=3e-3)
    teacher = worded(BertForSequenceClassification, seed=3, num_labels=2)
    before = {name: value.clone() for name, value in teacher.model.state_dict().items()}
    apart = []
    for followed in (None, teacher):
        run = training(settings)
        run.teacher = followed
        list(run)
        ours, theirs = (answers(one, run.task, run.train) for one in (run.model, teacher))
        apart.append(float(run.task.imitation(ours, theirs).mean()))
    assert apart[1] < 0.8 * apart[0]
    assert all(
        torch.equal(value, before[name]) for name, value in teacher.model.state_dict().items()
    )


@pytest.mark.parametrize("name", ["sst2", "similarity", "retrieval"])
def test_imitation_is_zero_for_the_same_answers_and_positive_for_others(name: str) -> None:
    first, other = torch.nn.functional.normalize(
        torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0)), dim=-1
    )
    task = get_task(name)
    assert float(task.imitation(first, first).abs().max()) < 1e-6
    assert (task.imitation(first, other) > 0.01).all()


def test_answers_without_classes_or_vectors_cannot_be_imitated() -> None:
    with pytest.raises(HeadscopeError, match="requires a task with classes or vectors, got masked"):
        get_task("masked").imitation(torch.zeros(1), torch.zeros(1))
