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

import torch
from torch import Tensor

from headscope.model.attention import Attention
from headscope.model.lenses.gradient import subtract_row_mean
from headscope.statistics.base import ByLayer
from headscope.statistics.token_classes import TOKEN_CLASSES, class_columns
from headscope.tables import TableRow

MEASURES = ("gradient", "weighted", "centred")
SHARES = ("attention", "uniform")


class GradientClasses(ByLayer):
    """Moments [class, measure] of each site."""

    lens = "gradient"

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
            subtract_row_mean(weights, gradient).abs() * seen,
        ]
        # [sequence, class, measure]
        means = torch.stack([_by_class(one, columns) / cells for one in measured], dim=-1)
        ratios = means / means[:, -1:]
        rows = weights.shape[1] * weights.shape[2]
        present = torch.where(columns.any(dim=1), 1.0, torch.nan)
        attended = _by_class(weights, columns) / rows * present
        uniform = _by_class(seen / seen.sum(dim=-1, keepdim=True), columns) / rows * present
        values = torch.cat([means, ratios, attended[..., None], uniform[..., None]], dim=-1)
        self.add((attention.site,), torch.where(values.isfinite(), values, torch.nan))

    def tables(self) -> dict[str, list[TableRow]]:
        names = (*MEASURES, *(f"{name}-ratio" for name in MEASURES), *SHARES)
        rows = [
            {
                **layer,
                "class": kind,
                "measure": name,
                **moments.summary((c, m), is_share=name in SHARES),
            }
            for layer, _, moments in self.layers()
            for c, kind in enumerate(TOKEN_CLASSES)
            for m, name in enumerate(names)
            if moments.count[c, m] and not (kind == "other" and name.endswith("-ratio"))
        ]
        return {"gradients": rows}


def _by_class(cells: Tensor, columns: Tensor) -> Tensor:
    """[sequence, class]: cells [sequence, head, query, key] summed over heads, rows and the keys of each class."""
    return torch.bmm(cells.sum(dim=(1, 2))[:, None], columns)[:, 0]
