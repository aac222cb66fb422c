"""How much does a layer mix tokens? (Kobayashi et al. 2021)

Computed through the norm lens for every layer of self-attention. The mixing ratio of a token is the norm of what other
tokens contribute to it, divided by the sum of this norm and the norm of its own contribution. There are several forms:
of the weights alone, of the output of the heads, with the residual connection, and after the LayerNorm if one follows.
In addition: the share of the summed norms that comes from each class of tokens. All numbers are averaged over a
sequence's tokens, then over sequences.
"""

from __future__ import annotations

import torch

from headscope.model.attention import Attention
from headscope.model.contributions import contribution_shares, mixing_ratios
from headscope.statistics.base import ByLayer
from headscope.statistics.token_classes import TOKEN_CLASSES, class_columns
from headscope.tables import TableRow


class Mixing(ByLayer):
    """Moments by (site, form) for ratios, and by (site, form, class) for shares."""

    lens = "norm"

    def update(self, attention: Attention) -> None:
        site = attention.site
        if attention.within_one_text:
            for form, ratios in mixing_ratios(attention).items():
                self.add((site, form), ratios.mean(dim=1))
        columns = class_columns(attention.key)  # [sequence, key, class]
        maps = {"weight": attention.raw.weights.mean(dim=1), **contribution_shares(attention)}
        for form, cells in maps.items():
            shares = torch.bmm(cells.mean(dim=1, keepdim=True), columns.to(cells))[:, 0]
            shares = torch.where(columns.any(dim=1), shares, torch.nan)
            for i, name in enumerate(TOKEN_CLASSES):
                self.add((site, form, name), shares[:, i])

    def tables(self) -> dict[str, list[TableRow]]:
        tables: dict[str, list[TableRow]] = {"mixing": [], "contributions": []}
        for layer, (form, *name), moments in self.layers():
            row = {"form": form, **moments.summary(is_share=True)}
            if not name:
                tables["mixing"].append({**layer, **row})
            elif moments.count > 0:
                tables["contributions"].append({**layer, "class": name[0], **row})
        return tables
