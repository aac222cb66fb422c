"""Models along the way of a training: which steps, writing them, and finding them again."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np

from headscope.errors import HeadscopeError
from headscope.model.attention_model import AttentionModel
from headscope.model.saving import write_model

FOLDER = "checkpoints"
EARLIEST = 0.01  # the share of the steps at which the second checkpoint stands
_NAME = re.compile(r"step-(\d{6,})")


def steps_to_keep(total: int, count: int) -> list[int]:
    """`count` steps: 0, before any training, and from a hundredth of all to the last, by their logarithm.

    Where that would name a step twice the next ones are taken.
    """
    if not 2 <= count <= total + 1:
        what = f"{count} cannot be kept of {total} steps"
        raise HeadscopeError(what, where="`checkpoints`", expected=f"2 to {total + 1}")
    first = max(1.0, EARLIEST * total) if count > 2 else float(total)
    spread = np.geomspace(first, total, count - 1)
    found = [0]
    for place, step in enumerate(spread):
        latest = total - (count - 2 - place)  # the others need a step each
        found.append(min(max(found[-1] + 1, round(step)), latest))
    return found


def write_checkpoint(model: AttentionModel, folder: Path, step: int) -> None:
    """A model directory for this step; whole or not there."""
    place = folder / FOLDER / f"step-{step:06d}"
    beside = place.with_name(f".{place.name}")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    write_model(model, beside)
    shutil.rmtree(place, ignore_errors=True)
    beside.rename(place)


def drop_checkpoints(folder: Path, after: int) -> None:
    """Throw away those of later steps: a run that goes on makes them again."""
    for step, place in _found(folder / FOLDER):
        if step > after:
            shutil.rmtree(place)


def read_checkpoints(trained: str | Path) -> list[tuple[int, Path]]:
    """(step, directory) of a trained model, in the order of the steps."""
    if not Path(trained).is_dir():
        raise HeadscopeError(
            "there is no such directory", where=trained, expected="a model trained by headscope"
        )
    found = _found(Path(trained) / FOLDER)
    if len(found) < 2:
        raise HeadscopeError(
            "no checkpoints here" if not found else "only one checkpoint here",
            where=trained,
            expected="a model trained with `checkpoints=N`",
        )
    return found


def _found(folder: Path) -> list[tuple[int, Path]]:
    places = folder.iterdir() if folder.is_dir() else ()
    named = [(match, place) for place in places if (match := _NAME.fullmatch(place.name))]
    return sorted((int(match[1]), place) for match, place in named)
