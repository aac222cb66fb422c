"""Arguments that several commands share, and messages while they work."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headscope.commands._flags import to_flags
from headscope.config.shared import Run
from headscope.progress import is_first_process, progress

if TYPE_CHECKING:
    from headscope.study.study import Study


def argument(metavar: str, help: str) -> Any:
    """A positional argument of a command."""
    return typer.Argument(metavar=metavar, help=help, show_default=False)


Model = Annotated[
    str,
    argument(
        "MODEL",
        "Model: a name (see headscope models), a directory, or an id on the Hugging Face hub",
    ),
]

AsJson = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object")]


def print_json(record: Any) -> None:
    """Print a result as one JSON object on stdout."""
    typer.echo(json.dumps(record, ensure_ascii=False, default=str))


def typed_command() -> str:
    """The command as it was typed, for the run record."""
    return shlex.join(["headscope", *sys.argv[1:]])


def say(line: str) -> None:
    """Print a line for a person on stderr (stdout is for results); of several processes only the first does."""
    if is_first_process():
        print(to_flags(line), file=sys.stderr, flush=True)


def print_page_path(run: Run) -> None:
    """Print the path of the page that was written, the last line of a command."""
    typer.echo(f"{run.out}/index.html")


@contextmanager
def showing_progress(name: str, run: Run) -> Iterator[Run]:
    """The run with a progress display on stderr. name: shown in front of the display."""
    with progress(name) as update:
        yield replace(run, progress=update)


@contextmanager
def drawing_figures(run: Run | None = None) -> Iterator[None]:
    """Draw figures inside this context with a message and a progress display; with `run.no_figures` draw none."""
    from headscope.report.rendered_figures import progress_callbacks, without_figures

    if run is not None and run.no_figures:
        with without_figures():
            yield
        return
    say("drawing figures")
    with progress("drawing figures") as update, progress_callbacks(update, say):
        yield


def note_few_texts(study: Study) -> None:
    """Print a note if the study has too few texts for its intervals; the page has the same note."""
    from headscope.report.run_facts import ENOUGH_TEXTS, few_texts

    if (few := few_texts(study)) is not None:
        texts = "text" if few == 1 else "texts"
        say(f"note: only {few} {texts}: the intervals are too narrow. Take {ENOUGH_TEXTS} or more")
