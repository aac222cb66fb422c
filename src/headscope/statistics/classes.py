"""How much attention goes to separators, the classification token, punctuation, special tokens?

Mass on all keys of the class, averaged over all query rows of a sequence (Clark et al. 2019). What is what comes
from the tokenizer. A class that a model does not have (no classification token in a translation model) or that
never occurs in the input (an end mark nobody wrote) has no row at all, which is not the same as 0. Punctuation is
0 in a text that has none; it is absent only if the vocabulary knows no such token.
"""

from __future__ import annotations

from typing import Self

from torch import Tensor

from headscope.heads import Site
from headscope.model.attention import Attention
from headscope.model.tokens import CLASSES
from headscope.statistics.base import ANY, Definition, PerSequence
from headscope.tables import Row


def _mass(short: str, long: str) -> Definition:
    sentence = f"Mass on {long}, averaged over the query rows."
    return Definition("share", f"Attention to {short}", sentence, ANY)


class ClassMass(PerSequence):
    definitions = {
        "cls": _mass("the classification token", "the classification token"),
        "sep": _mass("separators", "all separator tokens"),
        "punctuation": _mass('"." and ","', 'the tokens "." and ","'),
        "special": _mass("all special tokens", "all special tokens"),
    }
    _classes = dict(zip(definitions, CLASSES, strict=True))

    def __init__(self, names: tuple[str, ...] | None = None) -> None:
        super().__init__(names)
        self._present: dict[Site, set[str]] = {}

    def measure(self, attention: Attention) -> Tensor:
        present = self._present.setdefault(attention.site, set())
        if len(present) < len(self.definitions):
            present |= {name for name in self.definitions if self._is_present(attention, name)}
        return attention.class_mass

    def _is_present(self, attention: Attention, name: str) -> bool:
        # A text without it has 0 of it; only a vocabulary without it has none
        if name == "punctuation":
            return attention.key.ids is not None and bool(attention.key.marks.punctuation)
        return bool(getattr(attention.key, self._classes[name]).any())

    def merge(self, other: Self) -> Self:
        for site, names in other._present.items():
            self._present.setdefault(site, set()).update(names)
        return super().merge(other)

    def table(self) -> list[Row]:
        return [
            row
            for row in super().table()
            if row.statistic in self._present[Site(row.stack, row.layer)]
        ]
