"""Where in the data do a lens and raw attention disagree on a head? Examples for the heads of lens_heads.csv.

An example is one row, of a content token, of a head's attention in a text. The lens' row is brought to the same size
(divided by the sum of its numbers, signs aside), and the two are as far apart as half the sum of their differences
says: 0 for the same row, 1 where they have no token in common. Of every text the row that is furthest apart counts, of
those where the two point to different tokens if there is one; those of three texts are kept, such ones first. These are
the clearest cases, not usual ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import islice
from typing import Any, Self

import numpy as np

from headscope.analysis.examples._cases import BETWEEN, stretch
from headscope.analysis.examples._reading import labels_of
from headscope.data.batches import batches
from headscope.data.encode import Encoder
from headscope.data.examples import Example
from headscope.heads import Head
from headscope.model.attention import Attention
from headscope.model.attention_model import AttentionModel
from headscope.model.lenses import LENSES
from headscope.statistics import Statistic, stream
from headscope.statistics.stream import Losses

MOST = 50  # texts that are read again
EACH = 3


def lens_examples(
    model: AttentionModel,
    furthest: Sequence[dict[str, Any]],
    texts: Iterable[Example],
    *,
    losses: Losses | None = None,
    max_length: int | None = None,
    batch_size: int = 16,
) -> list[dict[str, Any]]:
    """Rows of lens_examples.csv for the heads of `furthest` (rows of lens_heads.csv), the clearest of each first.

    losses  for the lens of gradients
    """
    wanted: dict[str, list[Head]] = {}
    for row in furthest:
        wanted.setdefault(row["lens"], []).append(Head(row["stack"], row["layer"], row["head"]))
    asked = {LENSES[lens](model): [Apart(model, lens, heads)] for lens, heads in wanted.items()}
    encoder = Encoder(model, max_length=max_length, long="truncate")
    read = batches(encoder, list(islice(texts, MOST)), batch_size=batch_size)
    for _ in stream(model, read, [], through=asked, losses=losses):
        pass
    found = {lens: one.found for (one,), lens in zip(asked.values(), wanted, strict=True)}
    keys = [(row["lens"], Head(row["stack"], row["layer"], row["head"])) for row in furthest]
    return [example for lens, head in keys for example in found[lens].get(head, [])]


class Apart(Statistic):
    """Keeps the rows of some heads where the lens and raw attention are furthest apart.

    found  {head: rows of lens_examples.csv}
    """

    definitions = {}

    def __init__(self, model: AttentionModel, lens: str, heads: Iterable[Head]) -> None:
        super().__init__()
        self.model, self.name = model, lens
        self.found: dict[Head, list[dict[str, Any]]] = {head: [] for head in heads}

    def update(self, attention: Attention) -> None:
        for head in (head for head in self.found if head.site == attention.site):
            place = attention.site.index_of(head.head)
            raw = attention.raw.weights[:, place].double().cpu().numpy()
            seen = attention.weights[:, place].double().cpu().numpy()
            seen = seen / np.maximum(np.abs(seen).sum(axis=-1, keepdims=True), 1e-300)
            apart = np.abs(raw - seen).sum(axis=-1) / 2
            apart[~attention.query.content.cpu().numpy()] = -1.0
            differs = raw.argmax(axis=-1) != np.abs(seen).argmax(axis=-1)
            for sequence, of_rows in enumerate(apart):
                query = int(np.where(of_rows >= 0, of_rows + differs[sequence], -1.0).argmax())
                if of_rows[query] >= 0:
                    maps = raw[sequence, query], seen[sequence, query]
                    row = self._row(head, attention, sequence, query, *maps)
                    self.found[head] = _clearest([*self.found[head], row])

    def _row(
        self, head: Head, attention: Attention, sequence: int, query: int, raw: Any, seen: Any
    ) -> dict[str, Any]:
        place = attention.site.index_of(head.head)
        queries, keys = labels_of(self.model, attention, sequence)
        shift = 0 if queries is keys else len(queries) + 1
        words = queries if queries is keys else [*queries, BETWEEN, *keys]
        raw_key, lens_key = int(raw.argmax()), int(np.abs(seen).argmax())
        shown = stretch(len(words), [query, raw_key + shift, lens_key + shift])
        keys_seen = int(
            attention.raw.allowed.expand_as(attention.weights)[sequence, place, query].sum()
        )
        return {
            **asdict(head),
            "lens": self.name,
            "words": json.dumps([words[i] if i >= 0 else "…" for i in shown], ensure_ascii=False),
            "query": shown.index(query),
            "raw_key": shown.index(raw_key + shift),
            "raw_weight": float(raw[raw_key]),
            "raw_key_through": float(seen[raw_key]),
            "lens_key": shown.index(lens_key + shift),
            "lens_weight": float(seen[lens_key]),
            "lens_key_raw": float(raw[lens_key]),
            "keys": keys_seen,
            "apart": float(np.abs(raw - seen).sum() / 2),
        }

    def merge(self, other: Self) -> Self:
        for head, rows in other.found.items():
            self.found[head] = _clearest([*self.found[head], *rows])
        return self


def _clearest(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those that point to different tokens first, then those that are furthest apart."""
    rows = sorted(rows, key=lambda row: (row["raw_key"] == row["lens_key"], -row["apart"]))
    return rows[:EACH]
