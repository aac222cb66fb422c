"""A command that is stopped in the middle leaves nothing, or nothing that is in the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_result import Run

from headscope import progress
from headscope.api import analyze as api
from sampling import slow
from waiting import LONGEST

# Without figures, and so slow that there is a middle to be stopped in.
SLOW = """
import signal, sys
from headscope.commands import main
from headscope.report import write as writer
from headscope.analysis import analyze
writer.write_report = lambda study, folder, **options: (folder / "index.html").write_text("")
real = analyze.stream
def slow(*given, **options):
    for batch in real(*given, **options):
        print("in the middle", file=sys.stderr, flush=True)
        signal.pause()
        yield batch
analyze.stream = slow
main()
"""
WORDS = ("analyze", "bert", "--corpus", "good.txt", "--out", "study")


def test_control_c_leaves_nothing(
    work_folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(what: str) -> Any:
        def update(done: int, total: int, part: str = "") -> None:
            assert (work_folder / "study.partial").is_dir(), "the run is in its middle"
            raise KeyboardInterrupt

        return update

    monkeypatch.setattr(progress, "_plain_lines", interrupt)
    output = run(*WORDS)
    assert (output.status, output.error) == (130, "stopped")


def test_a_disk_that_fills_up_leaves_nothing(
    work_folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headscope.report import write as writer

    def full(study: object, folder: Path, **options: object) -> None:
        (folder / "index.html").write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writer, "write_report", full)
    output = run(*WORDS)
    assert (output.status, output.error) == (
        2,
        "study: cannot be written: No space left on device. Expected a writable directory with free space. "
        "Free some space, or choose another --out.",
    )


def test_a_bug_of_ours_has_a_traceback_and_leaves_nothing(
    work_folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "write_study", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run(*WORDS)
    assert {path.name for path in work_folder.iterdir()} == {"bert", "gpt2", "good.txt"}


@pytest.mark.parametrize("how", [slow(signal.SIGTERM), slow(signal.SIGKILL)])
def test_a_run_that_was_killed_is_not_in_the_way_of_the_next(
    work_folder: Path, run: Run, how: signal.Signals
) -> None:
    running = subprocess.Popen(
        [sys.executable, "-c", SLOW, *WORDS],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"COLUMNS": "99"},
    )
    assert running.stderr is not None
    seen = []
    for line in running.stderr:
        seen.append(line)
        if "in the middle" in line:
            break
    assert (work_folder / "study.partial").is_dir(), "".join(seen)
    (work_folder / "study.partial" / "half").write_text("half")
    running.send_signal(how)
    running.wait(timeout=LONGEST)
    message = running.stderr.read()
    running.stderr.close()
    if how == signal.SIGKILL:
        assert (work_folder / "study.partial").is_dir()
    else:
        assert running.returncode == 143
        assert "Traceback" not in message
        assert not (work_folder / "study.partial").exists()
    assert not (work_folder / "study").exists()
    again = run(*WORDS)
    assert again.status == 0, again.err
    assert not (work_folder / "study.partial").exists()
    assert not (work_folder / "study" / "half").exists()


def test_the_bar_shows_any_name_as_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """rich takes [/x] for markup, and fails."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress.progress("runs/[/x][red]model") as update:
        update(1, 2)
    assert "runs/[/x][red]model" in capsys.readouterr().err
