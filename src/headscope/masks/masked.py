"""Attention that goes only where a mask lets it."""

from __future__ import annotations

import torch
from torch import Tensor

from headscope.heads import Head, Site
from headscope.masks.mask import Mask, read_mask
from headscope.model.edits import Edit
from headscope.model.tokens import Layout, Tokens


class Masked(Edit):
    """Every self-attention goes only where a mask allows; from decoder to encoder nothing changes.

    Positions are counted over a sequence's real tokens, wherever its padding is. A query that may attend to nothing,
    by the mask and what else is forbidden, attends to itself.
    open_special  special tokens see everything and are seen by all, whatever the mask says
    """

    def __init__(self, mask: str | Mask, *, open_special: bool = False) -> None:
        self.of = read_mask(mask) if isinstance(mask, str) else mask
        self.open_special = open_special
        self._stacks: set[str] = set()
        self._layout: Layout | None = None
        self._made: dict[tuple[object, ...], Tensor] = {}

    def __repr__(self) -> str:
        return f"Masked({self.of.name!r}{', open_special=True' if self.open_special else ''})"

    def bind(self, heads: tuple[Head, ...]) -> None:
        self._stacks = {head.stack for head in heads} & {"encoder", "decoder"}

    def begins(self, layout: Layout) -> None:
        self._layout, self._made = layout, {}

    def changes_mask(self, site: Site) -> bool:
        return site.stack in self._stacks

    def allowed(self, site: Site, shape: tuple[int, int, int, int], device: torch.device) -> Tensor:
        sides = None if self._layout is None else self._layout.sides(site.stack)
        if sides is not None and sides[0].real.shape != (shape[0], shape[3]):
            sides = None  # with a cache of earlier tokens: the queries are the last of the keys
        by_site = self.of.at(1, site).shape[0] > 1
        key = (site if by_site else site.stack, shape)
        if key not in self._made:
            made = self._of(shape[3], site) if sides is None else self._of_batch(sides[0], site)
            self._made[key] = made[:, :, -shape[2] :].to(device)
        return self._made[key]

    def _of(self, length: int, site: Site) -> Tensor:
        found = self.of.at(length, site)
        if found.shape[0] > 1 and site.numbers is not None:
            found = found[list(site.numbers)]
        return found[None]

    def _of_batch(self, tokens: Tokens, site: Site) -> Tensor:
        """[sequence, head or 1, position, position]; what is padding is left to others."""
        batch, width = tokens.real.shape
        if bool(tokens.real.all()):
            found = self._of(width, site)
        else:
            lengths = tokens.real.sum(dim=1).tolist()
            heads = self._of(1, site).shape[1]
            found = torch.ones(batch, heads, width, width, dtype=torch.bool)
            for row, length in enumerate(lengths):
                place = tokens.real[row].nonzero()[:, 0].cpu()
                found[row][:, place[:, None], place[None, :]] = self._of(length, site)[0]
        if self.open_special:
            special = tokens.special.cpu()
            found = found | special[:, None, :, None] | special[:, None, None, :]
        return found
