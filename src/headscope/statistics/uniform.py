"""The value that each share of attention would have under uniform attention, for the same texts and masks.

A share of attention depends on the length of the texts: a head that attends to all n tokens equally gives 1/n to the
classification token. The table `uniform` has these values by layer. Pages use them to show a share as a multiple of its
value under uniform attention. Uniform means uniform over the keys that a query may attend to.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headscope.statistics.base import PerSequence, Quantities, stack_order
from headscope.statistics.sinks import column_means, first_mass
from headscope.tables import Row, TableRow

OFFSETS = ("previous", "self", "next")  # in the order of `row_sums.NEAREST`
CLASSES = ("cls", "sep", "punctuation", "special")  # in the order of `Tokens.classes`
NAMES = (*OFFSETS, *CLASSES, "first", "sink")


class UniformShares(PerSequence):
    """A table by layer, without rows for heads. If masks differ between heads, its values are means over heads."""

    definitions = {}
    quantities = frozenset({"visibility"})

    def measure(self, attention: Quantities) -> Tensor | None:
        """[sequence, 1, name]."""
        visibility = attention.visibility
        sequences = len(attention.lengths)
        # [sequence, head or 1, key], and so on
        received, nearest, own = (
            sums.expand(sequences, *sums.shape[1:])
            for sums in (
                visibility.uniform_columns,
                visibility.uniform_nearest,
                visibility.uniform_own,
            )
        )
        rows = attention.lengths.to(received.dtype)[:, None, None]
        own_mass = own if attention.within_one_text else None
        if own_mass is None:
            nearest = torch.full_like(nearest, torch.nan)
        largest = column_means(attention, received, own_mass).amax(dim=-1)
        sink = torch.where(largest < 0, torch.nan, largest)
        classes = torch.bmm(received, attention.key.classes.to(received.dtype))
        first = first_mass(attention, received, own_mass)
        masses = [nearest / rows, classes / rows, first[..., None], sink[..., None]]
        return torch.cat(masses, dim=-1).mean(dim=1, keepdim=True)

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
