"""Prose of a Markdown page: paragraphs and sentences without code, links and markup.

for paragraph in paragraphs(text):     # paragraphs, list items and table cells, with their line numbers
    for sentence in sentences(paragraph.text):
        words(sentence)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

GENERATED = re.compile(r"<!-- tables.*?<!-- end of tables -->", re.DOTALL)
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
ABBREVIATIONS = (" al.", "e.g.", "i.e.", "cf.", "vs.", "Fig.", " No.")
SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]*]*\s+(?=[\"'(\[*_]*[\w`…√Σ−])")
CODE = "Code"  # inline code counts as one word


class Paragraph(NamedTuple):
    line: int
    text: str


def paragraphs(page: str) -> Iterator[Paragraph]:
    """Paragraphs, list items and cells of tables; headings, fenced code and generated tables are left out."""
    for pattern in (GENERATED, FENCED):
        page = pattern.sub(lambda match: "\n" * match[0].count("\n"), page)
    block: list[str] = []
    start = 0
    for number, line in enumerate([*page.splitlines(), ""], start=1):
        stripped = line.strip()
        is_item = re.match(r"([-*+]|\d+\.) ", stripped) is not None
        is_table = stripped.startswith("|")
        if block and (not stripped or is_item or is_table or stripped.startswith("#")):
            yield Paragraph(start, plain(" ".join(block)))
            block = []
        if is_table:
            for cell in re.split(r"(?<!\\)\|", re.sub(r"`[^`]*`", CODE, stripped))[1:-1]:
                yield Paragraph(number, plain(cell))
        elif stripped and not stripped.startswith(("#", "<!--", "    ", "![")):
            start = start if block else number
            block.append(re.sub(r"^([-*+]|\d+\.) ", "", stripped))


def plain(text: str) -> str:
    """Text as it is read: links without their targets, inline code as one word, no markup."""
    text = re.sub(r"`[^`]*`", CODE, text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"<[^>]+>", " ", text)
    return re.sub(r"\s+", " ", text.replace("**", "")).strip()


def sentences(text: str) -> Iterator[str]:
    start = 0
    for match in SENTENCE_END.finditer(text):
        if not text[start : match.start()].endswith(ABBREVIATIONS):
            yield text[start : match.start()]
            start = match.end()
    yield text[start:]


def words(sentence: str) -> int:
    return sum(any(sign.isalnum() for sign in word) for word in sentence.split())
