"""Examples in which a lens and raw attention differ most, for the heads of lens_heads.csv.

An example is one row of a head's attention in a text, of a query that is a content token. The row through the lens is
divided by the sum of its absolute values. The distance of the two rows is half the sum of their absolute differences: 0
if they are equal, 1 if no key has weight in both.

From each text, the row with the largest distance is taken; rows whose largest weights are at different tokens are
preferred. For each head the three best rows are kept, in the same order. They are the clearest cases, not typical ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np

from headscope.analysis.examples import labels_of
from headscope.analysis.examples._cases import BETWEEN, stretch
from headscope.data.batches import batches
from headscope.data.encode import Encoder
from headscope.data.examples import Example
from headscope.heads import Head
from headscope.model.attention import Attention
from headscope.model.attention_model import AttentionModel
from headscope.model.lenses import LENSES
from headscope.statistics import Statistic, stream
from headscope.statistics.stream import Losses
from headscope.tables import TableRow

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Row = NDArray[np.float64]  # [key]

MOST_TEXTS = 50  # number of texts that are read again
EACH = 3  # examples per head


def lens_examples(
    model: AttentionModel,
    furthest: Sequence[Mapping[str, Any]],
    texts: Iterable[Example],
    *,
    losses: Losses | None = None,
    max_length: int | None = None,
    batch_size: int = 16,
) -> list[TableRow]:
    """Rows of lens_examples.csv; of each head the clearest example comes first.

    furthest  rows of lens_heads.csv: the heads and lenses to find examples for
    losses    the losses that the lens `gradient` differentiates
    """
    heads_of: dict[str, list[Head]] = {}
    for row in furthest:
        heads_of.setdefault(row["lens"], []).append(Head.of_row(row))
    finders = {lens: LensDifferences(model, lens, heads) for lens, heads in heads_of.items()}
    through = {LENSES[lens](model): [finder] for lens, finder in finders.items()}
    encoder = Encoder(model, max_length=max_length, long="truncate")
    read = batches(encoder, list(islice(texts, MOST_TEXTS)), batch_size=batch_size)
    for _ in stream(model, read, [], through=through, losses=losses):
        pass
    keys = [(row["lens"], Head.of_row(row)) for row in furthest]
    return [example for lens, head in keys for example in finders[lens].examples.get(head, [])]


class LensDifferences(Statistic):
    """Keeps the rows of some heads with the largest distance between the lens and raw attention.

    examples  rows of lens_examples.csv by head
    """

    definitions = {}

    def __init__(self, model: AttentionModel, lens: str, heads: Iterable[Head]) -> None:
        super().__init__()
        self.model, self.lens_name = model, lens
        self.examples: dict[Head, list[TableRow]] = {head: [] for head in heads}

    def update(self, attention: Attention) -> None:
        for head in (head for head in self.examples if head.site == attention.site):
            i = attention.site.index_of(head.head)
            raw, weights = (
                a.weights[:, i].double().cpu().numpy() for a in (attention.raw, attention)
            )
            weights = weights / np.maximum(np.abs(weights).sum(axis=-1, keepdims=True), 1e-300)
            distance = np.abs(raw - weights).sum(axis=-1) / 2  # [sequence, query]
            distance[~attention.query.content.cpu().numpy()] = -1.0
            differs = raw.argmax(axis=-1) != np.abs(weights).argmax(axis=-1)
            for sequence, of_rows in enumerate(distance):
                query = int(np.where(of_rows >= 0, of_rows + differs[sequence], -1.0).argmax())
                if of_rows[query] >= 0:
                    rows = raw[sequence, query], weights[sequence, query]
                    example = self._row(head, attention, sequence, query, *rows)
                    self.examples[head] = _clearest([*self.examples[head], example])

    def _row(
        self, head: Head, attention: Attention, sequence: int, query: int, raw: Row, through: Row
    ) -> TableRow:
        """A row of lens_examples.csv. raw, through: the row [key] of raw attention and that through the lens."""
        queries, keys = labels_of(self.model, attention.query, attention.key, sequence)
        shift = 0 if queries is keys else len(queries) + 1
        words = queries if queries is keys else [*queries, BETWEEN, *keys]
        raw_key, lens_key = int(raw.argmax()), int(np.abs(through).argmax())
        shown = stretch(len(words), [query, raw_key + shift, lens_key + shift])
        allowed = attention.raw.allowed.expand_as(attention.weights)
        i = attention.site.index_of(head.head)
        return {
            **asdict(head),
            "lens": self.lens_name,
            "words": json.dumps([words[i] if i >= 0 else "…" for i in shown], ensure_ascii=False),
            "query": shown.index(query),
            "raw_key": shown.index(raw_key + shift),
            "raw_weight": float(raw[raw_key]),
            "raw_key_through": float(through[raw_key]),
            "lens_key": shown.index(lens_key + shift),
            "lens_weight": float(through[lens_key]),
            "lens_key_raw": float(raw[lens_key]),
            "keys": int(allowed[sequence, i, query].sum()),
            "apart": float(np.abs(raw - through).sum() / 2),
        }

    def merge(self, other: Self) -> Self:
        for head, rows in other.examples.items():
            self.examples[head] = _clearest([*self.examples[head], *rows])
        return self


def _clearest(rows: list[TableRow]) -> list[TableRow]:
    """The best EACH rows: those with maxima at different tokens come first, then those with larger distances."""
    return sorted(rows, key=lambda r: (r["raw_key"] == r["lens_key"], -cast("float", r["apart"])))[
        :EACH
    ]
