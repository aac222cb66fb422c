"""The training loop: AdamW, warm-up and linear decay, clipped gradients, batches of similar length.

Every step is determined by the seed, the number of the step and the state, which can be saved after any step. If a
stopped run is resumed from its last state, it ends with the same weights, bit for bit, on the same machine.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, NotRequired, TypedDict

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor

from headscope.config.training import TrainingConfig
from headscope.errors import HeadscopeError
from headscope.model.attention_model import AttentionModel
from headscope.tasks.base import Task
from headscope.tasks.inference import report_out_of_memory
from headscope.tasks.prepared import Prepared, batch_of, sequences_of
from headscope.training.learnable_edit import LearnableEdit

POOL = 50  # batches whose examples are sorted by length together: little padding, but still well shuffled
# parameters with one of these in their name have no weight decay
_UNDECAYED = ("bias", "norm", "LayerNorm")


@dataclass(frozen=True)
class LoopSettings:
    """Settings of the loop; `TrainingConfig` checks their values.

    warmup  share of the steps in which the learning rate rises
    clip    maximum norm of the gradients of all weights together
    steps   number of steps; None: given by `epochs`
    """

    epochs: int = 3
    batch_size: int = 32
    learning_rate: float = 1e-4
    warmup: float = 0.1
    weight_decay: float = 0.01
    clip: float = 1.0
    seed: int = 0
    steps: int | None = None

    @classmethod
    def from_config(
        cls, config: TrainingConfig, seed: int, steps: int | None = None
    ) -> LoopSettings:
        shared = {field.name: getattr(config, field.name) for field in fields(TrainingConfig)}
        return cls(**shared, seed=seed, steps=steps)


@dataclass(frozen=True)
class Step:
    """A finished step: its number (from 1), its epoch (from 0) and the mean loss of its examples in nats."""

    number: int
    total: int
    epoch: int
    loss: float
    in_epoch: int = 1  # steps per epoch

    @property
    def ends_epoch(self) -> bool:
        """Whether it is the last step of an epoch, or of the training."""
        return self.number % self.in_epoch == 0 or self.number == self.total


class Diverged(HeadscopeError):
    """The loss or its gradient is NaN or infinite. The weights are those of the previous step."""


class TrainingState(TypedDict):
    """The state that the next steps depend on. run: header and history of the run, as JSON."""

    number: int  # of steps that are done
    model: dict[str, Tensor]
    optimizer: dict[str, Any]
    rng: Tensor
    learned: NotRequired[dict[str, Tensor]]
    run: NotRequired[str]


class Training:
    """Trains a model on the examples of a task. Iterate over it to train; it yields every step."""

    def __init__(
        self,
        model: AttentionModel,
        task: Task,
        train: Prepared,
        settings: LoopSettings,
        teacher: AttentionModel | None = None,
        learned: LearnableEdit | None = None,
        frozen: bool = False,
    ) -> None:
        """Prepare the optimizer.

        teacher  a model to distil from, in addition to the labels
        learned  gates or a mask, trained in addition to the weights
        frozen   whether the weights are not trained, but only `learned`
        """
        self.model, self.task, self.train, self.settings = model, task, train, settings
        self.teacher, self.learned, self.frozen = teacher, learned, frozen
        self.accelerator = Accelerator(cpu=model.device.type == "cpu")
        self.in_epoch = -(-len(train.items) // settings.batch_size)
        self.total = self.in_epoch * settings.epochs if settings.steps is None else settings.steps
        self.number = 0
        groups: list[dict[str, Any]] = []
        if frozen:
            model.model.requires_grad_(False)
        else:
            parameters: dict[bool, list[Tensor]] = {False: [], True: []}  # by whether they decay
            for name, parameter in model.model.named_parameters():
                parameters[not any(part in name for part in _UNDECAYED)].append(parameter)
            groups.append({"params": parameters[True], "weight_decay": settings.weight_decay})
            groups.append({"params": parameters[False], "weight_decay": 0.0})
        # The learning rate of the first groups (weights) decays after the warm-up, that of the later ones (learned)
        # stays constant.
        self._decaying = len(groups)
        groups += [] if learned is None else learned.parameter_groups()
        self.optimizer = torch.optim.AdamW(groups, lr=settings.learning_rate)
        self._rates = [group["lr"] for group in self.optimizer.param_groups]
        # Every process has its own seed, so that dropout differs between processes.
        torch.manual_seed(settings.seed + self.accelerator.process_index)
        self._batches: tuple[int, list[list[int]]] = (-1, [])  # epoch and its batches

    def __iter__(self) -> Iterator[Step]:
        """Train from the current state to the end; yields every step."""
        while self.number < self.total:
            epoch, index = divmod(self.number, self.in_epoch)
            loss = self._step(self._epoch(epoch)[index])
            self.number += 1
            yield Step(self.number, self.total, epoch, loss, self.in_epoch)

    def _step(self, items: list[int]) -> float:
        """Update the weights once, from these examples; returns the mean loss. Processes divide the examples."""
        processes = self.accelerator.num_processes
        mine = items[self.accelerator.process_index :: processes]
        decaying, constant = self._rate_factors()
        for number, group in enumerate(self.optimizer.param_groups):
            group["lr"] = self._rates[number] * (decaying if number < self._decaying else constant)
        self._set_training(True)
        try:
            with torch.enable_grad(), report_out_of_memory(self.settings.batch_size):
                if self.learned is not None:
                    self.learned.draw(self.progress)
                loss = self._loss(mine) * (len(mine) * processes / len(items))
                self.optimizer.zero_grad(set_to_none=True)
                cost = 0.0 if self.learned is None else self.learned.cost(self.progress)
                self.accelerator.backward(loss + cost)
        finally:
            self._set_training(False)
        parameters = [p for p in self.model.model.parameters() if p.grad is not None]
        learned = [] if self.learned is None else self.learned.parameters()
        others = [p for p in learned if p.grad is not None]
        if processes > 1:
            for parameter in parameters + others:
                parameter.grad = self.accelerator.reduce(parameter.grad, reduction="mean")
        value = float(self.accelerator.reduce(loss.detach(), reduction="mean"))
        norm = sum((float(p.grad.norm()) for p in others if p.grad is not None), 0.0)
        if parameters:
            norm += float(torch.nn.utils.clip_grad_norm_(parameters, self.settings.clip))
        for name, quantity in (("loss", value), ("gradient's norm", norm)):
            if not math.isfinite(quantity):
                raise Diverged(
                    f"the {name} is {quantity} at step {self.number + 1}",
                    where=self.model.name,
                    fix=f"Try a smaller `learning_rate` than {self.settings.learning_rate:g}",
                )
        self.optimizer.step()
        return value

    def _rate_factors(self) -> tuple[float, float]:
        """Factors of the learning rates: for weights (warm-up, then linear decay) and for `learned` (warm-up only)."""
        warmup = self.settings.warmup * self.total
        rising = (self.number + 1) / max(warmup, 1)
        falling = (self.total - self.number) / max(self.total - warmup, 1)
        return min(rising, falling), min(rising, 1.0)

    def _set_training(self, is_training: bool) -> None:
        """Switch dropout and noise on or off. A frozen model is trained without dropout."""
        self.model.model.train(is_training and not self.frozen)
        if self.learned is not None:
            self.learned.train(is_training)

    @property
    def progress(self) -> float:
        """The share of the steps that are done, from 0 to 1."""
        return self.number / self.total

    def _loss(self, items: list[int]) -> Tensor:
        """The mean loss of these examples; with a teacher, the mean of this and the distillation loss."""
        train, items = self.task.training_examples(self.train, items, self.number // self.in_epoch)
        batch = batch_of(self.model, train, sequences_of(train, items))
        answers = self.task.extract_answers(self.task.call(self.model, batch), batch, train)
        loss = self.task.losses(answers, train, items).mean()
        if self.teacher is None:
            return loss
        with torch.no_grad():
            teacher = self.task.extract_answers(self.task.call(self.teacher, batch), batch, train)
        return (loss + self.task.imitation(answers, teacher).mean()) / 2

    def _epoch(self, epoch: int) -> list[list[int]]:
        """The batches of an epoch: examples are shuffled, sorted by length within pools, and batches shuffled again."""
        if self._batches[0] == epoch:
            return self._batches[1]
        rng = np.random.default_rng([self.settings.seed, epoch])
        size, order = self.settings.batch_size, rng.permutation(len(self.train.items)).tolist()
        batches: list[list[int]] = []
        for start in range(0, len(order), size * POOL):
            pool = sorted(order[start : start + size * POOL], key=self._length)
            batches += [pool[i : i + size] for i in range(0, len(pool), size)]
        self._batches = epoch, [batches[i] for i in rng.permutation(len(batches))]
        return self._batches[1]

    def _length(self, item: int) -> int:
        """Number of source tokens in the longest sequence of an example."""
        sequences = self.train.sequences
        return max(len(sequences[number].source.ids) for number in self.train.parts[item])

    # State

    def state(self) -> TrainingState:
        """The state that the next steps depend on. With several processes, all of them must call this method."""
        state: TrainingState = {
            "number": self.number,
            "model": self.model.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "rng": self.accelerator.gather(torch.get_rng_state()[None]),
        }
        if self.learned is not None:
            state["learned"] = self.learned.state_dict()
        return state

    def restore(self, state: TrainingState) -> None:
        self.number = state["number"]
        self.model.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["rng"][self.accelerator.process_index])
        if self.learned is not None:
            self.learned.load_state_dict(state["learned"])

    def any_process(self, is_due: bool) -> bool:
        """Whether saving is due in any process. Their clocks differ, but all must save at the same step."""
        due = torch.tensor(float(is_due), device=self.accelerator.device)
        return bool(self.accelerator.reduce(due, reduction="sum") > 0)
