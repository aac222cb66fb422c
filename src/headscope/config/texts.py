"""Options of commands that read texts: files, annotated files, or texts and sentences in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from headscope.config import names
from headscope.config.option import ADVANCED, Config, option
from headscope.config.parsing import file_list
from headscope.config.parsing import names as names_of
from headscope.config.value_types import describe_value
from headscope.errors import HeadscopeError

READABLE = "the model's limit, at most 512"


@dataclass(frozen=True)
class TextData(Config):
    """Texts, with or without annotation, and how much of them is read.

    Commands use some of the fields. Three of them exist in Python only:

    texts      texts, or pairs of texts, instead of the files of a `corpus`
    sentences  words with related pairs of words (atoms, translations): see `Sentence`
    relations  further relations of a treebank by name: a function from a parsed sentence to pairs of words
    """

    primary = "texts"

    corpus: list[str | Path] = option(
        (),
        "Files of texts: plain text (one text per line; with --pairs two, separated by a tab), FASTA, or tables (csv, "
        "tsv, jsonl); also gzipped; - reads stdin. wikipedia-pairs is a corpus that comes with headscope",
        parse=file_list,
        metavar="FILE…",
        show_default=False,
    )
    treebank: list[str | Path] = option(
        (),
        "Treebanks in CoNLL-U format, to measure which heads follow which syntactic relations. Without --corpus, their "
        "sentences are used as the corpus as well. ewt-sample is a treebank that comes with headscope",
        parse=file_list,
        metavar="FILE…",
        show_default=False,
    )
    coreference: list[str | Path] = option(
        (),
        "Documents in CoNLL-2012 format with coreference, to measure which heads attend to the antecedents of mentions",
        parse=file_list,
        metavar="FILE…",
        show_default=False,
    )
    frequency: str | Path | None = option(
        None,
        "Source of word frequencies, to measure which heads attend to rare words; one of: english (a list that comes "
        "with headscope), a file of words and counts, or corpus (count the words of the texts themselves)",
        metavar="SOURCE",
        show_default=False,
    )
    lenient: bool = option(
        False,
        "Skip and count malformed sentences and documents; without this option they are an error",
        panel=ADVANCED,
    )
    pairs: bool = option(False, "Read pairs of texts; for a translation model, source and target")
    column: tuple[str, ...] | None = option(
        None,
        "Column of a csv, tsv or jsonl corpus that holds the texts, e.g. smiles; with --pairs two columns, e.g. "
        "source,target",
        parse=names_of,
        metavar="NAME",
        show_default="the column text; for pairs of texts the columns a and b",
    )
    limit: int | None = option(
        None,
        "Maximum number of texts, from the start of the corpus",
        at_least=1,
        show_default="all",
    )
    max_length: int | None = option(
        None,
        "Maximum number of tokens per sequence; longer texts are truncated",
        at_least=1,
        show_default=READABLE,
        panel=ADVANCED,
    )
    long_texts: Literal["truncate", "window", "skip", "error"] = option(
        "truncate",
        "Treatment of texts longer than --max-length: truncate, window (split into several sequences), skip, or error "
        "(refuse them)",
        choices=names.LONG,
        panel=ADVANCED,
    )
    texts: Any = field(default=(), repr=False, compare=False)
    sentences: Any = field(default=(), repr=False, compare=False)
    relations: Mapping[str, Callable[[Any], Iterable[tuple[int, int]]]] | None = field(
        default=None, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("texts", "sentences"):
            value = getattr(self, name)
            if not isinstance(value, Iterable):
                what = f"`{name}` must be a list of {name}, got {describe_value(value)}"
                raise HeadscopeError(what)
            if isinstance(value, Iterable) and not isinstance(value, str):
                # A pandas column or an array has no truth value.
                object.__setattr__(self, name, tuple(value))

    @property
    def is_annotated(self) -> bool:
        """Whether there are sentences with relations, or documents with mentions."""
        return bool(self.treebank or self.sentences or self.coreference)
