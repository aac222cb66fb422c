"""Options of the commands that work on a task."""

from __future__ import annotations

from typing import Annotated

import typer

from headscope.config.names import TASKS
from headscope.errors import HeadscopeError

MaxLength = Annotated[
    int | None,
    typer.Option(
        help="Tokens a sequence may have",
        show_default="what the model's files state for texts that become vectors (stsb, retrieval); else what the "
        "model can read, at most 512 (squad: windows of 384)",
    ),
]
TaskName = Annotated[
    str,
    typer.Option(
        "--task",
        help=f"{', '.join(TASKS[:-1])} or {TASKS[-1]}",
        show_default=False,
    ),
]
Data = Annotated[
    str,
    typer.Option(
        help="A file (tsv, csv, jsonl, SQuAD json, text), a directory with train, dev and test files, or a data set by "
        "id (datasets:nyu-mll/glue:mnli); for translation and bleu also two files with a comma between",
        show_default=False,
    ),
]
Columns = Annotated[
    str | None,
    typer.Option(
        help="What the data calls our columns, as in premise=sentence_a,label=gold",
        show_default=False,
    ),
]
Labels = Annotated[
    str | None,
    typer.Option(
        help="What we call the data's labels, as in entails=entailment,0=neutral",
        show_default=False,
    ),
]
TrainLimit = Annotated[
    int | None,
    typer.Option(
        help="Only so many examples to train on, evenly spread over the file", show_default="all"
    ),
]
BatchSize = Annotated[int, typer.Option(help="Sequences at a time")]


def pairs_of(given: str | None, where: str) -> dict[str, str]:
    """a=b,c=d as a dictionary."""
    found: dict[str, str] = {}
    for word in [] if given is None else given.split(","):
        name, equals, value = (part.strip() for part in word.partition("="))
        if not (name and equals and value):
            raise HeadscopeError(
                f'"{word}" is not NAME=NAME', where=where, expected="such as a=b,c=d"
            )
        found[name] = value
    return found


def numbers_of(given: str, where: str) -> tuple[int, ...]:
    """3,10,20 as numbers."""
    words = [word.strip() for word in given.split(",")]
    if not all(word.isdigit() for word in words):
        raise HeadscopeError(
            f'"{given}" is no list of numbers', where=where, expected="such as 3,10,20"
        )
    return tuple(int(word) for word in words)
