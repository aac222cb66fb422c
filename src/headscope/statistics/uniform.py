"""The value of each share of attention under uniform attention, for the same texts and masks.

A share of attention depends on the length of the texts: a head that attends to all n tokens alike gives 1/n to the
classification token. The table `uniform` holds this value by layer, over the keys that a query may attend to, so that
pages can show a share as a multiple of it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headscope.model.attention import Attention
from headscope.statistics.base import PerSequence, stack_order
from headscope.statistics.sinks import column_means, first_mass
from headscope.tables import Row, TableRow

OFFSETS = {"previous": -1, "self": 0, "next": 1}
CLASSES = ("cls", "sep", "punctuation", "special")  # in the order of `Tokens.classes`
NAMES = (*OFFSETS, *CLASSES, "first", "sink")


class UniformShares(PerSequence):
    """A table by layer; no rows of heads. If masks differ between heads it is their mean."""

    definitions = {}

    def measure(self, attention: Attention) -> Tensor | None:
        """[sequence, 1, name]."""
        uniform = attention.through("uniform", attention.uniform)
        masses = [_at_offset(uniform, offset) for offset in OFFSETS.values()]
        largest = column_means(uniform).amax(dim=-1)
        sink = torch.where(largest < 0, torch.nan, largest)
        masses += [*uniform.class_mass.unbind(dim=-1), first_mass(uniform), sink]
        return torch.stack(masses, dim=-1).mean(dim=1, keepdim=True)

    def table(self) -> list[Row]:
        return []

    def tables(self) -> dict[str, list[TableRow]]:
        rows: list[TableRow] = []
        for site, moments in sorted(
            self._settle_all().items(), key=lambda item: stack_order(item[0])
        ):
            for i, name in enumerate(NAMES):
                is_absent = site.stack == "query" and name in ("first", "sink")
                # A class that does not occur has no row, as in heads.csv.
                if moments.total[0, i] > 0 and not is_absent:
                    value, count = moments.total[0, i], int(moments.count[0, i])
                    row = {"stack": site.stack, "layer": site.layer, "statistic": name}
                    rows.append(row | {"value": float(value / count), "count": count})
        return {"uniform": rows}


def _at_offset(attention: Attention, offset: int) -> Tensor:
    """[sequence, head]: mass at this offset, averaged over all rows; NaN where two texts are compared."""
    if not attention.within_one_text:
        return torch.full_like(attention.column_mass[..., 0], torch.nan)
    diagonal = attention.weights.diagonal(offset=offset, dim1=-2, dim2=-1)
    return diagonal.sum(dim=-1) / attention.length
