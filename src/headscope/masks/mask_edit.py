"""Attention that goes only where a mask lets it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from headscope.errors import HeadscopeError
from headscope.heads import Head, Site
from headscope.masks.mask_spec import read_mask
from headscope.masks.patterns import Mask
from headscope.model.edits import Edit
from headscope.model.tokens import Layout, pattern_over_layout


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

    def _fields(self) -> dict[str, Any]:
        return {"mask": self.of.name, "open_special": self.open_special}

    def bind(self, heads: tuple[Head, ...]) -> None:
        self._stacks = {head.stack for head in heads} & {"encoder", "decoder"}
        self.of.check(heads)

    def begin_forward(self, layout: Layout) -> None:
        self._layout, self._made = layout, {}

    def changes_mask(self, site: Site) -> bool:
        return site.stack in self._stacks

    def allowed(self, site: Site, shape: tuple[int, int, int, int], device: torch.device) -> Tensor:
        key = (site.stack if self.of.per == "model" else site, shape)
        if key not in self._made:
            sequences, _, queries, keys = shape
            made = pattern_over_layout(
                self._layout, site.stack, sequences, keys, lambda length: self.of.at(length, site)
            )
            if self.open_special:
                special = self._special(site, shape)
                made = made | special[:, None, :, None] | special[:, None, None, :]
            # With a cache the queries are the last of the keys.
            self._made[key] = made[:, :, -queries:].to(device)
        return self._made[key]

    def _special(self, site: Site, shape: tuple[int, int, int, int]) -> Tensor:
        """[sequence, position]: which tokens are special."""
        sides = None if self._layout is None else self._layout.sides(site.stack)
        if sides is None or sides[0].real.shape != (shape[0], shape[3]):
            raise HeadscopeError(
                f"which tokens of {site.stack} are special is not told, as earlier ones come from a cache",
                where="open_special",
                fix="Run whole passes (use_cache=False), or leave it out",
            )
        return sides[0].special.cpu()
