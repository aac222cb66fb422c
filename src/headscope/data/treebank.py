"""Reads the dependency trees of a treebank in CoNLL-U. An error for a malformed sentence names file and line.

The format has ten columns separated by tabs, a blank line after each sentence, and comments that begin with #. Ranges
(`1-2`, the written form of several words) and empty nodes (`8.1`, elided words) are left out, since they are not words
of the tree. Any set of relation labels can be used.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from headscope.data.bundled import treebank_path
from headscope.data.text_lines import count_columns, read_lines
from headscope.errors import HeadscopeError

COLUMNS = 10
ROOT = -1  # stands for the governor of the root, which has none
TEN_COLUMNS = "ten columns with a tab between them"
FORMAT = f"sentences in CoNLL-U: {TEN_COLUMNS}, a blank line after each sentence"
FIX = "Fix the line, or pass `lenient=True` to leave such sentences out; run.json will count them"
_NOT_A_WORD = re.compile(r"[0-9]+(-[0-9]+|\.[0-9]+)")
_SENT_ID = re.compile(r"#\s*sent_id\s*=\s*(.*\S)")

Line = tuple[int, str]


@dataclass(frozen=True)
class ParsedSentence:
    """A sentence and its tree.

    governors  for each word the index of its governor, from 0; -1 for the root
    relations  for each word its relation to the governor, as written in column 8
    tags       for each word its part of speech (column 4)
    name       the sent_id, or the number of the sentence in the file, from 1, if it has no sent_id
    where      file and line of the first word
    """

    words: tuple[str, ...]
    governors: tuple[int, ...]
    relations: tuple[str, ...]
    tags: tuple[str, ...]
    name: str
    where: str


class MalformedSentence(HeadscopeError):
    """A sentence that is not a tree in CoNLL-U; `kind` is its category in the counts of left-out sentences."""

    def __init__(self, kind: str, what: str, *, where: str, expected: str) -> None:
        self.kind = kind
        super().__init__(what, where=where, expected=expected, fix=FIX)


def read_treebank(
    paths: str | Path | Iterable[str | Path],
    *,
    lenient: bool = False,
    counts: dict[str, int] | None = None,
) -> Iterator[ParsedSentence]:
    """The sentences of all files in order.

    lenient  leave malformed sentences out instead of raising an error
    counts   gets the number of sentences left out, by kind of error
    """
    counts = {} if counts is None else counts
    for path in [paths] if isinstance(paths, str | Path) else paths:
        read = left_out = 0
        for block in _blocks(path):
            read += 1
            try:
                sentence = _Block(path, read, block).parse()
            except MalformedSentence as malformed:
                if not lenient:
                    raise
                counts[malformed.kind] = counts.get(malformed.kind, 0) + 1
                left_out += 1
            else:
                yield sentence
        if read == left_out:
            what = f"none of the {read} sentences is well-formed" if read else "no sentence in it"
            raise HeadscopeError(what, where=path, expected=FORMAT)


def _blocks(path: str | Path) -> Iterator[list[Line]]:
    """The lines of each sentence. Sentences are separated by blank lines; groups with only comments are skipped."""
    block: list[Line] = []
    for number, line in read_lines(treebank_path(path)):
        if line.strip(" "):
            block.append((number, line))
        else:
            yield from _if_sentence(block)
            block = []
    yield from _if_sentence(block)


def _if_sentence(block: list[Line]) -> list[list[Line]]:
    return [block] if any(not line.startswith("#") for _, line in block) else []


class _Block:
    """The lines of one sentence, with its name for messages."""

    def __init__(self, path: str | Path, number: int, lines: list[Line]) -> None:
        self.path = path
        self.lines = [(at, line) for at, line in lines if not line.startswith("#")]
        ids = [match[1] for _, line in lines if (match := _SENT_ID.fullmatch(line.rstrip()))]
        self.name = ids[0] if ids else str(number)
        self.title = f'sentence "{self.name}"' if ids else f"sentence {number}"
        self.at: list[int] = []  # the line of each word

    def parse(self) -> ParsedSentence:
        rows = self._rows()
        governors = [self._governor(i, row[6], len(rows)) for i, row in enumerate(rows)]
        self._check_one_root(governors)
        self._check_no_cycle(governors)
        return ParsedSentence(
            words=tuple(row[1] for row in rows),
            governors=tuple(governors),
            relations=tuple(row[7] for row in rows),
            tags=tuple(row[3] for row in rows),
            name=self.name,
            where=f"{self.path}:{self.at[0]}",
        )

    def _rows(self) -> list[list[str]]:
        """The cells of each word."""
        rows: list[list[str]] = []
        for at, line in self.lines:
            cells = line.split("\t")
            if len(cells) != COLUMNS:
                what = count_columns(cells)
                raise self._malformed("wrong number of columns", what, at, TEN_COLUMNS)
            if _NOT_A_WORD.fullmatch(cells[0]):
                continue
            if cells[0] != str(len(rows) + 1):
                what = f'a word has the ID "{cells[0]}"'
                expected = f"{len(rows) + 1}, as words are counted from 1"
                raise self._malformed("wrong ID", what, at, expected)
            for name, column in (("FORM", 1), ("DEPREL", 7)):
                if not cells[column].strip():
                    what = f"word {cells[0]} has an empty {name} (column {column + 1})"
                    raise self._malformed(f"empty {name}", what, at, 'some text, or "_"')
            self.at.append(at)
            rows.append(cells)
        if not rows:
            at = self.lines[0][0]
            raise self._malformed("no words", "it has no words", at, "words counted from 1")
        return rows

    def _governor(self, i: int, head: str, count: int) -> int:
        word = f"word {i + 1}"
        if not re.fullmatch("[0-9]+", head):
            what, expected = f'{word} has the HEAD "{head}"', "the ID of a word, or 0 for the root"
            raise self._malformed("HEAD is not a number", what, self.at[i], expected)
        governor = int(head[:9]) - 1
        if governor >= count:
            what = f"{word} has the HEAD {head}"
            expected = f"a number from 0 to {count}, the last word"
            raise self._malformed("HEAD out of range", what, self.at[i], expected)
        if governor == i:
            what, expected = f"{word} is its own HEAD", "another word, or 0 for the root"
            raise self._malformed("word governs itself", what, self.at[i], expected)
        return governor

    def _check_one_root(self, governors: list[int]) -> None:
        roots = [i for i, governor in enumerate(governors) if governor == ROOT]
        expected = "one word with HEAD 0"
        if not roots:
            raise self._malformed("no root", "no word is the root", self.at[0], expected)
        if len(roots) > 1:
            words = " and ".join([", ".join(str(i + 1) for i in roots[:-1]), str(roots[-1] + 1)])
            what = f"words {words} are roots"
            raise self._malformed("several roots", what, self.at[roots[1]], expected)

    def _check_no_cycle(self, governors: list[int]) -> None:
        reaches_root = {ROOT}
        for start in range(len(governors)):
            path: dict[int, None] = {}
            word = start
            while word not in reaches_root and word not in path:
                path[word] = None
                word = governors[word]
            if word in path:
                cycle = list(path)[list(path).index(word) :]
                what = "HEADs run in a circle: " + " → ".join(str(i + 1) for i in [*cycle, word])
                expected = "a path from each word to the root"
                raise self._malformed("cycle", what, self.at[word], expected)
            reaches_root.update(path)

    def _malformed(self, kind: str, what: str, at: int, expected: str) -> MalformedSentence:
        return MalformedSentence(
            kind, f"{self.title}: {what}", where=f"{self.path}:{at}", expected=expected
        )
