"""Semantic similarity of two texts: the cosine of their pooled vectors against human scores. Needs no training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
from scipy.stats import rankdata
from torch import Tensor

from headscope.data.records import read_records
from headscope.errors import HeadscopeError
from headscope.model.attention_model import AttentionModel
from headscope.tasks.base import Chance, Scores, root_mean_square
from headscope.tasks.items import Item
from headscope.tasks.metrics import pearson, spearman
from headscope.tasks.pooling import PooledTask, Pooling, encode_texts
from headscope.tasks.prepared import Prepared, drop_incomplete, part_rows

HIGHEST = 5.0  # STS-B's scores go from 0 to 5


class Similarity(PooledTask):
    """Spearman's correlation of cosine and score; the loss is the squared difference of the cosine and score / 5."""

    names: ClassVar[tuple[str, ...]] = ("similarity", "stsb")
    metrics = ("spearman", "pearson")
    model_class = "AutoModel"
    compares = True
    table_columns = ("sentence1", "sentence2", "score")
    # The metric depends on the order only, the squared difference does not.
    objective: ClassVar[str] = "metric"

    def read(self, path: Path) -> Iterator[Item]:
        for record in read_records(path):
            first = record.text(self.column(("sentence1", "text1", "a")))
            second = record.text(self.column(("sentence2", "text2", "b")))
            cell = record.value(self.column(("score", "similarity_score", "label")))
            try:
                score = float(cell)  # type: ignore[arg-type]
            except (TypeError, ValueError):
                score = float("nan")
            if not 0 <= score <= HIGHEST:
                what = f'the score must be a number from 0 to {HIGHEST:g}, got "{cell}"'
                raise HeadscopeError(what, where=record.where)
            yield Item((first, second), score, record.where)

    def prepare(
        self, model: AttentionModel, items: list[Item], *, max_length: int | None = None
    ) -> Prepared:
        self.check(model)
        texts = [(text, item.where, None) for item in items for text in item.texts]
        sequences, counts, skipped = encode_texts(model, texts, max_length)
        prepared = drop_incomplete(items, sequences, 2, counts)
        targets = np.array([item.target for item in prepared.items])
        if len(set(targets.tolist())) < 2:
            raise HeadscopeError(
                f"scores must differ for a correlation, got {targets[0]:g} for all {len(targets)} examples"
            )
        pooling = Pooling(model.reading, tuple(skipped[: len(prepared.sequences)]))
        return replace(prepared, targets=targets, extras=pooling)

    def losses(self, answers: Tensor, prepared: Prepared, items: Sequence[int]) -> Tensor:
        targets = answers.new_tensor(prepared.targets[list(items)] / HIGHEST)
        return (self._cosines(answers, prepared, items) - targets) ** 2

    def scores(self, answers: Tensor, prepared: Prepared, items: Sequence[int]) -> Scores:
        """Columns: cosine, score."""
        cosines = self._cosines(answers, prepared, items).double().cpu().numpy()
        return np.stack([cosines, prepared.targets[list(items)]], axis=1)

    def chance(self, model: AttentionModel, prepared: Prepared) -> Chance:
        return Chance(metric=0.0)

    def change_of_one(self, scores: Scores) -> float:
        """Two examples that are neighbours in the order of the cosines are exchanged, which is the smallest change."""
        order = np.argsort(scores[:, 0], kind="stable")
        cosines, gold = (rankdata(scores[order, column]) for column in (0, 1))
        # Exchanging the ranks of i and i + 1 changes only the sum of products in the correlation.
        changes = np.diff(cosines) * np.diff(gold)
        spread = float(
            np.sqrt(np.sum((cosines - cosines.mean()) ** 2) * np.sum((gold - gold.mean()) ** 2))
        )
        return root_mean_square(changes / spread) if spread > 0 else 0.0

    def measure(self, scores: Scores) -> dict[str, float]:
        cosines, targets = scores.T
        return {"spearman": spearman(cosines, targets), "pearson": pearson(cosines, targets)}

    def _cosines(self, answers: Tensor, prepared: Prepared, items: Sequence[int]) -> Tensor:
        first, second = part_rows(prepared, items).T
        return (answers[first] * answers[second]).sum(dim=-1)
