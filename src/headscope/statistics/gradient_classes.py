"""Is attention to separators, or to another sink, a no-op? (Clark et al. 2019)

Through the gradient lens, of every layer and class of tokens: the mean over a weight on such a token of |∂loss/∂A|
(`gradient`), of |A·∂loss/∂A| (`weighted`: the edge removed, to first order), and of the gradient less the row's mean
under its weights (`centred`: weight that goes there comes from the row's other keys, as rows sum to 1). The first is
small wherever values are short; the last says what attending more or less would change. Only ratios within a layer mean
something, so each measure is told over that of the other tokens as well, sequence by sequence (`gradient-ratio` …).
Beside them the attention that the class gets (`attention`) and would get from a uniform head (`uniform`). The first row
of a decoder sees one key and has no choice, so it is left out.
"""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor

from headscope.heads import Site
from headscope.model.attention import Attention
from headscope.model.lenses.gradient import centred
from headscope.statistics.base import Statistic
from headscope.statistics.token_classes import TOKEN_CLASSES, class_columns
from headscope.tables import STACKS, Moments, Row, TableRow

MEASURES = ("gradient", "weighted", "centred")
SHARES = ("attention", "uniform")


class GradientClasses(Statistic):
    definitions = {}
    lens = "gradient"

    def __init__(self, names: tuple[str, ...] | None = None) -> None:
        super().__init__(names)
        self._sums: dict[Site, Moments] = {}  # [class, measure]

    def update(self, attention: Attention) -> None:
        assert attention.gradient is not None
        asked = slice(1 if attention.site.stack == "decoder" else 0, None)
        weights, gradient = attention.raw.weights[:, :, asked], attention.gradient[:, :, asked]
        columns = class_columns(attention.key).to(weights)
        seen = (weights > 0).to(weights)  # a key that a mask forbids has a derivative but no weight
        cells = _by_class(seen, columns)
        cells = torch.where(cells > 0, cells, torch.nan)
        measured = [
            gradient.abs() * seen,
            (weights * gradient).abs(),
            centred(weights, gradient).abs() * seen,
        ]
        means = torch.stack(
            [_by_class(one, columns) / cells for one in measured], dim=-1
        )  # [sequence, class, measure]
        ratios = means / means[:, -1:]
        rows = weights.shape[1] * weights.shape[2]
        present = torch.where(columns.any(dim=1), 1.0, torch.nan)
        attended = _by_class(weights, columns) / rows * present
        uniform = _by_class(seen / seen.sum(dim=-1, keepdim=True), columns) / rows * present
        values = torch.cat([means, ratios, attended[..., None], uniform[..., None]], dim=-1)
        values = torch.where(values.isfinite(), values, torch.nan)
        self._sums.setdefault(attention.site, Moments(tuple(values.shape[1:]))).add(
            values.double().cpu().numpy()
        )

    def merge(self, other: Self) -> Self:
        for site, moments in other._sums.items():
            self._sums.setdefault(site, Moments(moments.total.shape)).merge(moments)
        return self

    def table(self) -> list[Row]:
        return []

    def tables(self) -> dict[str, list[TableRow]]:
        names = (*MEASURES, *(f"{name}-ratio" for name in MEASURES), *SHARES)
        rows: list[TableRow] = []
        for site, moments in sorted(
            self._sums.items(), key=lambda item: (STACKS.index(item[0].stack), item[0].layer)
        ):
            mean = moments.mean()
            ends = {is_share: moments.interval(is_share=is_share) for is_share in (False, True)}
            for c, kind in enumerate(TOKEN_CLASSES):
                for m, name in enumerate(names):
                    if moments.count[c, m] and not (kind == "other" and name.endswith("-ratio")):
                        low, high = ends[name in SHARES]
                        told = {
                            "value": float(mean[c, m]),
                            "low": float(low[c, m]),
                            "high": float(high[c, m]),
                        }
                        rows.append(
                            {
                                "stack": site.stack,
                                "layer": site.layer,
                                "class": kind,
                                "measure": name,
                                **told,
                            }
                            | {"count": int(moments.count[c, m])}
                        )
        return {"gradients": rows}


def _by_class(cells: Tensor, columns: Tensor) -> Tensor:
    """[sequence, class]: cells [sequence, head, query, key] summed over heads, rows and the keys of each class."""
    return torch.bmm(cells.sum(dim=(1, 2))[:, None], columns)[:, 0]
