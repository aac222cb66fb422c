"""How much attention goes to separators, the classification token, punctuation, special tokens?

The value is the mass on all keys of a class, averaged over all query rows of a sequence (Clark et al. 2019). The
classes come from the tokenizer. A class that the model does not have, or that never occurs in the input, has no row in
the table: this differs from a value of 0. For punctuation, a text without any has the value 0; the row is absent only
if the vocabulary has no such token.
"""

from __future__ import annotations

from typing import Self

from torch import Tensor

from headscope.heads import Site
from headscope.model.tokens import CLASSES
from headscope.statistics.base import PerSequence, Quantities, mass_on
from headscope.tables import Row


class ClassMass(PerSequence):
    definitions = {
        "cls": mass_on("the classification token", "the classification token"),
        "sep": mass_on("separators", "all separator tokens"),
        "punctuation": mass_on('"." and ","', 'the tokens "." and ","'),
        "special": mass_on("all special tokens", "all special tokens"),
    }

    quantities = frozenset({"class_mass"})

    def __init__(self, names: tuple[str, ...] | None = None) -> None:
        super().__init__(names)
        self._present: dict[Site, set[str]] = {}

    def measure(self, attention: Quantities) -> Tensor:
        present = self._present.setdefault(attention.site, set())
        if len(present) < len(self.definitions):
            key = attention.key
            for name, attribute in zip(self.definitions, CLASSES, strict=True):
                in_vocabulary = key.ids is not None and bool(key.marks.punctuation)
                if in_vocabulary if name == "punctuation" else getattr(key, attribute).any():
                    present.add(name)
        return attention.class_mass

    def merge(self, other: Self) -> Self:
        for site, names in other._present.items():
            self._present.setdefault(site, set()).update(names)
        return super().merge(other)

    def table(self) -> list[Row]:
        rows = super().table()
        return [row for row in rows if row.statistic in self._present[Site(row.stack, row.layer)]]
