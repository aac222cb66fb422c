"""`KnockOut`: an edit that removes attention from some tokens to others, in some layers or heads.

If edges are removed before the softmax (`renormalise=True`), their weight goes to the other keys of the query. This can
mislead for a sink, such as a separator that receives most of the weight but contributes little: the effect is then that
of the moved weight. If edges are removed after the softmax (`renormalise=False`), the row sums to less than 1. The two
answer different questions; `value_zeroing.knockout_effects` computes both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import torch
from torch import Tensor

from headscope.errors import HeadscopeError, choices
from headscope.heads import Head, Heads, HeadSet, Site, head_names
from headscope.model.edits import Edit, head_mask, masked_score
from headscope.model.tokens import Layout, Tokens

TOKENS = ("all", "special", "classification", "separator", "punctuation", "content")
TokenSelection = str | Collection[int] | Tensor


class KnockOut(Edit):
    """Remove attention from some tokens to others.

    With `renormalise`, a query that would have no key left keeps all its keys. The attribute `spared` counts such
    queries, once per site.

    Parameters
    ----------
    to
        The keys to remove: a class of tokens (all, special, classification, separator, punctuation, content), positions
        counted from 0 over real tokens, or a bool tensor [sequence, key].
    of
        The queries for which they are removed, in the same forms; all by default.
    layers, heads
        The layers and heads to change; all by default.
    renormalise
        Remove edges before the softmax, so that a row still sums to 1; otherwise after it.

    Examples
    --------
    >>> edit = headscope.KnockOut("separator", of="content", layers=[3])
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
        for selection in (to, of):
            if isinstance(selection, str) and selection not in TOKENS:
                raise HeadscopeError(
                    f'"{selection}" is not a class of tokens',
                    where="KnockOut",
                    expected=choices(selection, TOKENS),
                )
        self.to, self.of, self.renormalise, self.spared = to, of, renormalise, 0
        self.layers = None if layers is None else frozenset(layers)
        self.heads = None if heads is None else tuple(head_names(heads))
        self._at: dict[Site, list[int]] = {}
        self._layout: Layout | None = None

    def _fields(self) -> dict[str, Any]:
        selections = self.to, self.of
        to, of = (item if isinstance(item, str) else "positions" for item in selections)
        return super()._fields() | {"to": to, "of": of, "renormalise": self.renormalise}

    def bind(self, heads: tuple[Head, ...]) -> None:
        unknown = sorted((self.layers or frozenset()) - {head.layer for head in heads})
        if unknown:
            raise HeadscopeError(
                f"there is no layer {unknown[0]}",
                where="KnockOut",
                expected=f"0 to {max(head.layer for head in heads)}",
            )
        by_site = HeadSet(heads if self.heads is None else self.heads, among=heads).by_site()
        self._at = {
            site: numbers
            for site, numbers in by_site.items()
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
        masked, spared = mask_edges(scores, edges)
        self.spared += int((queries & spared.any(dim=1)).sum())
        return masked

    def weights(self, site: Site, weights: Tensor) -> Tensor:
        return weights.masked_fill(self._edges(site, weights)[0], 0.0)

    def _edges(self, site: Site, cells: Tensor) -> tuple[Tensor, Tensor]:
        """The edges to remove [sequence, head, query, key] and the real queries [sequence, query]; both bool."""
        sides = None if self._layout is None else self._layout.sides(site.stack)
        if sides is None:
            raise HeadscopeError(
                f"the tokens of {site.stack} are not among the model's inputs, so they cannot be selected",
                fix="Pass input_ids and a mask [sequence, token], and decoder_input_ids to an encoder-decoder",
            )
        query, key = (
            select_tokens(selection, side).to(cells.device)
            for selection, side in zip((self.of, self.to), sides, strict=True)
        )
        heads = head_mask(site, self._at[site], cells)
        edges = heads & query[:, None, :, None] & key[:, None, None, :]
        return edges.expand(cells.shape), sides[0].real.to(cells.device)


def mask_edges(scores: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
    """Mask these edges in the scores [sequence, head, query, key], except in rows that would have no key left.

    Returns the masked scores, and which rows [sequence, head, query] were spared for that reason.
    """
    lowest = masked_score(scores.dtype)
    visible = scores.detach() > lowest
    has_other_key = (visible & ~edges).any(dim=-1, keepdim=True)
    masked = scores.masked_fill(edges & has_other_key & visible, lowest)
    return masked, (edges & ~has_other_key).any(dim=-1)


def select_tokens(selection: TokenSelection, tokens: Tokens) -> Tensor:
    """[sequence, token], bool: the tokens of a selection."""
    if isinstance(selection, Tensor):
        return selection
    if isinstance(selection, str):
        of_class: Tensor = tokens.real if selection == "all" else getattr(tokens, selection)
        return of_class
    positions = tokens.real.long().cumsum(dim=1) - 1  # counted over real tokens
    selected = torch.tensor(sorted(selection), device=positions.device, dtype=positions.dtype)
    return tokens.real & torch.isin(positions, selected)
