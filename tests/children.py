"""Commands in processes of their own that can be killed: forked from one that has imported everything already.

finished(folder, "importance", "bert", …)            # to its end, or a failure with what it said
killed(folder, "importance", "bert", …, after=5)     # kill -9 after five changes of files in OUT.partial

A child kills itself when it is about to make the next change, so that nothing depends on how fast it runs.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(
    ["headscope.commands", "transformers.models.bert.modeling_bert", "pandas", "accelerate"]
)
LOG = "said.txt"
LONGEST = 600  # seconds, for a child that hangs


def begun(folder: Path, *words: str, after: int | None = None) -> ForkServerProcess:
    child = _context.Process(target=_command, args=(str(folder), words, after), daemon=True)
    child.start()
    return child


def finished(folder: Path, *words: str) -> None:
    child = begun(folder, *words)
    child.join(LONGEST)
    assert child.exitcode == 0, (folder / LOG).read_text("utf-8")


def killed(folder: Path, *words: str, after: int) -> bool:
    """Run until so many changes were made in OUT.partial, and kill; False if it ended before."""
    child = begun(folder, *words, after=after)
    child.join(LONGEST)
    assert child.exitcode in (0, -signal.SIGKILL), (folder / LOG).read_text("utf-8")
    return child.exitcode != 0


def _die_after(changes: int) -> None:
    """Kill this process at the change after these: a file opened for writing, renamed or removed in OUT.partial."""
    made = 0

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal made
        if event not in ("open", "os.rename", "os.remove") or ".partial" not in str(arguments[0]):
            return
        if event == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR):
            return
        made += 1
        if made > changes:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)


def _command(folder: str, words: tuple[str, ...], after: int | None) -> None:
    """What the child does. Sweeps go in many small blocks and training saves its state every step."""
    os.chdir(folder)
    log = os.open(LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ |= {"HF_HUB_OFFLINE": "1", "HEADSCOPE_OFFLINE": "1"}
    import torch

    from headscope import commands
    from headscope.ablation import sweep
    from headscope.training import resumable

    torch.set_num_threads(1)
    sweep.MEMORY = 1
    resumable.EVERY = -1.0
    sys.argv = ["headscope", *words]
    if after is not None:
        _die_after(after)
    commands.main()


def bytes_of(folder: Path) -> dict[str, bytes]:
    """Every file by its path in the folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
