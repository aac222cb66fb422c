"""Ranks of words by frequency, from a frequency list or counted in a corpus.

Each line of a list has a word and its frequency, separated by a tab or a blank; a header is optional. The frequency may
be any number that grows with it, such as a count or a logarithm. `english` is the list that comes with headscope.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from headscope.data.bundled import FOLDER, bundled_path
from headscope.data.text_lines import count_columns, read_lines
from headscope.errors import HeadscopeError

LISTS = {"english": FOLDER / "english-frequencies.tsv.gz"}
FORMAT = "a word and its frequency, with a tab or a blank between them"
_CLITIC = re.compile(r"n't|'\w{1,2}|\w{1,2}'")  # 's 'll n't; l' qu' of French
_NUMBER = re.compile(r"\d[\d.,]*\d")  # of two or more digits
_WORD = re.compile(r"\w+(?:['’]\w+|[.,]\d+)*|[^\w\s]")


class Frequencies:
    """The frequency ranks of words. Input: for each word a number that grows with its frequency."""

    def __init__(self, frequencies: Mapping[str, float]) -> None:
        """If spellings differ only in case, the most frequent one counts. Punctuation and clitics are dropped."""
        words = ((_normalize(word), frequency) for word, frequency in frequencies.items())
        self._ranks = _ranks(_largest((word, n) for word, n in words if self.is_counted(word)))
        self._has_numbers_as_zeros = all(_zero_digits(word) == word for word in self._ranks)

    def __len__(self) -> int:
        return len(self._ranks)

    def rank(self, word: str) -> int:
        """The number of words that are more frequent: 0 for the most frequent. Words not in the list are the rarest.

        A word is looked up in lower case and, if that is missing, without punctuation at its ends (Mr.). If all
        numbers of two or more digits in the list consist of zeros, as in wordfreq, 1984 is looked up as 0000.
        """
        word = _normalize(word)
        word = _zero_digits(word) if self._has_numbers_as_zeros else word
        bare = re.sub(r"^[\W_]+|[\W_]+$", "", word)
        return self._ranks.get(word, self._ranks.get(bare, len(self._ranks)))

    @staticmethod
    def is_counted(word: str) -> bool:
        """Whether a word has a rank: it is neither punctuation nor a clitic such as 's or n't."""
        return any(map(str.isalnum, word)) and not _CLITIC.fullmatch(_normalize(word))


def _normalize(word: str) -> str:
    return word.lower().replace("’", "'")


def _zero_digits(word: str) -> str:
    return _NUMBER.sub(lambda number: re.sub(r"\d", "0", number[0]), word)


def _largest(frequencies: Iterable[tuple[str, float]]) -> dict[str, float]:
    """The largest frequency of each word."""
    largest: dict[str, float] = {}
    for word, frequency in frequencies:
        largest[word] = max(frequency, largest.get(word, -math.inf))
    return largest


def _ranks(frequencies: Mapping[str, float]) -> dict[str, int]:
    """The rank of each word; equally frequent words have the same rank."""
    ranks: dict[str, int] = {}
    rank, last = 0, math.inf
    for i, (word, frequency) in enumerate(sorted(frequencies.items(), key=lambda item: -item[1])):
        if frequency < last:
            rank, last = i, frequency
        ranks[word] = rank
    return ranks


def count_frequencies(words: Iterable[str]) -> Frequencies:
    """Ranks by how often each word occurs."""
    return Frequencies(Counter(map(_normalize, words)))


def words_in(text: str) -> tuple[str, ...]:
    """The words of a text, with punctuation marks as separate words: Don't stop, 2.5 km! → Don't stop , 2.5 km !"""
    return tuple(_WORD.findall(text))


def read_frequencies(path: str | Path) -> Frequencies:
    """Ranks from a list in a file, or from a bundled list by its name."""
    frequencies = Frequencies(_largest(_read(frequency_file(path))))
    if not len(frequencies):
        raise HeadscopeError("no word in it", where=path, expected=f"{FORMAT}, a line each")
    return frequencies


def frequency_file(path: str | Path) -> str | Path:
    """The path of a bundled list if `path` is its name and no such file exists here; otherwise `path`."""
    return bundled_path(path, LISTS, "frequency list")


def _read(path: str | Path) -> Iterator[tuple[str, float]]:
    for number, line in read_lines(path):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        cells = [cell.strip(" ") for cell in line.split("\t")] if "\t" in line else line.split()
        if len(cells) != 2:
            raise HeadscopeError(count_columns(cells), where=where, expected=FORMAT)
        word, value = cells
        frequency = _number(value)
        if frequency is None and number == 1:
            continue  # a header
        if not word or frequency is None:
            what = f'"{value}" is not a frequency' if word else "the word is missing"
            raise HeadscopeError(what, where=where, expected=FORMAT)
        yield word, frequency


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
