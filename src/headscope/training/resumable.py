"""Training that can be killed at any step: its state in a folder, and going on from it to the same result."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from headscope.atomic_dir import atomic_directory
from headscope.config.shared import Run
from headscope.errors import HeadscopeError
from headscope.study.journal import check_same_run
from headscope.training.checkpoints import FOLDER, drop_checkpoints, steps_to_keep, write_checkpoint
from headscope.training.loop import Diverged, Step, Training
from headscope.training.result import RECORD

STATE, BEST = "state.pt", "best.pt"
DIVERGED = "diverged.json"  # beside the state of a run whose loss became NaN after it
EVERY = 120.0  # seconds between saved states: what a kill can cost


class Resumable:
    """A training with its folder. `told` is what was found so far, as JSON can say it: it is saved with every state.

    checkpoints  so many models along the way, for those who want to look back
    may_slow     after a loss that is NaN it may go on from its last state with a smaller learning rate
    """

    def __init__(
        self,
        training: Training,
        folder: Path,
        header: dict[str, Any],
        *,
        checkpoints: int | None = None,
        may_slow: bool = False,
    ) -> None:
        self.training, self.folder, self.may_slow = training, folder, may_slow
        self.header: dict[str, Any] = json.loads(json.dumps(header))
        self.told: dict[str, Any] = {}
        count = checkpoints
        self.to_keep = set() if count is None else set(steps_to_keep(training.total, count))
        self._is_main = training.accelerator.is_main_process
        self._saved: int | None = None  # the step of the state on disk

    def restore(self, say: Callable[[str], None] = lambda line: None) -> None:
        """Take up the state that is there, if there is one; a run of other options is refused."""
        if (self.folder / STATE).exists():
            state = torch.load(self.folder / STATE, weights_only=True)
            left = json.loads(state.pop("told"))
            lost = self._read_note(left.get("learning_rate"))
            self._check(left["header"], lost)
            self.training.restore(state)
            self.told, self._saved = left["told"], self.training.number
            say(f"going on from step {self.training.number} of {self.training.total}")
            if lost:
                self._begin_again(lost)
        if self._is_main:
            drop_checkpoints(self.folder, after=-1 if self._saved is None else self._saved)

    def _read_note(self, rate: float | None) -> dict[str, Any]:
        """The note that this run left when its loss became NaN; empty if there is none. rate: of the saved state."""
        if not (self.folder / DIVERGED).exists():
            return {}
        note: dict[str, Any] = json.loads((self.folder / DIVERGED).read_text("utf-8"))
        return note if note["learning_rate"] == rate else {}

    def _check(self, then: dict[str, Any], lost: dict[str, Any]) -> None:
        """Refuse another run. After a loss that was NaN, a smaller learning rate is the same run."""
        now = self.header
        if lost:
            if self.training.settings.learning_rate >= lost["learning_rate"]:
                what = f"{lost['what']} with a rate of {lost['learning_rate']:g}"
                raise HeadscopeError(what, where="`learning_rate`", expected="a smaller one")
            then, now = _without_rate(then), _without_rate(now)
        check_same_run(then, now, self.folder / STATE)

    def _begin_again(self, lost: dict[str, Any]) -> None:
        """Remember what went wrong; from here on it is the run of the smaller rate."""
        self.told.setdefault("diverged", []).append({**lost, "resumed_from": self.training.number})
        self.save()  # when this is done, every process has read the note
        if self._is_main:
            (self.folder / DIVERGED).unlink()

    def steps(self) -> Iterator[Step]:
        """The steps, with the state saved every two minutes; whoever asks saves at the end of an epoch."""
        last = time.monotonic()
        self._keep(self.training.number)
        try:
            for step in self.training:
                self._keep(step.number)
                yield step
                if self.training.agree(time.monotonic() - last > EVERY) and not step.ends_epoch:
                    self.save()
                    last = time.monotonic()
        except Diverged as error:
            if self.may_slow and self._saved is not None:
                self._note(error)
            raise

    def _keep(self, number: int) -> None:
        if self._is_main and number in self.to_keep:
            write_checkpoint(self.training.model, self.folder, number)

    def _note(self, error: Diverged) -> None:
        """Say what is left to go on from: the state on disk is from before, and stays."""
        rate = self.training.settings.learning_rate
        error.fix = (
            f"The state of step {self._saved} is kept: go on from it with `resume=True` and a smaller `learning_rate` "
            f"than {rate:g}"
        )
        if self._is_main:
            note = {"what": error.what, "learning_rate": rate}
            (self.folder / DIVERGED).write_text(json.dumps(note), "utf-8")

    def save(self) -> None:
        rate = self.training.settings.learning_rate
        told = json.dumps({"header": self.header, "told": self.told, "learning_rate": rate})
        state = self.training.state() | {"told": told}
        if self._is_main:
            write_whole(state, self.folder / STATE)
        self._saved = self.training.number


def _without_rate(header: Any) -> Any:
    """A header without its learning rate, wherever it is nested."""
    if not isinstance(header, dict):
        return header
    return {name: _without_rate(value) for name, value in header.items() if name != "learning_rate"}


@contextmanager
def resumable_run(
    training: Training, run: Run, header: dict[str, Any], checkpoints: int | None
) -> Iterator[Resumable]:
    """A training with its folder, restored with `run.resume`. The folder becomes `run.out`; without it is temporary.

    With several processes only the first creates and fills it. The files of the training state are deleted at the end.
    """
    accelerator = training.accelerator

    def open_in(folder: Path) -> Resumable:
        resumable = Resumable(training, folder, header, checkpoints=checkpoints, may_slow=True)
        if run.resume:
            resumable.restore(run.log)
        return resumable

    if accelerator.is_main_process:
        states = (STATE, BEST, DIVERGED)
        kept, overwrite, resume = (*states, FOLDER), run.overwrite, run.resume
        with atomic_directory(
            run.out, overwrite=overwrite, resume=resume, keep=kept, record=RECORD
        ) as folder:
            accelerator.wait_for_everyone()
            yield open_in(folder)
            for name in states:
                (folder / name).unlink(missing_ok=True)
    else:
        accelerator.wait_for_everyone()  # what an earlier run left is read after the first has cleared up
        yield open_in(Path(f"{run.out}.partial"))


def write_whole(content: Any, path: Path) -> None:
    """Whole or not there: a kill while it is written leaves the one before."""
    beside = path.with_suffix(".tmp")
    torch.save(content, beside)
    beside.replace(path)
