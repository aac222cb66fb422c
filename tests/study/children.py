"""Commands in processes of their own that can be killed: forked from one that has imported everything already.

child = begun(folder, "importance", "bert", …)       # in `folder`; child.kill() is kill -9
finished(folder, "importance", "bert", …)            # to its end, or a failure with what it said
"""

from __future__ import annotations

import multiprocessing
import os
import random
import sys
import time
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from pathlib import Path

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(
    ["headscope.commands", "transformers.models.bert.modeling_bert", "pandas", "accelerate"]
)
LOG = "said.txt"


def begun(folder: Path, *words: str) -> ForkServerProcess:
    child = _context.Process(target=_command, args=(str(folder), words), daemon=True)
    child.start()
    return child


def finished(folder: Path, *words: str) -> None:
    child = begun(folder, *words)
    child.join(120)
    assert child.exitcode == 0, (folder / LOG).read_text("utf-8")


def killed(child: ForkServerProcess, moment: Callable[[], bool], chance: random.Random, longest: float) -> bool:
    """Wait for the moment, then up to so many seconds more, and kill; whether it was still running."""
    while child.is_alive() and not moment():
        time.sleep(0.004)
    child.join(chance.uniform(0, longest))
    child.kill()
    child.join()
    assert child.exitcode is not None
    assert child.exitcode <= 0, f"it ended by itself with {child.exitcode}"
    return child.exitcode < 0


def _command(folder: str, words: tuple[str, ...]) -> None:
    """What the child does. Sweeps go in many small blocks and training saves its state every step."""
    os.chdir(folder)
    said = os.open(LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(said, 1)
    os.dup2(said, 2)
    os.environ |= {"HF_HUB_OFFLINE": "1", "HEADSCOPE_OFFLINE": "1"}
    import torch

    from headscope import commands
    from headscope.importances import sweep
    from headscope.study import resumable

    torch.set_num_threads(1)
    sweep.MEMORY = 1
    resumable.EVERY = -1.0
    sys.argv = ["headscope", *words]
    commands.main()


def bytes_of(folder: Path) -> dict[str, bytes]:
    """Every file by its path in the folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
