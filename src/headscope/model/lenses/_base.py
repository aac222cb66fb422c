"""The base class of lenses, and the blocks of the output projection that several of them need."""

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

ROWS = "rows that sum to 1"
SIGN = "no weight below 0"
RANK = "the rank of the values"


class HeadMaps(NamedTuple):
    """The maps of one input, as `look` and the explorer draw them.

    maps    [head, query, key] of every site
    how     one or two sentences: how to read a number
    shares  whether a number is a share: from 0 to 1, a row's sum at most 1
    """

    maps: dict[Site, NDArray[np.float64]]
    how: str
    shares: bool = False


class Lens(ABC):
    """Another map of what a site did than its raw weights; made for one model.

    name            as in `--lens` and after the @ in heads.csv; the name of the file
    gives           properties of its maps: ROWS, SIGN, RANK. Statistics that require others are left out
    needs_gradient  whether `apply` is called in the backward pass, with the gradient of a loss by the weights.
                    Options about that loss then take effect
    how             how to read a number of `draw`, in one or two sentences
    """

    name: ClassVar[str]
    gives: ClassVar[frozenset[str]]
    needs_gradient: ClassVar[bool] = False
    how: ClassVar[str]

    def __init__(self, model: AttentionModel) -> None:
        self.model = model

    def open(self) -> AbstractContextManager[None]:
        """Open while the model is observed through this lens."""
        return nullcontext()

    @abstractmethod
    def apply(self, attention: Attention, gradient: Tensor | None = None) -> Attention | None:
        """The call through this lens, `row_totals` set; None at a site where the lens is not defined."""

    def draw(self, text: OneInput) -> HeadMaps:
        """The maps of one input, as `look` and the explorer draw them; must be overridden if a gradient is needed."""
        return HeadMaps(text.observe(self), self.how)

    def record(self) -> dict[str, int | dict[str, int]]:
        """Counts for the run record, after a pass."""
        return {}


class LensObserver:
    """An observer that gets a lens' maps instead of the weights."""

    def __init__(self, lens: Lens, observer: Observer) -> None:
        self.lens, self.observer, self.was_called = lens, observer, False

    def __call__(self, attention: Attention, gradient: Tensor | None = None) -> None:
        self.was_called = True
        mapped = self.lens.apply(attention, gradient)
        if mapped is not None:
            self.observer(mapped)


def projections(model: AttentionModel, lens: str) -> dict[Site, Tensor]:
    """The output projection of every site as blocks [head, out, width]: a head writes its values times its block."""
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
                expected="a linear layer that takes the heads' results side by side",
            )
    return {
        site: block.to(torch.promote_types(block.dtype, torch.float32))
        for site, block in blocks.items()
    }
