"""Training that can be stopped at any step. Its state is saved in a folder; a resumed run ends with the same result."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from headscope.atomic_dir import atomic_directory
from headscope.config.shared import Run, no_log
from headscope.errors import HeadscopeError
from headscope.study.journal import check_same_run
from headscope.training.checkpoints import FOLDER, drop_checkpoints, steps_to_keep, write_checkpoint
from headscope.training.loop import Diverged, Step, Training
from headscope.training.result import RECORD, Divergence, History

STATE, BEST = "state.pt", "best.pt"
DIVERGED = "diverged.json"  # written if the loss became NaN after the last saved state
EVERY = 120.0  # seconds between saved states: at most the work of this time is lost


class Resumable:
    """A training whose state is saved in a folder.

    header       options and inputs of the run; a run is resumed only if its header is equal
    history      losses and metrics that were recorded so far; saved with every state
    checkpoints  number of models to keep during the training
    may_slow     whether a run whose loss became NaN may resume from its last state with a smaller learning rate
    """

    def __init__(
        self,
        training: Training,
        folder: Path,
        header: Mapping[str, object],
        *,
        checkpoints: int | None = None,
        may_slow: bool = False,
    ) -> None:
        self.training, self.folder, self.may_slow = training, folder, may_slow
        self.header: dict[str, Any] = json.loads(json.dumps(header))
        self.history: History = {}
        total = training.total
        self.checkpoint_steps = (
            set() if checkpoints is None else set(steps_to_keep(total, checkpoints))
        )
        self._rate = training.settings.learning_rate
        self._is_main = training.accelerator.is_main_process
        self._saved: int | None = None  # the step of the state on disk

    def restore(self, log: Callable[[str], None] = no_log) -> None:
        """Restore the saved state, if there is one; a run with other options is refused."""
        if (self.folder / STATE).exists():
            state = torch.load(self.folder / STATE, weights_only=True)
            run = json.loads(state.pop("run"))
            divergence = self._read_divergence(run["learning_rate"])
            self._check(run["header"], divergence)
            self.training.restore(state)
            self.history, self._saved = run["history"], self.training.number
            log(f"going on from step {self.training.number} of {self.training.total}")
            if divergence is not None:
                self._restart(divergence)
        if self._is_main:
            drop_checkpoints(self.folder, after=-1 if self._saved is None else self._saved)

    def _read_divergence(self, rate: float) -> Divergence | None:
        """The note that this run wrote when its loss became NaN, if it did. rate: learning rate of the saved state."""
        if not (self.folder / DIVERGED).exists():
            return None
        note: Divergence = json.loads((self.folder / DIVERGED).read_text("utf-8"))
        return note if note["learning_rate"] == rate else None

    def _check(self, saved: dict[str, Any], divergence: Divergence | None) -> None:
        """Raise an error if the saved state is of another run. After a loss of NaN, the rate may be smaller."""
        header = self.header
        if divergence is not None:
            check_smaller_rate(self._rate, divergence)
            saved, header = _without_rate(saved), _without_rate(header)
        check_same_run(saved, header, self.folder / STATE)

    def _restart(self, divergence: Divergence) -> None:
        """Add the divergence to the history, and save the state with the smaller learning rate."""
        note: Divergence = {**divergence, "resumed_from": self.training.number}
        self.history.setdefault("diverged", []).append(note)
        self.save()  # processes wait for each other here: afterwards all have read the note
        if self._is_main:
            (self.folder / DIVERGED).unlink()

    def steps(self) -> Iterator[Step]:
        """Train step by step; saves the state every two minutes. At the end of an epoch the caller must save it."""
        last = time.monotonic()
        self._write_checkpoint(self.training.number)
        try:
            for step in self.training:
                self._write_checkpoint(step.number)
                yield step
                if (
                    self.training.any_process(time.monotonic() - last > EVERY)
                    and not step.ends_epoch
                ):
                    self.save()
                    last = time.monotonic()
        except Diverged as error:
            if self.may_slow and self._saved is not None:
                self._note_divergence(error)
            raise

    def _write_checkpoint(self, step: int) -> None:
        if self._is_main and step in self.checkpoint_steps:
            write_checkpoint(self.training.model, self.folder, step)

    def _note_divergence(self, error: Diverged) -> None:
        """Add to the error how to resume from the saved state, and write the note that allows a smaller rate."""
        error.fix = (
            f"The state of step {self._saved} is kept: go on from it with `resume=True` and a smaller `learning_rate` "
            f"than {self._rate:g}"
        )
        if self._is_main:
            write_divergence(error, self._rate, self.folder)

    def save(self) -> None:
        """Save the state, the history and the header."""
        run = {"header": self.header, "history": self.history, "learning_rate": self._rate}
        state = self.training.state()
        state["run"] = json.dumps(run)
        if self._is_main:
            save_atomically(state, self.folder / STATE)
        self._saved = self.training.number


def check_smaller_rate(rate: float, divergence: Divergence) -> None:
    """Raise an error if a run whose loss became NaN is resumed with the same or a larger learning rate."""
    if rate >= divergence["learning_rate"]:
        what = f"{divergence['what']} with a rate of {divergence['learning_rate']:g}"
        raise HeadscopeError(what, where="`learning_rate`", expected="a smaller one")


def write_divergence(error: Diverged, rate: float, folder: Path) -> None:
    """Write the note that allows a resumed run to have a smaller learning rate."""
    note: Divergence = {"what": error.what, "learning_rate": rate}
    (folder / DIVERGED).write_text(json.dumps(note), "utf-8")


def _without_rate(header: Any) -> Any:
    """The header without its learning rate, which may be nested."""
    if not isinstance(header, dict):
        return header
    return {name: _without_rate(value) for name, value in header.items() if name != "learning_rate"}


@contextmanager
def resumable_run(
    training: Training, run: Run, header: Mapping[str, object], checkpoints: int | None
) -> Iterator[Resumable]:
    """Open a folder for a training; with `run.resume` its state is restored.

    At the end the files of the state are deleted, and the folder becomes `run.out`; without `run.out` it is deleted.
    With several processes, only the first one creates the folder and writes to it.
    """
    accelerator = training.accelerator

    def open_in(folder: Path) -> Resumable:
        resumable = Resumable(training, folder, header, checkpoints=checkpoints, may_slow=True)
        if run.resume:
            resumable.restore(run.log)
        return resumable

    if not accelerator.is_main_process:
        accelerator.wait_for_everyone()  # until the first process has deleted files of an earlier run
        yield open_in(Path(f"{run.out}.partial"))
        return
    states = (STATE, BEST, DIVERGED)
    options = {"overwrite": run.overwrite, "resume": run.resume}
    with atomic_directory(run.out, **options, keep=(*states, FOLDER), record=RECORD) as folder:
        accelerator.wait_for_everyone()
        yield open_in(folder)
        for name in states:
            (folder / name).unlink(missing_ok=True)


def save_atomically(content: Any, path: Path) -> None:
    """Save with torch. If the process is killed while it writes, the previous file is still there."""
    temporary = path.with_suffix(".tmp")
    torch.save(content, temporary)
    temporary.replace(path)
