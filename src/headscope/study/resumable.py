"""Training that can be killed at any step: its state in a folder, and going on from it to the same result."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from headscope.drafts import drafted
from headscope.study.journal import check_same_run
from headscope.training.loop import Step, Training

STATE, BEST = "state.pt", "best.pt"
EVERY = 120.0  # seconds between saved states: what a kill can cost


class Resumable:
    """A training with its folder. `told` is what was found so far, as JSON can say it: it is saved with every state."""

    def __init__(self, training: Training, folder: Path, header: dict[str, Any]) -> None:
        self.training, self.folder = training, folder
        self.header: dict[str, Any] = json.loads(json.dumps(header))
        self.told: dict[str, Any] = {}

    def restore(self) -> None:
        """Take up the state that is there, if there is one; a run of other options is refused."""
        if not (self.folder / STATE).exists():
            return
        state = torch.load(self.folder / STATE, weights_only=True)
        left = json.loads(state.pop("told"))
        check_same_run(left["header"], self.header, self.folder / STATE)
        self.training.restore(state)
        self.told = left["told"]

    def steps(self) -> Iterator[Step]:
        """The steps, with the state saved every two minutes; whoever asks saves at the end of an epoch."""
        last = time.monotonic()
        for step in self.training:
            yield step
            if self.training.agree(time.monotonic() - last > EVERY) and not step.ends_epoch:
                self.save()
                last = time.monotonic()

    def save(self) -> None:
        told = json.dumps({"header": self.header, "told": self.told})
        state = self.training.state() | {"told": told}
        if self.training.accelerator.is_main_process:
            write_whole(state, self.folder / STATE)


@contextmanager
def draft(
    training: Training, out: str | Path, *, overwrite: bool, resume: bool, record: str, kept: tuple[str, ...] = ()
) -> Iterator[Path]:
    """The folder to write into. With several processes the first alone makes and fills it."""
    accelerator = training.accelerator
    if accelerator.is_main_process:
        with drafted(out, overwrite=overwrite, resume=resume, kept=(STATE, BEST, *kept), record=record) as folder:
            accelerator.wait_for_everyone()
            yield folder
    else:
        accelerator.wait_for_everyone()  # what an earlier run left is read after the first has cleared up
        yield Path(f"{out}.partial")


def write_whole(content: Any, path: Path) -> None:
    """Whole or not there: a kill while it is written leaves the one before."""
    beside = path.with_suffix(".tmp")
    torch.save(content, beside)
    beside.replace(path)
