"""What the command line does with its words."""

from __future__ import annotations

from types import SimpleNamespace

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


def test_the_rate_of_a_run_that_goes_on_is_that_of_what_it_does_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    from headscope.commands import _options

    now = iter([0.0, 10.0, 12.0, 14.0])
    monkeypatch.setattr(_options, "time", SimpleNamespace(monotonic=lambda: next(now)))
    pace = _options._Pace()
    pace(590, 1814)  # what was done before, and one more
    assert pace(592, 1814) == pytest.approx(1.0)
    assert pace(594, 1814) == pytest.approx(1.0)
