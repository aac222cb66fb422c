"""An edit that restricts self-attention to the positions that a mask allows."""

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
    """Restricts every self-attention to a mask; attention from decoder to encoder is unchanged.

    Positions are counted over a sequence's tokens without padding. A query that may attend to no key, because of the
    mask and other edits, attends to itself.

    Parameters
    ----------
    mask
        The mask, or its specification, such as "window:width=3".
    open_special
        Special tokens attend to all tokens and all tokens attend to them, even if the mask forbids it.

    Examples
    --------
    >>> model = headscope.load("minilm")
    >>> with model.edited(headscope.Masked("window:width=3")):
    ...     output = model("The cat sat.")
    """

    def __init__(self, mask: str | Mask, *, open_special: bool = False) -> None:
        self.mask = read_mask(mask) if isinstance(mask, str) else mask
        self.open_special = open_special
        self._stacks: set[str] = set()
        self._layout: Layout | None = None
        self._cache: dict[tuple[object, ...], Tensor] = {}

    def _fields(self) -> dict[str, Any]:
        return {"mask": self.mask.name, "open_special": self.open_special}

    def bind(self, heads: tuple[Head, ...]) -> None:
        self._stacks = {head.stack for head in heads} & {"encoder", "decoder"}
        self.mask.check(heads)

    def begin_forward(self, layout: Layout) -> None:
        self._layout, self._cache = layout, {}

    def changes_mask(self, site: Site) -> bool:
        return site.stack in self._stacks

    def allowed(self, site: Site, shape: tuple[int, int, int, int], device: torch.device) -> Tensor:
        key = (site.stack if self.mask.per == "model" else site, shape)
        if key not in self._cache:
            sequences, _, queries, keys = shape
            allowed = pattern_over_layout(
                self._layout, site.stack, sequences, keys, lambda length: self.mask.at(length, site)
            )
            if self.open_special:
                special = self._special(site, shape)
                allowed = allowed | special[:, None, :, None] | special[:, None, None, :]
            # With cached keys the queries are the last positions.
            self._cache[key] = allowed[:, :, -queries:].to(device)
        return self._cache[key]

    def _special(self, site: Site, shape: tuple[int, int, int, int]) -> Tensor:
        """[sequence, position]: which tokens are special."""
        sides = None if self._layout is None else self._layout.sides(site.stack)
        if sides is None or sides[0].real.shape != (shape[0], shape[3]):
            raise HeadscopeError(
                f"the special tokens of {site.stack} must be known, got keys from a cache",
                where="`open_special`",
                fix="Run complete passes (use_cache=False), or leave `open_special` out",
            )
        return sides[0].special.cpu()
