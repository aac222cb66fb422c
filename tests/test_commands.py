"""What the command line does with its words."""

from __future__ import annotations

import pytest

from headscope.commands import _spread


@pytest.mark.parametrize(
    ("typed", "taken"),
    [
        ("analyze m --corpus a b --out s", "analyze m --corpus a --corpus b --out s"),
        ("analyze m --corpus a --corpus b --pairs", "analyze m --corpus a --corpus b --pairs"),
        ("analyze m --out s --corpus a b -", "analyze m --out s --corpus a --corpus b --corpus -"),
        ("analyze --corpus a m --out s", "analyze --corpus a m --out s"),
        ("look m one two --out f", "look m one two --out f"),
        ("--help", "--help"),
        ("", ""),
    ],
)
def test_several_files_may_follow_one_option(typed: str, taken: str) -> None:
    assert _spread(typed.split()) == taken.split()
