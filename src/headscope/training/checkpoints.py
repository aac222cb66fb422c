"""Checkpoints: models that are saved during a training. Which steps are saved, writing and finding them."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np

from headscope.errors import HeadscopeError
from headscope.model.attention_model import AttentionModel
from headscope.model.saving import write_model

FOLDER = "checkpoints"
EARLIEST = 0.01  # position of the second checkpoint, as a share of all steps
_NAME = re.compile(r"step-(\d{6,})")


def steps_to_keep(total: int, count: int) -> list[int]:
    """`count` steps: 0, and steps with geometric spacing from a hundredth of the training to its last step.

    Steps that coincide after rounding are moved to the next free ones.
    """
    if not 2 <= count <= total + 1:
        what = f"a training of {total} steps can keep 2 to {total + 1} checkpoints, got {count}"
        raise HeadscopeError(what, where="`checkpoints`")
    first = max(1.0, EARLIEST * total) if count > 2 else float(total)
    steps = [0]
    for index, step in enumerate(np.geomspace(first, total, count - 1)):
        latest = total - (count - 2 - index)  # leaves a step for each of the remaining checkpoints
        steps.append(min(max(steps[-1] + 1, round(step)), latest))
    return steps


def write_checkpoint(model: AttentionModel, folder: Path, step: int) -> None:
    """Write the model to the directory of this step, which is complete or absent."""
    final = folder / FOLDER / f"step-{step:06d}"
    temporary = final.with_name(f".{final.name}")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    write_model(model, temporary)
    shutil.rmtree(final, ignore_errors=True)
    temporary.rename(final)


def drop_checkpoints(folder: Path, after: int) -> None:
    """Delete the checkpoints of steps later than `after`; a resumed run writes them again."""
    for step, path in _find_checkpoints(folder):
        if step > after:
            shutil.rmtree(path)


def read_checkpoints(trained: str | Path) -> list[tuple[int, Path]]:
    """(step, directory) of each checkpoint of a trained model, in order."""
    if not Path(trained).is_dir():
        raise HeadscopeError(
            "there is no such directory", where=trained, expected="a model trained by headscope"
        )
    checkpoints = _find_checkpoints(Path(trained))
    if len(checkpoints) < 2:
        number = "only one checkpoint" if checkpoints else "no checkpoints"
        what = f"a trained model must have two checkpoints or more, got {number}"
        raise HeadscopeError(what, where=trained, fix="Train it with `checkpoints=N`")
    return checkpoints


def _find_checkpoints(folder: Path) -> list[tuple[int, Path]]:
    matches = ((_NAME.fullmatch(path.name), path) for path in (folder / FOLDER).glob("step-*"))
    return sorted((int(match[1]), path) for match, path in matches if match)
