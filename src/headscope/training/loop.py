"""The loop: AdamW, warm-up and linear decay, clipped gradients, batches of like length.

Every step follows from the seed and the step's number alone, and from the state that can be saved after any of them: a
run that was killed and goes on from its last state ends with the same weights, to the bit, on the same machine.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor

from headscope.config.training import TrainingConfig
from headscope.errors import HeadscopeError
from headscope.model.attention_model import AttentionModel
from headscope.tasks.base import Prepared, Task, batch_of, sequences_of
from headscope.tasks.inference import report_out_of_memory
from headscope.training.learnable_edit import LearnableEdit

POOL = 50  # batches' worth of examples that are sorted by length together: little padding, still a good shuffle
_UNDECAYED = ("bias", "norm", "LayerNorm")


@dataclass(frozen=True)
class LoopSettings:
    """Settings of the loop; `TrainingConfig` checks their values.

    warmup  share of the steps in which the learning rate rises
    clip    maximum norm of the gradients
    steps   number of steps, instead of epochs
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
    """What happened: which step of how many, in which epoch, and the mean loss of its examples in nats."""

    number: int
    total: int
    epoch: int
    loss: float

    @property
    def ends_epoch(self) -> bool:
        """Also the last one, where the steps end before the epoch does."""
        return self.number % self.in_epoch == 0 or self.number == self.total

    in_epoch: int = 1


class Diverged(HeadscopeError):
    """The loss, or its gradient, is no longer a number; the weights are still those of the step before."""


class Training:
    """A model being trained on a task's examples."""

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
        """teacher: a model whose answers are to be imitated, beside what is right.

        learned  gates or a mask, trained beside the weights; frozen: instead of them
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
            decayed: list[Tensor] = []
            others: list[Tensor] = []
            for name, parameter in model.model.named_parameters():
                is_undecayed = any(mark in name for mark in _UNDECAYED)
                (others if is_undecayed else decayed).append(parameter)
            groups.append({"params": decayed, "weight_decay": settings.weight_decay})
            groups.append({"params": others, "weight_decay": 0.0})
        self._decaying = len(groups)  # those after them keep their rate once the warm-up is over
        groups += [] if learned is None else learned.groups()
        self.optimizer = torch.optim.AdamW(groups, lr=settings.learning_rate)
        self._rates = [group["lr"] for group in self.optimizer.param_groups]
        # Other dropout in every process.
        torch.manual_seed(settings.seed + self.accelerator.process_index)
        self._batches: tuple[int, list[list[int]]] = (-1, [])  # epoch and its batches

    def __iter__(self) -> Iterator[Step]:
        """Step by step to the end, from wherever the state is."""
        while self.number < self.total:
            epoch, place = divmod(self.number, self.in_epoch)
            items = self._epoch(epoch)[place]
            loss = self._step(items)
            self.number += 1
            yield Step(self.number, self.total, epoch, loss, self.in_epoch)

    def _step(self, items: list[int]) -> float:
        """One update from these examples; with several processes each takes its share."""
        many = self.accelerator.num_processes
        mine = items[self.accelerator.process_index :: many]
        for number, group in enumerate(self.optimizer.param_groups):
            rate = self._rate() if number < self._decaying else min(self._rising(), 1.0)
            group["lr"] = self._rates[number] * rate
        self._switch(True)
        try:
            with torch.enable_grad(), report_out_of_memory(self.settings.batch_size):
                if self.learned is not None:
                    self.learned.draw(self.progress)
                loss = self._loss(mine) * (len(mine) * many / len(items))
                self.optimizer.zero_grad(set_to_none=True)
                cost = 0.0 if self.learned is None else self.learned.cost(self.progress)
                self.accelerator.backward(loss + cost)
        finally:
            self._switch(False)
        parameters = [p for p in self.model.model.parameters() if p.grad is not None]
        learned = [] if self.learned is None else self.learned.parameters()
        others = [p for p in learned if p.grad is not None]
        if many > 1:
            for parameter in parameters + others:
                parameter.grad = self.accelerator.reduce(parameter.grad, reduction="mean")
        value = float(self.accelerator.reduce(loss.detach(), reduction="mean"))
        norm = sum((float(p.grad.norm()) for p in others if p.grad is not None), 0.0)
        if parameters:
            norm += float(torch.nn.utils.clip_grad_norm_(parameters, self.settings.clip))
        for name, found in (("loss", value), ("gradient's norm", norm)):
            if not math.isfinite(found):
                raise Diverged(
                    f"the {name} is {found} at step {self.number + 1}",
                    where=self.model.name,
                    fix=f"Try a smaller `learning_rate` than {self.settings.learning_rate:g}",
                )
        self.optimizer.step()
        return value

    def _switch(self, is_training: bool) -> None:
        """Dropout and noise on or off; frozen weights are never under dropout."""
        self.model.model.train(is_training and not self.frozen)
        if self.learned is not None:
            self.learned.train(is_training)

    @property
    def progress(self) -> float:
        return self.number / self.total

    def _loss(self, items: list[int]) -> Tensor:
        train, items = self.task.training_examples(self.train, items, self.number // self.in_epoch)
        batch = batch_of(self.model, train, sequences_of(train, items))
        answers = self.task.extract_answers(self.task.call(self.model, batch), batch, train)
        loss = self.task.losses(answers, train, items).mean()
        if self.teacher is None:
            return loss
        with torch.no_grad():
            wanted = self.task.extract_answers(self.task.call(self.teacher, batch), batch, train)
        return (loss + self.task.imitation(answers, wanted).mean()) / 2

    def _rate(self) -> float:
        """1 at the end of the warm-up, 0 at the end."""
        decay_steps = max(self.total - self.settings.warmup * self.total, 1)
        return min(self._rising(), (self.total - self.number) / decay_steps)

    def _rising(self) -> float:
        return (self.number + 1) / max(self.settings.warmup * self.total, 1)

    def _epoch(self, epoch: int) -> list[list[int]]:
        """The batches of an epoch: examples shuffled, sorted by length in pools, the batches shuffled again."""
        if self._batches[0] == epoch:
            return self._batches[1]
        chance = np.random.default_rng([self.settings.seed, epoch])
        size, order = self.settings.batch_size, chance.permutation(len(self.train.items)).tolist()
        batches: list[list[int]] = []
        for start in range(0, len(order), size * POOL):
            pool = sorted(order[start : start + size * POOL], key=self._length)
            batches += [pool[i : i + size] for i in range(0, len(pool), size)]
        self._batches = epoch, [batches[i] for i in chance.permutation(len(batches))]
        return self._batches[1]

    def _length(self, item: int) -> int:
        sequences = self.train.sequences
        return max(len(sequences[number].source.ids) for number in self.train.parts[item])

    # State

    def state(self) -> dict[str, Any]:
        """All that the next steps depend on; with several processes all must ask for it."""
        return {
            "number": self.number,
            "model": self.model.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "chance": self.accelerator.gather(torch.get_rng_state()[None]),
            **({} if self.learned is None else {"learned": self.learned.state_dict()}),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.number = state["number"]
        self.model.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["chance"][self.accelerator.process_index])
        if self.learned is not None:
            self.learned.load_state_dict(state["learned"])

    def agree(self, is_due: bool) -> bool:
        """Whether any process says so: their clocks differ, and what they do together they must all begin."""
        told = torch.tensor(float(is_due), device=self.accelerator.device)
        return bool(self.accelerator.reduce(told, reduction="sum") > 0)
