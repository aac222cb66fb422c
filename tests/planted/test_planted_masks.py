"""Masks that are learned where the right one is known: a model that should do what it does under a hidden mask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from headscope.config.learn_mask import LearnMaskConfig
from headscope.learning.learned_mask import LearnedMask
from headscope.masks import Masked, read_mask
from headscope.model.attention_model import AttentionModel
from headscope.model.tokens import Batch
from headscope.tasks.prepared import Prepared
from headscope.training.loop import LoopSettings, Training
from tiny import examples, inputs_for, outputs, tiny
from toys import Means, prepared

LENGTH = 9


class Imitates(Means):
    """Every token's last state should be what it is under a mask that is not told."""

    names: ClassVar[tuple[str, ...]] = ("imitates",)

    def extract_answers(self, output: Any, batch: Batch, prepared: Prepared) -> Tensor:
        states: Tensor = output[0]
        return states

    def losses(self, answers: Tensor, prepared: Prepared, items: Sequence[int]) -> Tensor:
        return (answers - prepared.targets[list(items)]).pow(2).mean(dim=(1, 2))


def hidden_behind(mask: str, model: AttentionModel) -> Prepared:
    chosen = examples("bert", lengths=[(LENGTH, None)] * 24)
    with torch.no_grad(), model.edited(Masked(mask)):
        return prepared(chosen, outputs(model, inputs_for("bert", chosen)))


def learned_for(mask: str, **options: Any) -> Tensor:
    model = tiny("bert", num_hidden_layers=1)
    train = hidden_behind(mask, model)
    config = LearnMaskConfig(mask_rate=0.1, settle=1.0, **options)
    learned = LearnedMask(model, [LENGTH], config)
    settings = LoopSettings(epochs=60, batch_size=8, seed=1)
    run = Training(model, Imitates(), train, settings, learned=learned, frozen=True)
    with model.edited(learned.edit()):
        list(run)
    return learned.positions().mask("learned").at(LENGTH)[0]


@pytest.mark.parametrize("structured", [False, True])
def test_neighbours_are_kept_where_only_neighbours_matter(structured: bool) -> None:
    hidden = "window:width=1+first-and-last"
    assert torch.equal(
        learned_for(hidden, penalty=0.01, structured=structured), read_mask(hidden).at(LENGTH)[0]
    )


def test_where_a_token_must_not_see_itself_the_diagonal_goes_and_nothing_else() -> None:
    assert torch.equal(
        learned_for("no-diagonal", penalty=0.001), read_mask("no-diagonal").at(LENGTH)[0]
    )


def test_where_all_matters_nothing_goes() -> None:
    """The planted absence: no penalty worth speaking of, nothing to find."""
    assert learned_for("dense", penalty=1e-5).all()


def test_a_target_keeps_what_matters_most() -> None:
    """Neighbours are a fifth of all; at that share just they stay."""
    hidden = read_mask("window:width=1").at(LENGTH)[0]
    share = 1.0 - float(hidden.float().mean())
    assert torch.equal(learned_for("window:width=1", sparsity=share), hidden)
