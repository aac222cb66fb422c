"""Does attention to separators, or to another sink, matter to the loss? (Clark et al. 2019: it is a no-op)

Computed through the gradient lens for every layer and class of tokens, as means over all weights A on keys of a class:

gradient   |∂loss/∂A|; also small if the value vectors are short
weighted   |A·∂loss/∂A|, the effect of removing the weight, to first order
centred    |∂loss/∂A minus its mean over the row, weighted by A|, the effect of attending more or less: as rows sum to
           1, additional weight is taken from the other keys

Only ratios within a layer can be compared, so each measure is also divided by its value for the class `other`, sequence
by sequence (`gradient-ratio` …). In addition: the attention that the class gets (`attention`), and what it would get
from a head with uniform attention (`uniform`). The first row of a decoder is left out, since it has only one key.
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
        first = 1 if attention.site.stack == "decoder" else 0
        weights, gradient = attention.raw.weights[:, :, first:], attention.gradient[:, :, first:]
        columns = class_columns(attention.key).to(weights)
        visible = (weights > 0).to(weights)  # a masked key has a derivative but no weight
        cells = _by_class(visible, columns)
        cells = torch.where(cells > 0, cells, torch.nan)
        measures = [
            gradient.abs() * visible,
            (weights * gradient).abs(),
            subtract_row_mean(weights, gradient).abs() * visible,
        ]
        # [sequence, class, measure]
        means = torch.stack([_by_class(values, columns) / cells for values in measures], dim=-1)
        ratios = means / means[:, -1:]
        rows = weights.shape[1] * weights.shape[2]
        present = torch.where(columns.any(dim=1), 1.0, torch.nan)
        attention_share = _by_class(weights, columns) / rows * present
        uniform = _by_class(visible / visible.sum(dim=-1, keepdim=True), columns) / rows * present
        shares = torch.stack([attention_share, uniform], dim=-1)
        values = torch.cat([means, ratios, shares], dim=-1)
        self.add((attention.site,), torch.where(values.isfinite(), values, torch.nan))

    def tables(self) -> dict[str, list[TableRow]]:
        names = (*MEASURES, *(f"{name}-ratio" for name in MEASURES), *SHARES)
        rows = [
            {**layer, "class": kind, "measure": name}
            | moments.summary((c, m), is_share=name in SHARES)
            for layer, _, moments in self.layers()
            for c, kind in enumerate(TOKEN_CLASSES)
            for m, name in enumerate(names)
            if moments.count[c, m] and not (kind == "other" and name.endswith("-ratio"))
        ]
        return {"gradients": rows}


def _by_class(cells: Tensor, columns: Tensor) -> Tensor:
    """[sequence, class]: cells [sequence, head, query, key] summed over heads, rows and the keys of each class."""
    return torch.bmm(cells.sum(dim=(1, 2))[:, None], columns)[:, 0]
