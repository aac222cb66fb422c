"""What a lens is, and what several need: the blocks of the output projection, one a head."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from headscope.errors import HeadscopeError
from headscope.heads import Site
from headscope.model.anatomy import anatomy, weight_of
from headscope.model.attention import Attention

if TYPE_CHECKING:
    from headscope.model.attention_model import AttentionModel

ROWS = "rows that sum to 1"
SIGN = "no weight below 0"
RANK = "the rank of the values"


class Lens(ABC):
    """A way to look at what a site did; made for one model.

    name     as in `--lens` and behind the @ in heads.csv
    gives    what its maps have: ROWS, SIGN, RANK
    on_the_way_back  whether a map is known only when the loss' derivative comes back (`seen` then gets it)
    """

    name: ClassVar[str]
    gives: ClassVar[frozenset[str]]
    on_the_way_back: ClassVar[bool] = False

    def __init__(self, model: AttentionModel) -> None:
        self.model = model

    def opened(self) -> AbstractContextManager[None]:
        """What is open while the model is watched through this lens."""
        return nullcontext()

    @abstractmethod
    def seen(self, attention: Attention, gradient: Tensor | None = None) -> Attention | None:
        """The call through this lens, `row_totals` set; None at a site where the lens makes no sense."""


def projections(model: AttentionModel, lens: str) -> dict[Site, Tensor]:
    """The output projection of every site as blocks [head, out, width]: what a head writes is its values times this."""
    modules = dict(model.model.named_modules())
    tap = model.family.tap
    found = {}
    for site, parts in anatomy(model).items():
        if parts.projection is not None:
            weight = weight_of(modules[parts.projection])
            found[site] = weight.reshape(len(weight), len(site.numbers or ()), -1).transpose(0, 1)
        elif tap is not None and tap.output is not None:
            found[site] = tap.output(modules[parts.core]).detach()
        else:
            raise HeadscopeError(
                f"the output projection of {site} is not found in this {type(model.model).__name__}",
                where=f"lens {lens}",
                expected="a linear layer that takes the heads' results side by side",
            )
    return {
        site: blocks.to(torch.promote_types(blocks.dtype, torch.float32))
        for site, blocks in found.items()
    }


def over_totals(cells: Tensor, totals: Tensor) -> Tensor:
    """Cells over the totals of their rows [..., query], in place; rows that are 0 stay 0."""
    return cells.div_(torch.where(totals > 0, totals, 1.0)[..., None])
