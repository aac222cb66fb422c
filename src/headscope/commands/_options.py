"""Options that several commands share, and what they print while they work."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from headscope.commands._flags import to_flags
from headscope.config.poolings import checked_pooling

if TYPE_CHECKING:
    from headscope.model.attention_model import AttentionModel
    from headscope.model.edits import Edit
    from headscope.study.study import Study

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A named model (headscope models), a directory, or a hub id",
        show_default=False,
    ),
]
Revision = Annotated[
    str | None,
    typer.Option(
        help="A hub model's branch, tag or commit; MODEL@REVISION says the same",
        show_default="main",
    ),
]
Pairs = Annotated[
    bool,
    typer.Option(
        "--pairs", help="The corpus holds pairs of texts; for translation, source and target"
    ),
]
Column = Annotated[
    str | None,
    typer.Option(
        "--column",
        "--fields",
        help="Column of a csv, tsv or jsonl corpus that holds the texts, such as smiles; two with --pairs, such as "
        "source,target (--fields is the old name)",
        metavar="NAME",
        show_default="text; a,b with --pairs",
    ),
]
MaxLength = Annotated[
    int | None,
    typer.Option(
        help="Tokens a sequence may have", show_default="what the model can read, at most 512"
    ),
]
Device = Annotated[str, typer.Option(help="auto (a GPU if there is one), cpu, cuda, cuda:1, mps …")]
Dtype = Annotated[
    str, typer.Option(help="Precision to compute in: float32, float64, bfloat16 or float16")
]
MaskName = Annotated[
    str | None,
    typer.Option(
        "--mask",
        help="Attend only where this mask lets: star, window:width=8 … (headscope masks), or a file such as mask.npz",
        show_default="none",
    ),
]
OpenSpecial = Annotated[
    bool,
    typer.Option("--open-special", help="Under a mask: special tokens see all and are seen by all"),
]
Pooling = Annotated[
    str | None,
    typer.Option(
        "--pooling",
        callback=checked_pooling,
        help="How token states become one vector of a text: mean, first (or cls), last (or lasttoken), max, "
        "mean_sqrt_len or weightedmean",
        show_default="as the model's files state",
    ),
]
Prompt = Annotated[
    str | None,
    typer.Option(
        "--prompt",
        help="Text put before every text that becomes a vector, or the name of one of the model's prompts",
        show_default="as the model's files state",
    ),
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace a study that is already there")
]

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table")]


def typed() -> str:
    """The command as it was typed, for the run record."""
    return shlex.join(["headscope", *sys.argv[1:]])


def say(line: str) -> None:
    """A line for a person, on stderr: results alone go to stdout. Of several processes the first speaks."""
    if is_first():
        print(to_flags(line), file=sys.stderr, flush=True)


def is_first() -> bool:
    """Whether this is the only process, or the first that torchrun started."""
    return os.environ.get("RANK", "0") == "0"


def separated(names: str | None) -> tuple[str, ...] | None:
    """The names in a list with commas; None where no list was given."""
    return None if names is None else tuple(name.strip() for name in names.split(","))


def load_aloud(
    model: str,
    revision: str | None,
    device: str,
    dtype: str,
    model_class: str | None = None,
    mask: str | None = None,
    open_special: bool = False,
    pooling: str | None = None,
    prompt: str | None = None,
) -> AttentionModel:
    """The model, with a mask put on if there is one, after saying what its user should know."""
    from headscope.model.load import load

    worn = masked(mask, open_special)
    loaded = load(
        model,
        revision=revision,
        device=device,
        dtype=dtype,
        model_class=model_class,
        pooling=pooling,
        prompt=prompt,
        say=say,
    )
    for note in loaded.notes:
        say(f"note: {note}")
    return loaded.wear(*worn)


def masked(mask: str | None, open_special: bool) -> list[Edit]:
    """The mask to wear, if there is one."""
    from headscope.masks import Masked

    return [] if mask is None else [Masked(mask, open_special=open_special)]


class Update(Protocol):
    """So many of so many are done. part: of what, where the work has several parts, as in `keep-20, steps`."""

    def __call__(self, done: int, total: int, part: str = "") -> None: ...


@contextmanager
def progress(what: str) -> Iterator[Update]:
    """A bar with rate and time left on a terminal; plain lines, a few in all, elsewhere."""
    if not is_first():
        yield lambda done, total, part="": None
        return
    if not sys.stderr.isatty():
        yield _plain(what)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (
        TextColumn("{task.description}", markup=False),  # a directory may be called [/]
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[pace]}"),
    )
    pace = _Pace()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None, pace="")

        def update(done: int, total: int, part: str = "") -> None:
            if pace.is_new(done, total):
                bar.reset(task)
            pace(done, total)
            bar.update(
                task, completed=done, total=total, pace=pace.text, description=_named(what, part)
            )

        yield update


@contextmanager
def drawing_figures() -> Iterator[None]:
    """Says that figures are drawn in here, and how far it is where that takes long."""
    from headscope.report.rendered_figures import telling

    say("drawing figures")
    with progress("drawing figures") as update, telling(update, say):
        yield


def report_aloud(update: Update) -> Callable[[Study, Path], None]:
    """Writes a study's figures and page, and says so. update: the progress that is shown already."""

    def write(study: Study, folder: Path) -> None:
        from headscope.report.rendered_figures import telling
        from headscope.report.write import write_report

        say("drawing figures")
        with telling(lambda done, total: update(done, total, "figures"), say):
            write_report(study, folder)

    return write


