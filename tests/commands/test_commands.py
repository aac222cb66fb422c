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


def test_the_rate_of_a_resumed_run_is_that_of_its_own_items(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # 590 of the first call were finished before, so 60 items in 60 seconds are timed.
    shown = paced(monkeypatch, [10.0, 12.0, 70.0], [590, 592, 650], 1814)
    assert shown == ["", "", "1.0/s, 19 min left"]


def paced(
    monkeypatch: pytest.MonkeyPatch, times: list[float], done: list[int], total: int
) -> list[str]:
    """What is told of rate and time left at each of these moments; the clock starts at 0."""
    from headscope import progress

    now = iter([0.0, *times])
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: next(now)))
    pace, lines = progress._Pace(), []
    for many in done:
        pace.update(many, total)
        lines.append(pace.text)
    return lines


def test_no_time_left_is_estimated_from_the_first_items(monkeypatch: pytest.MonkeyPatch) -> None:
    assert paced(monkeypatch, [35.0, 36.0], [1, 2], 2) == ["", ""]
    assert paced(monkeypatch, [20.0, 30.0], [590, 592], 1814) == [
        "",
        "",
    ]  # the first were done before a resume


def test_the_time_left_is_estimated_when_a_share_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    assert paced(monkeypatch, [9.0, 11.0, 14.0], [1, 5, 6], 20) == ["", "", "1.0/s, 14 s left"]
    assert paced(monkeypatch, [1.0, 11.0, 101.0], [1, 11, 51], 9000) == [
        "",
        "",
        "2.0 s each, 298 min left",
    ]


def test_the_terminal_warns_of_few_texts_as_the_page_does(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from headscope.commands._options import note_few_texts
    from headscope.study.study import Study
    from headscope.tables import Row, to_frame

    for count, expected in (
        (3, "note: only 3 texts: the intervals are too narrow. Take 30 or more\n"),
        (30, ""),
    ):
        note_few_texts(Study(to_frame([Row("encoder", 0, 0, "cls", 0.5, 0.4, 0.6, count)])))
        assert capsys.readouterr().err == expected
