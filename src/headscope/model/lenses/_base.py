"""`Lens`, the base class of lenses, and the output projection as one block per head, which several lenses need."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headscope.errors import HeadscopeError
from headscope.heads import Site
from headscope.model.anatomy import anatomy, weight_of
from headscope.model.attention import Attention

if TYPE_CHECKING:
    from headscope.model.attention_model import AttentionModel
    from headscope.model.one_input import OneInput
    from headscope.model.seam import Observer

# Properties of maps that statistics may require
ROWS = "rows that sum to 1"
SIGN = "no weight below 0"
RANK = "the rank of the values"


class HeadMaps(NamedTuple):
    """The maps of one input, as `look` and the explorer draw them.

    maps    {site: [head, query, key]}
    how     one or two sentences that explain what a number means
    shares  whether numbers are shares: between 0 and 1, with rows that sum to at most 1
    """

    maps: dict[Site, NDArray[np.float64]]
    how: str
    shares: bool = False


class Lens(ABC):
    """Computes a map for every site of one model, which observers get in place of the attention weights.

    name            the name in `--lens` and after the @ in heads.csv; also the name of the file
    gives           the properties of its maps: ROWS, SIGN, RANK. Statistics that require another property are left out
    needs_gradient  whether `apply` is called in the backward pass, with the gradient of a loss with respect to the
                    weights. Options for that loss then have an effect
    how             one or two sentences that explain what a number of `draw` means
    """

    name: ClassVar[str]
    gives: ClassVar[frozenset[str]]
    needs_gradient: ClassVar[bool] = False
    how: ClassVar[str]

    def __init__(self, model: AttentionModel) -> None:
        self.model = model

    def open(self) -> AbstractContextManager[None]:
        """A context that is open while the model is observed through this lens."""
        return nullcontext()

    @abstractmethod
    def apply(self, attention: Attention, gradient: Tensor | None = None) -> Attention | None:
        """The call with the map of this lens, and `row_totals`; None at a site where the lens is not defined.

        gradient  [sequence, head, query, key]: of the loss with respect to the weights, if `needs_gradient`
        """

    def draw(self, text: OneInput) -> HeadMaps:
        """The maps of one input, as `look` and the explorer draw them; overridden by lenses that need gradients."""
        return HeadMaps(text.observe(self), self.how)

    def record(self) -> dict[str, int | dict[str, int]]:
        """Counts for the run record, after all forward passes."""
        return {}


class LensObserver:
    """Applies a lens to every call, and passes the result on to an observer."""

    def __init__(self, lens: Lens, observer: Observer) -> None:
        self.lens, self.observer, self.was_called = lens, observer, False

    def __call__(self, attention: Attention, gradient: Tensor | None = None) -> None:
        self.was_called = True
        mapped = self.lens.apply(attention, gradient)
        if mapped is not None:
            self.observer(mapped)


def projections(model: AttentionModel, lens: str) -> dict[Site, Tensor]:
    """The output projection of every site as blocks [head, out, width]: each head's output is multiplied by its block.

    lens  the name of the lens, for the error message
    """
    modules = dict(model.model.named_modules())
    tap = model.family.tap
    blocks = {}
    for site, parts in anatomy(model).items():
        if parts.projection is not None:
            weight = weight_of(modules[parts.projection])
            weight = weight.reshape(len(weight), len(site.numbers or ()), -1)  # [out, head, width]
            blocks[site] = weight.transpose(0, 1)
        elif tap is not None and tap.output is not None:
            blocks[site] = tap.output(modules[parts.core]).detach()
        else:
            raise HeadscopeError(
                f"the output projection of {site} is not found in this {type(model.model).__name__}",
                where=f"lens {lens}",
                expected="a linear layer whose input is the concatenated outputs of the heads",
            )
    return {
        site: block.to(torch.promote_types(block.dtype, torch.float32))
        for site, block in blocks.items()
    }
