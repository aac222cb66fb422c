"""`OneInput`: one input of a model with its weights, their gradients and its tokens, for lenses and token maps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headscope.errors import HeadscopeError
from headscope.heads import Site
from headscope.model.attention import Attention
from headscope.model.attention_model import AttentionModel
from headscope.model.edits import Edit
from headscope.model.lenses import Lens
from headscope.model.scalar_output import scalar_output
from headscope.model.tokens import Batch

Weights = Mapping[Site, NDArray[np.float64]]  # [head, query, key] at every site that attended


class Gradients(NamedTuple):
    """Weights, the gradients of a scalar output with respect to them, and a description of that output."""

    weights: Weights
    gradients: Weights
    output: str


@dataclass
class OneInput:
    """One input of a model. Weights and gradients are computed once and shared by several maps.

    batch   a batch of one sequence
    target  gradients are those of the output at this token, counted from 0; None for the output as a whole
    """

    model: AttentionModel
    batch: Batch
    target: int | None = None

    @cached_property
    def weights(self) -> dict[Site, NDArray[np.float64]]:
        """{site: attention weights [head, query, key]}."""
        return self.observe("raw")

    @cached_property
    def gradients(self) -> Gradients:
        """The gradients of the model's `scalar_output`; 0 at sites that it does not depend on."""
        if self.model.model.dtype.itemsize < 4:
            raise HeadscopeError(
                f"gradients in {str(self.model.model.dtype).removeprefix('torch.')} are too coarse",
                where=self.model.name,
                fix="Load the model with dtype float32",
            )
        recorder = _WeightRecorder()
        with self.model.edited(recorder), torch.inference_mode(False), torch.enable_grad():
            number, description = scalar_output(self.model, self.batch, self.target)
        inputs = list(recorder.by_site.values())
        derivatives = torch.autograd.grad(number, inputs, allow_unused=True)
        weights = {site: _to_array(cells) for site, cells in recorder.by_site.items()}
        gradients = {
            site: np.zeros_like(weights[site]) if derivative is None else _to_array(derivative)
            for site, derivative in zip(recorder.by_site, derivatives, strict=True)
        }
        return Gradients(weights, gradients, description)

    def observe(
        self,
        lens: Lens | str,
        cells_of: Callable[[Attention], Tensor] = lambda attention: attention.weights,
    ) -> dict[Site, NDArray[np.float64]]:
        """{site: [head, query, key]}: what `cells_of` returns for the call through a lens; one forward pass.

        cells_of  function of an `Attention`: [1, head, query, key]; by default the map of the lens
        """
        maps: dict[Site, NDArray[np.float64]] = {}

        def store(attention: Attention) -> None:
            maps[attention.site] = cells_of(attention)[0].double().cpu().numpy().copy()

        with self.model.watched(store, lens=lens), torch.inference_mode():
            self.model(self.batch)
        return maps

    def tokens(self, stacks: Iterable[str]) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
        """{stack: (query tokens, key tokens)} as texts, along the axes of the stack's maps."""
        return {stack: self._tokens_of(stack) for stack in stacks}

    def _tokens_of(self, stack: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        sides = self.batch.layout.sides(stack)
        tokenizer = self.model.tokenizer
        assert sides is not None
        assert tokenizer is not None
        query, key = (
            tuple(tokenizer.convert_ids_to_tokens([] if side.ids is None else side.ids[0].tolist()))
            for side in sides
        )
        return query, key


class _WeightRecorder(Edit):
    """An edit without effect that stores the weights of every site as a part of the autograd graph."""

    def __init__(self) -> None:
        self.by_site: dict[Site, Tensor] = {}

    def changes_weights(self, site: Site) -> bool:
        return True

    def weights(self, site: Site, weights: Tensor) -> Tensor:
        self.by_site[site] = weights if weights.requires_grad else weights.requires_grad_()
        return weights


def _to_array(cells: Tensor) -> NDArray[np.float64]:
    """[head, query, key] of the one sequence in cells [1, head, query, key]."""
    return cells[0].detach().double().cpu().numpy()
