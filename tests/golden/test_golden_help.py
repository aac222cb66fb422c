"""The help of every command, and the page of commands in the docs, are the stored ones."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer.main
from golden_files import Golden
from typer.testing import CliRunner

from headscope.commands import app

ROOT = Path(__file__).parent.parent.parent
ENVIRONMENT = {"COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1"}
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def commands_of(command: Any, words: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """A command and its subcommands."""
    subcommands = getattr(command, "commands", {})
    return [
        words,
        *(
            below
            for name in subcommands
            for below in commands_of(subcommands[name], (*words, name))
        ),
    ]


COMMANDS = commands_of(typer.main.get_command(app))


def file_name(words: tuple[str, ...]) -> str:
    return f"{'-'.join(('headscope', *words))}.txt"


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words) or "headscope")
def test_help_is_the_stored_one(golden: Golden, words: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, [*words, "--help"], env=ENVIRONMENT, prog_name="headscope")
    assert result.exit_code == 0, result.output
    lines = [COLOUR.sub("", line).rstrip() for line in result.stdout.splitlines()]
    golden.check(f"help/{file_name(words)}", "\n".join(lines))


def test_the_commands_page_of_the_docs_is_up_to_date(golden: Golden) -> None:
    spec = importlib.util.spec_from_file_location(
        "reference_pages", ROOT / "scripts" / "reference_pages.py"
    )
    assert spec is not None
    assert spec.loader is not None
    pages = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pages)
    text = pages.commands_page()
    for words in COMMANDS[1:]:
        assert f"\n## {' '.join(words)}\n" in text
    replace(golden, folder=ROOT / "docs" / "reference").check("commands.md", text)


def test_no_help_is_stored_for_commands_that_are_gone(golden: Golden) -> None:
    golden.check_names("help", {file_name(words) for words in COMMANDS})
