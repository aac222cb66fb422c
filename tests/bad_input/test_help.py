"""Help answers at once, and says what there is; the command as a user starts it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_result import Run

from headscope.config.names import TASKS
from waiting import LONGEST

COMMANDS = [
    (),
    ("analyze",),
    ("demo",),
    ("doctor",),
    ("look",),
    ("models",),
    ("models", "fetch"),
    ("models", "list"),
    ("models", "verify"),
]


def started(
    *words: str, stdin: int | None = subprocess.DEVNULL
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headscope", *words]
    return subprocess.run(
        command, stdin=stdin, capture_output=True, text=True, timeout=LONGEST, env=os.environ
    )


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("option", ["-h", "--help"])
def test_every_command_has_help(run: Run, words: tuple[str, ...], option: str) -> None:
    output = run(*words, option)
    assert output.status == 0
    assert "Usage: " + " ".join(("headscope", *words)) in output.out
    assert output.err == ""


@pytest.mark.parametrize("words", [(), ("analyze",), ("look",)], ids=" ".join)
def test_no_words_at_all_are_a_question_for_help(run: Run, words: tuple[str, ...]) -> None:
    output = run(*words)
    assert output.status == 2
    assert "Usage: " + " ".join(("headscope", *words)) in output.out + output.err


def test_defaults_are_shown(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    shown = run("analyze", "--help").out
    for default in (
        "the column text; for pairs of texts the columns a and b",
        "the model's limit, at most 512",
        "truncate",
        "32",
        "float32",
    ):
        assert f"[default: {default}]" in shown or f"[default: ({default})]" in shown, default


@pytest.mark.parametrize("command", ["evaluate", "importance", "prune", "gate"])
def test_the_length_of_texts_that_become_vectors_is_the_model_s(
    run: Run, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    shown = " ".join(run(command, "--help").out.split())
    assert "stsb and retrieval: as the model's files state; otherwise the model's limit" in shown


@pytest.mark.parametrize(
    "command", ["evaluate", "importance", "finetune", "fixed-patterns", "gate"]
)
def test_the_help_names_every_task(run: Run, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    shown = run(command, "--help").out
    assert f"{', '.join(TASKS[:-1])} or {TASKS[-1]}" in shown


def test_help_is_quick_and_loads_no_torch() -> None:
    """By the modules that it imports: seconds depend on the machine."""
    code = (
        "import sys; sys.argv = ['headscope', '--help']\n"
        "from headscope.commands import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(*{name.partition('.')[0] for name in sys.modules} - set(sys.stdlib_module_names))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = {name for name in done.stdout.splitlines()[-1].split() if not name.startswith("_")}
    assert imported <= {
        "annotated_doc",
        "headscope",
        "markdown_it",
        "mdurl",
        "pygments",
        "rich",
        "shellingham",
        "typer",
    }


def test_a_mistake_is_one_line_in_a_real_process(work_folder: Path) -> None:
    done = started("analyze", "bert", "--corpus", "missing.txt", "--out", "study")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        "headscope: missing.txt: there is no such file here. "
        "Expected a file, or a corpus that comes with headscope: wikipedia-pairs.\n"
    )
    assert {path.name for path in work_folder.iterdir()} == {"bert", "gpt2", "good.txt"}


@pytest.mark.slow
def test_a_hub_id_offline_fails_at_once_in_a_real_process(work_folder: Path) -> None:
    done = started("look", "acme/encoder", "the cat", "--out", "page.html")
    assert done.returncode == 2
    first, error = done.stderr.splitlines()
    assert first == "loading acme/encoder …"
    assert "it is not in the local cache and HF_HUB_OFFLINE is set" in error
