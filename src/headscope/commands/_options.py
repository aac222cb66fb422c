"""Options that several commands share, and what they print while they work."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from headscope.commands._flags import to_flags
from headscope.progress import is_first_process, progress

if TYPE_CHECKING:
    from headscope.study.study import Study

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A named model (headscope models), a directory, or a hub id",
        show_default=False,
    ),
]

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table")]


def typed() -> str:
    """The command as it was typed, for the run record."""
    return shlex.join(["headscope", *sys.argv[1:]])


def say(line: str) -> None:
    """A line for a person, on stderr: results alone go to stdout. Of several processes the first speaks."""
    if is_first_process():
        print(to_flags(line), file=sys.stderr, flush=True)


@contextmanager
def drawing_figures() -> Iterator[None]:
    """Says that figures are drawn in here, and how far it is where that takes long."""
    from headscope.report.rendered_figures import progress_callbacks

    say("drawing figures")
    with progress("drawing figures") as update, progress_callbacks(update, say):
        yield


def note_few_texts(study: Study) -> None:
    """The warning that the page has, where there are too few texts for the intervals."""
    from headscope.report.run_facts import ENOUGH_TEXTS, few_texts

    if (few := few_texts(study)) is not None:
        texts = "text" if few == 1 else "texts"
        say(f"note: only {few} {texts}: the intervals are too narrow. Take {ENOUGH_TEXTS} or more")
