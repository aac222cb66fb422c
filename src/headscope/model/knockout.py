"""Attention that is cut: from some tokens to others, in some layers; and what tokens lose by it.

`KnockOut` is the edit. Before the softmax (`renormalise`) what a query may not see goes to its other keys: where that
was a sink, such as a separator that takes most of a row and gives hardly anything, a large weight is put elsewhere, and
the effect is that of the weight put there, not of the sink. After the softmax (`renormalise=False`) the edges alone are
gone and the row sums to less than 1. They answer different questions; `knocked_out` gives both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import torch
from torch import Tensor

from headscope.errors import HeadscopeError, choices
from headscope.heads import Head, Heads, HeadSet, Site, head_names
from headscope.model.edits import Edit, masked_score
from headscope.model.tokens import Layout, Tokens

TOKENS = ("all", "special", "classification", "separator", "punctuation", "content")
TokenSelection = str | Collection[int] | Tensor


class KnockOut(Edit):
    """No attention from these tokens to those.

    to           the keys that are not seen: a class of tokens (all, special, classification, separator, punctuation,
                 content), positions counted from 0 over real tokens, or a bool tensor [sequence, key]
    of           the queries that do not see them, in the same ways; all by default
    layers       in these layers; in all by default
    heads        in these heads; in all by default
    renormalise  cut before the softmax, so that a row still sums to 1; else after it

    A query that would have no key left keeps them all; `spared` counts such rows, once a site.
    """

    def __init__(
        self,
        to: TokenSelection,
        of: TokenSelection = "all",
        *,
        layers: Iterable[int] | None = None,
        heads: Heads | None = None,
        renormalise: bool = True,
    ) -> None:
        for which in (to, of):
            if isinstance(which, str) and which not in TOKENS:
                raise HeadscopeError(
                    f'"{which}" is no class of tokens',
                    where="KnockOut",
                    expected=choices(which, TOKENS),
                )
        self.to, self.of, self.renormalise, self.spared = to, of, renormalise, 0
        self.layers = None if layers is None else frozenset(layers)
        self.heads = None if heads is None else tuple(head_names(heads))
        self._at: dict[Site, list[int]] = {}
        self._layout: Layout | None = None

    def _fields(self) -> dict[str, Any]:
        to, of = (which if isinstance(which, str) else "positions" for which in (self.to, self.of))
        return super()._fields() | {"to": to, "of": of, "renormalise": self.renormalise}

    def bind(self, heads: tuple[Head, ...]) -> None:
        unknown = sorted((self.layers or frozenset()) - {head.layer for head in heads})
        if unknown:
            raise HeadscopeError(
                f"there is no layer {unknown[0]}",
                where="KnockOut",
                expected=f"0 to {max(head.layer for head in heads)}",
            )
        chosen = HeadSet(heads if self.heads is None else self.heads, among=heads).by_site()
        self._at = {
            site: here
            for site, here in chosen.items()
            if self.layers is None or site.layer in self.layers
        }

    def begin_forward(self, layout: Layout) -> None:
        self._layout = layout

    def changes_scores(self, site: Site) -> bool:
        return self.renormalise and site in self._at

    def changes_weights(self, site: Site) -> bool:
        return not self.renormalise and site in self._at

    def scores(self, site: Site, scores: Tensor) -> Tensor:
        edges, queries = self._edges(site, scores)
        cut, spared = mask_edges(scores, edges)
        self.spared += int((queries & spared.any(dim=1)).sum())
        return cut

    def weights(self, site: Site, weights: Tensor) -> Tensor:
        return weights.masked_fill(self._edges(site, weights)[0], 0.0)

    def _edges(self, site: Site, cells: Tensor) -> tuple[Tensor, Tensor]:
        """Which cells are cut [sequence, head, query, key], and which queries [sequence, query] are real."""
        sides = None if self._layout is None else self._layout.sides(site.stack)
        if sides is None:
            raise HeadscopeError(
                f"the tokens of {site.stack} are not among the model's inputs, so it is not known which are meant",
                fix="Pass input_ids and a mask [sequence, token], and decoder_input_ids to an encoder-decoder",
            )
        here = torch.zeros(cells.shape[1], dtype=torch.bool, device=cells.device)
        here[[site.index_of(head) for head in self._at[site]]] = True
        query, key = (
            select_tokens(which, side).to(cells.device)
            for which, side in zip((self.of, self.to), sides, strict=True)
        )
        edges = here[:, None, None] & query[:, None, :, None] & key[:, None, None, :]
        return edges.expand(cells.shape), sides[0].real.to(cells.device)


def mask_edges(scores: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
    """Scores [sequence, head, query, key] without these edges, and which rows [sequence, head, query] were spared."""
    lowest = masked_score(scores.dtype)
    seen = scores.detach() > lowest
    has_left = (seen & ~edges).any(dim=-1, keepdim=True)
    return scores.masked_fill(edges & has_left & seen, lowest), (edges & ~has_left).any(dim=-1)


def select_tokens(which: TokenSelection, tokens: Tokens) -> Tensor:
    """[sequence, token]: the tokens that are meant."""
    if isinstance(which, Tensor):
        return which
    if isinstance(which, str):
        meant: Tensor = tokens.real if which == "all" else getattr(tokens, which)
        return meant
    places = tokens.real.long().cumsum(dim=1) - 1
    return tokens.real & torch.isin(
        places, torch.tensor(sorted(which), device=places.device, dtype=places.dtype)
    )