def note_few_texts(study: Study) -> None:
    """The warning that the page has, where there are too few texts for the intervals."""
    from headscope.report.run_facts import ENOUGH_TEXTS, few_texts

    if (few := few_texts(study)) is not None:
        texts = "text" if few == 1 else "texts"
        say(f"note: only {few} {texts}: the intervals are too narrow. Take {ENOUGH_TEXTS} or more")


def _named(what: str, part: str) -> str:
    return f"{what}, {part}" if part else what


def _plain(what: str) -> Update:
    last, pace, is_long = time.monotonic(), _Pace(), False

    def update(done: int, total: int, part: str = "") -> None:
        nonlocal last, is_long
        is_long = is_long and not pace.is_new(done, total)
        now = time.monotonic()
        pace(done, total)
        if now - last < 10 and not (is_long and done == total):
            return  # what is over at once is not worth a line
        last, is_long = now, True
        say(f"{_named(what, part)}: {done} of {total}{', ' if pace.text else ''}{pace.text}")

    return update


LEAST_SHARE, LEAST, MOST = (
    0.05,
    5,
    50,
)  # of a part must be timed before the time left is told: a share, 5 to 50 items


class _Pace:
    """How many a second in this part of the work; another total, or fewer done, is another part.

    text  rate and time left; empty until enough is done to tell
    """

    text = ""

    def __init__(self) -> None:
        self.started = self.last = time.monotonic()
        self.begun = self.done = self.total = 0

    def is_new(self, done: int, total: int) -> bool:
        return total != self.total or done < self.done

    def __call__(self, done: int, total: int) -> float:
        now = time.monotonic()
        if self.is_new(done, total):
            self.started, self.begun = self.last, 0  # when the part before was heard of last
        elif self.begun == 0:
            self.started, self.begun = (
                self.last,
                self.done,
            )  # what was first heard of may be what a run goes on from
        self.done, self.total, self.last = done, total, now
        timed = done - self.begun
        rate = max(timed, 1) / max(now - self.started, 1e-3)
        is_known = self.begun > 0 and timed >= max(LEAST, min(LEAST_SHARE * total, MOST))
        each = f"{rate:.1f}/s" if rate >= 1 else f"{1 / rate:.1f} s each"
        seconds = (total - done) / rate
        left = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
        self.text = f"{each}, {left} left" if is_known else ""
        return rate
