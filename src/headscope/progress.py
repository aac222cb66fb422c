"""Progress of long work: a bar with rate and remaining time on a terminal, a few plain lines elsewhere.

with progress("minilm") as update:
    headscope.analyze(model, texts, progress=update)
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

SECONDS_BETWEEN_LINES = 10
# The remaining time is shown once 5 % of the items of a part are timed, but at least 5 and at most 50 items.
LEAST_SHARE, LEAST_ITEMS, MOST_ITEMS = 0.05, 5, 50


class ProgressUpdate(Protocol):
    """Called with finished and total items. part: name of the part of the work, such as `keep-20, steps`."""

    def __call__(self, done: int, total: int, part: str = "") -> None: ...


def is_first_process() -> bool:
    """Whether this is the only process, or the first that torchrun started."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def progress(title: str) -> Iterator[ProgressUpdate]:
    """Show progress on stderr: a bar on a terminal, a few lines elsewhere, nothing in other processes of torchrun."""
    if not is_first_process():
        yield lambda done, total, part="": None
        return
    if not sys.stderr.isatty():
        yield _plain_lines(title)
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
        task = bar.add_task(title, total=None, pace="")

        def update(done: int, total: int, part: str = "") -> None:
            if pace.is_new_part(done, total):
                bar.reset(task)
            pace.update(done, total)
            description = f"{title}, {part}" if part else title
            bar.update(task, completed=done, total=total, pace=pace.text, description=description)

        yield update


def _plain_lines(title: str) -> ProgressUpdate:
    """Lines at most every ten seconds, and a final line for a part that took longer than that."""
    last_line, pace, is_long = time.monotonic(), _Pace(), False

    def update(done: int, total: int, part: str = "") -> None:
        nonlocal last_line, is_long
        is_long = is_long and not pace.is_new_part(done, total)
        now = time.monotonic()
        pace.update(done, total)
        if now - last_line < SECONDS_BETWEEN_LINES and not (is_long and done == total):
            return
        last_line, is_long = now, True
        rate = f", {pace.text}" if pace.text else ""
        name = f"{title}, {part}" if part else title
        print(f"{name}: {done} of {total}{rate}", file=sys.stderr, flush=True)

    return update


class _Pace:
    """Rate within one part of the work; another total, or fewer finished items, starts another part.

    text  rate and remaining time; empty until enough is timed
    """

    text = ""

    def __init__(self) -> None:
        self.start = self.last = time.monotonic()
        self.done = self.total = 0
        # Items of this part that were done when timing started; 0: timing has not started.
        self.done_at_start = 0

    def is_new_part(self, done: int, total: int) -> bool:
        return total != self.total or done < self.done

    def update(self, done: int, total: int) -> None:
        now = time.monotonic()
        if self.is_new_part(done, total):
            self.start, self.done_at_start = self.last, 0
        elif self.done_at_start == 0:
            # Timing starts after the first call of a part, since its items may have been finished by an earlier run.
            self.start, self.done_at_start = self.last, self.done
        self.done, self.total, self.last = done, total, now
        timed = done - self.done_at_start
        rate = max(timed, 1) / max(now - self.start, 1e-3)
        enough = max(LEAST_ITEMS, min(LEAST_SHARE * total, MOST_ITEMS))
        if self.done_at_start == 0 or timed < enough:
            self.text = ""
            return
        each = f"{rate:.1f}/s" if rate >= 1 else f"{1 / rate:.1f} s each"
        seconds = (total - done) / rate
        remaining = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
        self.text = f"{each}, {remaining} left"
