"""One input of a model, as the maps of lenses and of tokens need it: weights, their gradients, names of the tokens."""

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
    """Weights, the gradients of a scalar output by them, and what that output is, in words."""

    weights: Weights
    gradients: Weights
    output: str


@dataclass
class OneInput:
    """One input of a model; what several maps need of it is computed once.

    target  the token whose output gradients are taken of, counted from 0; by default all of them, or the whole output
    """

    model: AttentionModel
    batch: Batch
    target: int | None = None

    @cached_property
    def weights(self) -> dict[Site, NDArray[np.float64]]:
        return self.observe("raw")

    @cached_property
    def gradients(self) -> Gradients:
        if self.model.model.dtype.itemsize < 4:
            raise HeadscopeError(
                f"gradients in {str(self.model.model.dtype).removeprefix('torch.')} are too coarse",
                where=self.model.name,
                fix="Load the model with dtype float32",
            )
        graph = _KeepGraph()
        with self.model.edited(graph), torch.inference_mode(False), torch.enable_grad():
            number, output = scalar_output(self.model, self.batch, self.target)
        derivatives = torch.autograd.grad(number, list(graph.by_site.values()), allow_unused=True)
        weights = {site: _to_array(cells) for site, cells in graph.by_site.items()}
        gradients = {
            site: np.zeros_like(weights[site]) if derivative is None else _to_array(derivative)
            for site, derivative in zip(graph.by_site, derivatives, strict=True)
        }
        return Gradients(weights, gradients, output)

    def observe(
        self,
        lens: Lens | str,
        cells_of: Callable[[Attention], Tensor] = lambda attention: attention.weights,
    ) -> dict[Site, NDArray[np.float64]]:
        """Cells [head, query, key] of every site through a lens, in one forward pass."""
        maps: dict[Site, NDArray[np.float64]] = {}

        def keep(attention: Attention) -> None:
            maps[attention.site] = cells_of(attention)[0].double().cpu().numpy().copy()

        with self.model.watched(keep, lens=lens), torch.inference_mode():
            self.model(self.batch)
        return maps

    def tokens(self, stacks: Iterable[str]) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
        """The tokens along both axes of each stack's maps, as the tokenizer prints them."""
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


class _KeepGraph(Edit):
    """Changes nothing; keeps every site's weights with their graph."""

    def __init__(self) -> None:
        self.by_site: dict[Site, Tensor] = {}

    def changes_weights(self, site: Site) -> bool:
        return True

    def weights(self, site: Site, weights: Tensor) -> Tensor:
        self.by_site[site] = weights if weights.requires_grad else weights.requires_grad_()
        return weights


def _to_array(cells: Tensor) -> NDArray[np.float64]:
    return cells[0].detach().double().cpu().numpy()
