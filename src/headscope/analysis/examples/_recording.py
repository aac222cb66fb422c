"""Records those parts of the maps of a few texts that the examples need, while the statistics are computed.

Roles are known only after the pass over the data, so the parts are recorded for all heads: the largest weight of each
row for roles that are rules on tokens, and the entire map between words for roles that are rules on words. Both are
recorded for the first texts only, up to a memory limit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch

from headscope.analysis.examples._question import (
    ExampleRole,
    Questions,
    RowMaxima,
    Text,
    TokenQuestion,
)
from headscope.data.examples import Example
from headscope.heads import Site
from headscope.model.attention import Attention
from headscope.model.row_sums import Wanted
from headscope.model.tokens import Tokens
from headscope.model.word_attention import Pool, mean_between
from headscope.statistics.base import Quantities, Statistic

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_TEXTS = 200  # largest number of texts that a recorder records
MOST_BYTES = 128_000_000  # memory limit of a recorder


@cache
def _functions(name: str) -> tuple[Callable[..., Any], ...]:
    """The functions of this name in the files of this package."""
    files = sorted(module.name for module in iter_modules([str(Path(__file__).parent)]))
    modules = [import_module(f"{__package__}.{file}") for file in files if file[0] != "_"]
    return tuple(getattr(module, name) for module in modules if hasattr(module, name))


def questions_among_words(text: Text, site: Site, roles: Iterable[ExampleRole]) -> Questions:
    """The questions of all files about the words of a text at this site, for the roles that they know."""
    questions: Questions = {}
    for among_words in _functions("among_words"):
        questions |= among_words(text, site, roles)
    return questions


def question_among_tokens(role: str, query: Tokens, key: Tokens) -> TokenQuestion | None:
    """The question about the tokens of one sequence; None for a role of words."""
    for among_tokens in _functions("among_tokens"):
        question: TokenQuestion | None = among_tokens(role, query, key)
        if question is not None:
            return question
    return None


class _Recorder(Statistic):
    """Base class: records parts of the maps of some texts, until the memory limit is reached."""

    definitions = {}  # it has no values of its own

    def __init__(self, sites: int) -> None:
        """sites: number of sites of the model; each gets an equal part of the memory"""
        super().__init__()
        self._most_bytes = MOST_BYTES // sites
        self._used: Counter[Site] = Counter()

    def _fits(self, site: Site, size: int) -> bool:
        """Whether `size` more bytes fit into the memory of this site. If so, they count as used."""
        fits = self._used[site] + size <= self._most_bytes
        self._used[site] += size if fits else 0
        return fits


@dataclass(frozen=True)
class TokenMaxima:
    """The largest weights of the rows of one text at one site: among all keys, and among content keys."""

    query: Tokens
    key: Tokens
    among_all: RowMaxima
    among_content: RowMaxima


class TokenRecorder(_Recorder):
    """Records where the rows of texts have their largest weights.

    numbers   numbers of the texts to record
    examples  {number: text}
    maxima    {site: {number of the text: maxima of its rows}}
    """

    quantities = frozenset({"row_max", "content_row_max", "row_entropy"})

    def __init__(self, sites: int, numbers: Iterable[int]) -> None:
        super().__init__(sites)
        self.numbers = frozenset(numbers)
        self.examples: dict[int, Example] = {}
        self.maxima: dict[Site, dict[int, TokenMaxima]] = {}

    def remember(self, examples: Iterable[Example]) -> Iterator[Example]:
        """Yield all examples unchanged, and store those whose number is in `numbers`."""
        for number, example in enumerate(examples):
            if number in self.numbers:
                self.examples[number] = example
            yield example

    def wanted(self, examples: Sequence[int]) -> Wanted:
        located = tuple(i for i, number in enumerate(examples) if number in self.numbers)
        return Wanted(self.quantities, located=located)

    def update(self, attention: Quantities) -> None:
        of_site = self.maxima.setdefault(attention.site, {})
        heads = attention.row_max.shape[1]
        for row, number in enumerate(attention.examples):
            # If a text was split into windows, only the first window is recorded.
            if number not in self.numbers or number in of_site:
                continue
            length = int(attention.query.real[row].sum())
            if self._fits(
                attention.site, 5 * 4 * heads * length
            ):  # five arrays of four bytes per row
                of_site[number] = _maxima_of(attention, row, length)

    def merge(self, other: Self) -> Self:
        for site, maxima in other.maxima.items():
            self.maxima[site] = maxima | self.maxima.get(site, {})
        self.examples |= other.examples
        return self


def _maxima_of(attention: Quantities, row: int, length: int) -> TokenMaxima:
    """The maxima of the first `length` rows of a sequence."""
    query = attention.query.select(slice(row, row + 1), slice(0, length))
    key = query
    if not attention.within_one_text:
        key_length = int(attention.key.real[row].sum())
        key = attention.key.select(slice(row, row + 1), slice(0, key_length))
    argmax, content_argmax = (
        quantity[row, :, :length].int().cpu().numpy().copy()
        for quantity in (attention.row_argmax, attention.content_row_argmax)
    )
    largest, content_largest, entropy = (
        quantity[row, :, :length].cpu().numpy().copy()
        for quantity in (attention.row_max, attention.content_row_max, attention.row_entropy)
    )
    is_special = ~query.content[0].cpu().numpy()
    largest[:, is_special] = content_largest[
        :, is_special
    ] = -1.0  # no question is about special rows
    among_all = RowMaxima(argmax, largest, entropy)
    return TokenMaxima(query, key, among_all, RowMaxima(content_argmax, content_largest))


class WordRecorder(_Recorder):
    """Records the maps between the words of texts.

    texts    {number: text}
    between  {site: {number: [head, query word, key word]}}, for the words that the questions of the text are about
    """

    def __init__(self, sites: int, texts: Mapping[int, Text], pool: Pool) -> None:
        super().__init__(sites)
        self.texts, self.pool = texts, pool
        self.between: dict[Site, dict[int, NDArray[np.float32]]] = {}

    def update(self, attention: Attention) -> None:
        of_site = self.between.setdefault(attention.site, {})
        for row, number in enumerate(attention.examples):
            text = self.texts.get(number)
            if text is None or number in of_site:
                continue
            cells = self._cells(attention, row, text)
            if self._fits(attention.site, cells.nbytes):
                of_site[number] = cells

    def _cells(self, attention: Attention, row: int, text: Text) -> NDArray[np.float32]:
        """[head, query, key]: the map between the words of a text that are asked about."""
        words = attention.query.words
        if text.window is not None and self.pool == "mean" and words is not None:
            numbers = torch.from_numpy(text.word_numbers).to(words.device)
            between = mean_between(attention.weights[row], words[row], numbers)
            return between.float().cpu().numpy().copy()
        weights = attention.between_words(self.pool).weights[row].float().cpu().numpy()
        return text.cells(weights, attention.site.stack).copy()

    def merge(self, other: Self) -> Self:
        for site, maps in other.between.items():
            self.between[site] = maps | self.between.get(site, {})
        return self
