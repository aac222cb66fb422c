"""Fixed word vectors: from a file, or from a model's input embeddings.

Both are centred, reduced to their principal components over the training words, and scaled to a mean square of 1.
Unknown words get a vector of zeros.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from headscope.data.text_lines import read_lines
from headscope.errors import HeadscopeError
from headscope.model.attention_model import AttentionModel

FORM = "a word and its numbers with blanks between them, as word2vec and GloVe write them"


class WordVectors:
    """A table with a fixed vector for each known word. Row 0 is the zero vector for all other words."""

    def __init__(
        self, vectors: dict[Hashable, Tensor], training_words: set[Hashable], dimensions: int
    ) -> None:
        """Centre, components and scale are computed on the training words."""
        self._row = {key: 1 + i for i, key in enumerate(vectors)}
        rows_of_table = list(vectors.values())
        table = torch.stack([torch.zeros_like(rows_of_table[0]), *rows_of_table]).double()
        rows = sorted(self._row[key] for key in training_words if key in self._row)
        basis = table[rows or list(self._row.values())]
        centre = basis.mean(dim=0)
        directions = torch.eye(basis.shape[1], dtype=torch.float64)
        if basis.shape[1] > dimensions:
            _, vectors_by_size = torch.linalg.eigh((basis - centre).T @ (basis - centre))
            directions = vectors_by_size[:, -dimensions:]
        table = (table - centre) @ directions
        scale = ((basis - centre) @ directions).square().mean().sqrt().clamp_min(1e-12)
        self.table = (table / scale).float()
        self.table[0] = 0.0

    @property
    def dimensions(self) -> int:
        return int(self.table.shape[1])

    def rows(self, keys: Iterable[Hashable]) -> list[int]:
        return [self._row.get(key, 0) for key in keys]

    def share(self, texts: Iterable[Iterable[Hashable]]) -> float:
        """The share of the words of these texts that are known."""
        rows = [row for keys in texts for row in self.rows(keys)]
        return sum(row > 0 for row in rows) / len(rows)


def mean_embeddings(
    model: AttentionModel, words: Iterable[tuple[int, ...]]
) -> dict[Hashable, Tensor]:
    """The mean input embedding of each word's pieces."""
    table = model.model.get_input_embeddings().weight.detach().float().cpu()
    return {pieces: table[list(pieces)].mean(dim=0) for pieces in dict.fromkeys(words)}


def read_vectors(path: str | Path, words: set[Hashable]) -> dict[Hashable, Tensor]:
    """The vectors of these lower-case words. If the file has several spellings of a word, the first one counts."""
    vectors: dict[Hashable, Tensor] = {}
    size = None
    for number, line in read_lines(path):
        cells = line.strip().split(" ")
        if number == 1 and len(cells) == 2 and all(cell.isdigit() for cell in cells):
            size = int(cells[1])
            continue
        size = len(cells) - 1 if size is None else size
        word = _word_before(cells, size, f"{path}:{number}")
        if word.lower() in words and word.lower() not in vectors:
            vectors[word.lower()] = torch.tensor(_numbers(cells[-size:], f"{path}:{number}"))
    if not vectors:
        raise HeadscopeError(
            "it has a vector for none of the treebank's words", where=path, expected=FORM
        )
    return vectors


def _word_before(cells: list[str], size: int, where: str) -> str:
    """The word before the numbers; in GloVe files a word may contain blanks."""
    extra = cells[1 : len(cells) - size]
    if size < 1 or len(cells) <= size or any(_is_number(cell) for cell in extra):
        count = len(cells) - 1
        what = f"{count} number{'' if count == 1 else 's'} after the word"
        raise HeadscopeError(
            what, where=where, expected=f"{size}, as line 1 has it" if size > 0 else FORM
        )
    return " ".join(cells[: len(cells) - size])


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _numbers(cells: list[str], where: str) -> list[float]:
    for cell in cells:
        if not _is_number(cell) or not np.isfinite(float(cell)):
            raise HeadscopeError(f'"{cell}" is not a number', where=where, expected=FORM)
    return [float(cell) for cell in cells]
