"""How much does a layer mix tokens? (Kobayashi et al. 2021)

Through the norm lens, of every layer of a text that attends to itself: the mixing ratio of a token is the length of
what comes from others over that plus the length of what is its own, for the weights alone, for what the heads move, for
that with the residual, and behind the LayerNorm where there is one on the way on. And what share of the lengths that
all heads together bring comes from each class of tokens. Averaged over a sequence's tokens, then over sequences.
"""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor

from headscope.heads import Site
from headscope.model.attention import Attention
from headscope.model.lenses.layers import mixing, together
from headscope.statistics.base import Statistic
from headscope.statistics.token_classes import TOKEN_CLASSES, class_columns
from headscope.tables import STACKS, Moments, Row, TableRow


class Mixing(Statistic):
    definitions = {}
    lens = "norm"

    def __init__(self, names: tuple[str, ...] | None = None) -> None:
        super().__init__(names)
        self._ratios: dict[tuple[Site, str], Moments] = {}
        self._shares: dict[tuple[Site, str, str], Moments] = {}

    def update(self, attention: Attention) -> None:
        site = attention.site
        if attention.within_one_text:
            for form, ratios in mixing(attention).items():
                _add(self._ratios, (site, form), ratios.mean(dim=1))
        columns = class_columns(attention.key)  # [sequence, key, class]
        maps = {"weight": attention.raw.weights.mean(dim=1), **together(attention)}
        for form, cells in maps.items():
            shares = torch.bmm(cells.mean(dim=1, keepdim=True), columns.to(cells))[:, 0]
            shares = torch.where(columns.any(dim=1), shares, torch.nan)
            for i, name in enumerate(TOKEN_CLASSES):
                _add(self._shares, (site, form, name), shares[:, i])

    def merge(self, other: Self) -> Self:
        for ratio, moments in other._ratios.items():
            self._ratios.setdefault(ratio, Moments(())).merge(moments)
        for share, moments in other._shares.items():
            self._shares.setdefault(share, Moments(())).merge(moments)
        return self

    def table(self) -> list[Row]:
        return []

    def tables(self) -> dict[str, list[TableRow]]:
        ratios = [
            {**place(site), "form": form, **told(one, is_share=True)}
            for (site, form), one in sorted(self._ratios.items(), key=order)
        ]
        shares = [
            {**place(site), "class": name, "form": form, **told(one, is_share=True)}
            for (site, form, name), one in sorted(self._shares.items(), key=order)
            if one.count > 0
        ]
        return {"mixing": ratios, "contributions": shares}


def _add(sums: dict[Any, Moments], key: Any, values: Tensor) -> None:
    sums.setdefault(key, Moments(())).add(values.double().cpu().numpy())


def order(item: tuple[tuple[Any, ...], Moments]) -> tuple[Any, ...]:
    site, *names = item[0]
    return STACKS.index(site.stack), site.layer, *names


def place(site: Site) -> TableRow:
    return {"stack": site.stack, "layer": site.layer}


def told(moments: Moments, *, is_share: bool) -> TableRow:
    low, high = moments.interval(is_share=is_share)
    return {
        "value": float(moments.mean()),
        "low": float(low),
        "high": float(high),
        "count": int(moments.count),
    }
