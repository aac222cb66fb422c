"""Sequences from FASTA files: records of a header line (`>id …`) and a sequence over one or more lines.

Headers are not part of the text. Lines that begin with `;` are comments. White space inside a sequence is removed, and
so is a `*` at its end (the stop codon of a translated gene). The case of letters is not changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from headscope.data.text_lines import suffix_of
from headscope.errors import HeadscopeError

SUFFIXES = (".fasta", ".fa", ".faa")
_SEQUENCE = re.compile(r"[A-Za-z*-]+|[A-Z*-]+( [A-Z*-]+)+")


def is_fasta(path: str | Path, first_lines: Sequence[str] = ()) -> bool:
    """Whether a file is FASTA: by its suffix, or by its first lines that are neither blank nor `;` comments.

    The lines must be a header and one word of letters, or blocks of capitals. A plain text file is not FASTA because it
    starts with a quotation mark (`> As you said`) or a reaction arrow (`>CCO>CC`).
    """
    if suffix_of(path) in SUFFIXES:
        return True
    header, sequence = first_lines if len(first_lines) == 2 else ("", "")
    return (
        header.startswith(">")
        and not header.startswith(">>")
        and bool(_SEQUENCE.fullmatch(sequence.strip()))
    )


def read_fasta(path: str | Path, lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """(line number of the header, sequence) of each record; `lines` are numbered from 1."""
    header: tuple[int, str] | None = None
    parts: list[str] = []
    for number, line in lines:
        if line.startswith(">"):
            if header is not None:
                yield _record(path, header, parts)
            header, parts = (number, line[1:]), []
        elif line.startswith(";") or not line.strip():
            continue
        elif header is None:
            raise HeadscopeError(
                f'"{line.strip()[:40]}" comes before the first header',
                where=f"{path}:{number}",
                expected=">ID",
            )
        else:
            parts.append("".join(line.split()))
    if header is not None:
        yield _record(path, header, parts)


def _record(path: str | Path, header: tuple[int, str], parts: list[str]) -> tuple[int, str]:
    number, title = header
    sequence = "".join(parts).removesuffix("*")
    if not sequence:
        identifier = (title.split() or [""])[0]
        raise HeadscopeError(
            f'record "{identifier[:60]}" has no sequence',
            where=f"{path}:{number}",
            fix="Remove the record; if this is not FASTA, remove the > at the start of the file",
        )
    return number, sequence
