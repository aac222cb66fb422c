"""Documents with coreference: mentions of entities, from files in CoNLL-2012 format.

The columns are document, part, word number, word, part-of-speech tag (may be missing), any others, and coreference
last. In the last column, `(12` opens a mention of entity 12, `12)` closes it, and `(0)` is a mention of one word.
Several marks are joined by `|`. A cell with `-`, `_` or nothing has no mark.

Such files do not mark the head word of a mention. It is found by a rule, without a parse: the last word before the
first of `, of in on at to with who which that` within the mention, else the last word of the mention. A possessive mark
or punctuation at the end is skipped.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from pathlib import Path
from typing import Literal

from headscope.data.encode import Counts, Encoder
from headscope.data.examples import Example
from headscope.data.text_lines import count_columns, read_lines
from headscope.errors import HeadscopeError
from headscope.model.attention_model import AttentionModel

Kind = Literal["pronoun", "proper", "nominal"]
KINDS: tuple[Kind, ...] = ("pronoun", "proper", "nominal")


def word_set(words: str) -> frozenset[str]:
    """The words of a text, as a set."""
    return frozenset(words.split())


PRONOUNS = word_set(
    "i me my mine myself we us our ours ourselves you your yours yourself yourselves thou thee thy thine thyself ye "
    "he him his himself she her hers herself it its itself they them their theirs themselves themself oneself "
    "this that these those who whom whose which"
)
_ENDS_A_HEAD = word_set(", of in on at to with who which that")
_POSSESSIVE = word_set("'s ’s s' s’")
_NONE = ("", "-", "_")
_BRACKETS = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}"}
_BEGIN = re.compile(
    r"#begin document\s*(?:\((?P<name>.*)\)|(?P<bare>[^;]*))(?:;\s*part\s*0*(?P<part>\d+))?.*"
)
_MARK = re.compile(r"(?P<opens>\()?(?P<entity>[^()|\s]+)(?P<closes>\))?\|?")
FIX = "Fix the file, or pass `lenient=True` to leave such documents out"
MARKS = "coreference marks such as (12, 12), (12) or (12|3), or - for none"
COLUMNS = "document, part, number, word, … , coreference: at least 5 columns, as many in every line of a sentence"


@dataclass(frozen=True)
class Mention:
    """Words `start` to `end - 1` refer to `entity`. `head` is the position of the head word."""

    start: int
    end: int
    entity: str
    head: int
    kind: Kind

    def shift(self, by: int) -> Mention:
        """The same mention with all positions shifted."""
        return Mention(self.start + by, self.end + by, self.entity, self.head + by, self.kind)


@dataclass(frozen=True)
class Document:
    """Sentences of words, and mentions by word positions in the document. tags: None if the file has no tags."""

    name: str
    where: str
    sentences: tuple[tuple[str, ...], ...]
    tags: tuple[tuple[str, ...], ...] | None
    mentions: tuple[Mention, ...]

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(chain.from_iterable(self.sentences))


@dataclass(frozen=True)
class Window:
    """A part of a document that fits into the model; positions in its mentions are relative to the window."""

    document: Document
    words: tuple[str, ...]
    tags: tuple[str, ...] | None
    mentions: tuple[Mention, ...]

    @property
    def example(self) -> Example:
        return Example(self.words, where=self.document.where)


def read_coreference(
    paths: str | Path | Iterable[str | Path], *, lenient: bool = False, counts: Counts | None = None
) -> Iterator[Document]:
    """The documents of all files in order.

    lenient  leave malformed documents out instead of refusing the file
    counts   counts the documents that were read, used and left out
    """
    counts = Counts() if counts is None else counts
    for path in [paths] if isinstance(paths, str | Path) else paths:
        documents = 0
        for number, lines in _documents(path):
            documents += 1
            counts.read += 1
            try:
                document = _parse(path, number, lines)
            except HeadscopeError:
                if not lenient:
                    raise
                counts.skip("malformed documents")
                continue
            counts.used += 1
            yield document
        if not documents:
            expected = 'a line "#begin document (NAME); part 000"'
            raise HeadscopeError("no document in it", where=path, expected=expected)


Lines = list[tuple[int, str]]


def _documents(path: str | Path) -> Iterator[tuple[int, Lines]]:
    """The first line number and the lines of each document. An unfinished document lacks the `#end document` line."""
    start, lines = 0, Lines()
    for number, line in read_lines(path):
        begins, ends = line.startswith("#begin document"), line.startswith("#end document")
        if start and begins:
            yield start, lines
        if begins:
            start, lines = number, []
        if start:
            lines.append((number, line))
        elif line.strip() and not line.startswith("#"):
            raise HeadscopeError(
                "a word outside of any document",
                where=f"{path}:{number}",
                expected='a line "#begin document (NAME); part 000" before it',
                fix="Check that this is a CoNLL-2012 file",
            )
        if start and ends:
            yield start, lines
            start = 0
    if start:
        yield start, lines


def _parse(path: str | Path, number: int, lines: Lines) -> Document:
    where = f"{path}:{number}"
    if not lines[-1][1].startswith("#end document"):
        raise _malformed("the document that begins here does not end", where, '"#end document"')
    sentences: list[_Sentence] = []
    before = 0
    for rows in _blocks(lines):
        sentences.append(_Sentence(path, rows, before))
        before += len(sentences[-1].words)
    if not sentences:
        raise _malformed("a document without words", where)
    tags = tuple(tuple(sentence.tags) for sentence in sentences)
    has_tags = not {"", "-", "_", "*"}.issuperset(chain.from_iterable(tags))
    return Document(
        name=_name(lines[0][1]),
        where=where,
        sentences=tuple(tuple(sentence.words) for sentence in sentences),
        tags=tags if has_tags else None,
        mentions=tuple(chain.from_iterable(sentence.mentions(has_tags) for sentence in sentences)),
    )


def _name(line: str) -> str:
    match = _BEGIN.fullmatch(line.rstrip())
    assert match is not None, line
    name = (match["name"] if match["name"] is not None else match["bare"]).strip()
    return f"{name}, part {match['part']}" if match["part"] not in (None, "0") else name


def _blocks(lines: Lines) -> Iterator[Lines]:
    """The lines of each sentence: those between blank lines and comments."""
    block = Lines()
    for number, line in lines:
        if line.strip() and not line.startswith("#"):
            block.append((number, line))
        elif block:
            yield block
            block = []


class _Sentence:
    """Words, tags and mention spans of one sentence; `before` is the position of its first word in the document."""

    def __init__(self, path: str | Path, rows: Lines, before: int) -> None:
        self.words: list[str] = []
        self.tags: list[str] = []
        self._before = before
        self._spans: list[tuple[int, int, str]] = []
        self._open: list[tuple[str, int, str]] = []  # entity, word, where
        width = len(_cells(rows[0][1]))
        for number, line in rows:
            self._add_word(_cells(line), width, f"{path}:{number}")
        if self._open:
            entity, _, where = self._open[0]
            what = f'"({entity}" is not closed within its sentence'
            raise _malformed(what, where, f'"{entity})"')

    def _add_word(self, cells: list[str], width: int, where: str) -> None:
        if len(cells) != width or width < 5:
            before = f", {width} in the lines before" if width != len(cells) else ""
            raise _malformed(count_columns(cells) + before, where, COLUMNS)
        if not cells[3].strip():
            raise _malformed("column 4 (the word) is empty", where)
        self.words.append(_BRACKETS.get(cells[3], cells[3]))
        self.tags.append(cells[4] if width > 5 else "")
        if cells[-1] not in _NONE:
            self._add_marks(cells[-1], where)

    def _add_marks(self, cell: str, where: str) -> None:
        marks = list(_MARK.finditer(cell))
        is_complete = "".join(mark[0] for mark in marks) == cell
        if not (is_complete and all(mark["opens"] or mark["closes"] for mark in marks)):
            raise _malformed(f'the last column is "{cell}"', where, MARKS)
        last = len(self.words) - 1
        for mark in marks:
            if mark["opens"]:
                self._open.append((mark["entity"], last, where))
            if mark["closes"]:
                start = self._close(mark["entity"], where)
                self._spans.append((start, last + 1, mark["entity"]))

    def _close(self, entity: str, where: str) -> int:
        """Close the last opened mention of this entity, and return the position of its first word."""
        for i in reversed(range(len(self._open))):
            if self._open[i][0] == entity:
                return self._open.pop(i)[1]
        what = f'"{entity})" closes a mention that is not open'
        raise _malformed(what, where, f'"({entity}" before it in the sentence')

    def mentions(self, has_tags: bool) -> list[Mention]:
        """The mentions in the order of their first words; an outer mention comes before those within it."""
        mentions = []
        for start, end, entity in sorted(set(self._spans), key=lambda span: (span[0], -span[1])):
            head = start + head_word(self.words[start:end])
            kind = kind_of(self.words, start, head, self.tags[head] if has_tags else None)
            mentions.append(Mention(start, end, entity, head, kind).shift(self._before))
        return mentions


def _cells(line: str) -> list[str]:
    """Split at tabs if there are any (cells may be empty then), else at runs of blanks."""
    return [cell.strip() for cell in line.split("\t")] if "\t" in line else line.split()


def _malformed(what: str, where: str, expected: str | None = None) -> HeadscopeError:
    return HeadscopeError(what, where=where, expected=expected, fix=FIX)


# Heads and kinds of mentions


def head_word(words: Sequence[str]) -> int:
    """The index of the head word within a mention."""
    end = next((i for i in range(1, len(words)) if words[i].lower() in _ENDS_A_HEAD), len(words))
    while end > 1 and (
        words[end - 1].lower() in _POSSESSIVE or not any(map(str.isalnum, words[end - 1]))
    ):
        end -= 1
    return end - 1


def kind_of(sentence: Sequence[str], start: int, head: int, tag: str | None = None) -> Kind:
    """A pronoun by a closed list; proper by its tag, or by a capital not at the start of a sentence; else nominal."""
    word = sentence[head]
    if head == start and word.lower() in PRONOUNS:  # "mine", but not "the gold mine"
        return "pronoun"
    has_capital = word[0].isupper() and head > 0
    is_proper = has_capital if tag is None else tag.startswith("NNP") or tag == "PROPN"
    return "proper" if is_proper else "nominal"


# Windows


def windows(
    documents: Iterable[Document], model: AttentionModel, *, max_length: int | None = None
) -> Iterator[Window]:
    """The documents in windows of at most `max_length` tokens (by default the model's limit, at most 512).

    A window has as many entire sentences as fit. A sentence that does not fit alone is split between words; a mention
    that is split by this is in no window. A word without tokens gets a window of its own, because the encoder skips
    (and counts) the entire window of such a word.
    """
    # Encode the words together to see whether they fit, because the tokens of a word may depend on its position.
    encoder = Encoder(model, max_length=max_length, long="skip")
    for document in documents:
        words = document.words
        tags = None if document.tags is None else tuple(chain.from_iterable(document.tags))
        ends = list(accumulate(map(len, document.sentences)))
        start = 0
        while start < len(words):
            stop = _window_end(words, start, ends, encoder)
            inside = (m for m in document.mentions if start <= m.start and m.end <= stop)
            mentions = tuple(mention.shift(-start) for mention in inside)
            yield Window(document, words[start:stop], tags and tags[start:stop], mentions)
            start = stop


def _window_end(words: tuple[str, ...], start: int, ends: list[int], encoder: Encoder) -> int:
    """The end of the window: after the last sentence that fits, else after the last word; at least one word."""

    def is_too_long(stop: int) -> bool:
        return not list(encoder.encode([Example(words[start:stop])], 0))

    last = start + encoder.max_length  # a word has at least one token
    for stops in (
        [end for end in ends if start < end <= last],
        range(start + 1, min(last, len(words)) + 1),
    ):
        fitting = bisect_left(stops, True, key=is_too_long)
        if fitting:
            return stops[fitting - 1]
    return start + 1
