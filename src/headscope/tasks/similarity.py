"""How alike are two texts? The cosine of their pooled vectors against a person's score. Needs no training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from scipy.stats import rankdata
from torch import Tensor

from headscope.data.records import read_records
from headscope.errors import HeadscopeError
from headscope.model.attention_model import AttentionModel
from headscope.tasks.base import (
    Chance,
    Item,
    Prepared,
    drop_incomplete,
    part_rows,
    root_mean_square,
)
from headscope.tasks.metrics import pearson, spearman
from headscope.tasks.pooling import PooledTask, Pooling, encode_texts

if TYPE_CHECKING:
    from numpy.typing import NDArray

HIGHEST = 5.0  # STS-B's scores go from 0 to 5


class Similarity(PooledTask):
    """Spearman's correlation of cosine and score; the loss is the squared distance of the cosine from score / 5."""

    names: ClassVar[tuple[str, ...]] = ("similarity", "stsb")
    metrics = ("spearman", "pearson")
    model_class = "AutoModel"
    compares = True
    table_columns = ("sentence1", "sentence2", "score")
    objective: ClassVar[str] = "metric"  # an order, which the squared distance does not ask for

    def read(self, path: Path) -> Iterator[Item]:
        for record in read_records(path):
            first = record.text(self.column(("sentence1", "text1", "a")))
            second = record.text(self.column(("sentence2", "text2", "b")))
            said = record.value(self.column(("score", "similarity_score", "label")))
            try:
                score = float(said)  # type: ignore[arg-type]
            except (TypeError, ValueError):
                score = float("nan")
            if not 0 <= score <= HIGHEST:
                raise HeadscopeError(
                    f'score "{said}"',
                    where=record.where,
                    expected=f"a number from 0 to {HIGHEST:g}",
                )
            yield Item((first, second), score, record.where)

    def prepare(
        self, model: AttentionModel, items: list[Item], *, max_length: int | None = None
    ) -> Prepared:
        self.check(model)
        texts = [(text, item.where, None) for item in items for text in item.texts]
        found, counts, skipped = encode_texts(model, texts, max_length)
        groups = [found[i : i + 2] for i in range(0, len(found), 2)]
        kept, sequences, parts = drop_incomplete(items, groups, counts)
        targets = np.array([item.target for item in kept])
        if len(set(targets.tolist())) < 2:
            raise HeadscopeError(
                f"all {len(kept)} examples have the score {targets[0]:g}, so no correlation is defined",
                expected="different scores",
            )
        pooling = Pooling(model.reading, tuple(skipped[: len(sequences)]))
        return Prepared(kept, sequences, parts, targets, counts, extras=pooling)

    def losses(self, answers: Tensor, prepared: Prepared, items: Sequence[int]) -> Tensor:
        targets = answers.new_tensor(prepared.targets[list(items)] / HIGHEST)
        return (self._cosines(answers, prepared, items) - targets) ** 2

    def scores(
        self, answers: Tensor, prepared: Prepared, items: Sequence[int]
    ) -> NDArray[np.float64]:
        """Columns: cosine, score."""
        cosines = self._cosines(answers, prepared, items).double().cpu().numpy()
        return np.stack([cosines, prepared.targets[list(items)]], axis=1)

    def chance(self, model: AttentionModel, prepared: Prepared) -> Chance:
        return Chance(metric=0.0)

    def change_of_one(self, scores: NDArray[np.float64]) -> float:
        """Two examples that are neighbours in the order of the cosines change places: the least that can happen."""
        order = np.argsort(scores[:, 0], kind="stable")
        cosines, gold = (rankdata(scores[order, column]) for column in (0, 1))
        # Exchanging the ranks of i and i + 1 changes the sum of products, and nothing else that the correlation has.
        changes = np.diff(cosines) * np.diff(gold)
        spread = float(
            np.sqrt(np.sum((cosines - cosines.mean()) ** 2) * np.sum((gold - gold.mean()) ** 2))
        )
        return root_mean_square(changes / spread) if spread > 0 else 0.0

    def measure(self, scores: NDArray[np.float64]) -> dict[str, float]:
        one, other = scores[:, 0], scores[:, 1]
        return {"spearman": spearman(one, other), "pearson": pearson(one, other)}

    def _cosines(self, answers: Tensor, prepared: Prepared, items: Sequence[int]) -> Tensor:
        where = part_rows(prepared, items)
        return (answers[where[:, 0]] * answers[where[:, 1]]).sum(dim=-1)
