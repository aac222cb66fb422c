"""Does the one error say where, what, what was expected and how to fix it, in one line?"""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from headscope.errors import HeadscopeError, choices


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (HeadscopeError("it is wrong"), "it is wrong."),
        (HeadscopeError("it is wrong."), "it is wrong."),
        (HeadscopeError("it is wrong", where="a.tsv:3"), "a.tsv:3: it is wrong."),
        (HeadscopeError("it is wrong", where=Path("a.tsv")), "a.tsv: it is wrong."),
        (HeadscopeError("wrong", expected="0 to 9"), "wrong. Expected 0 to 9."),
        (
            HeadscopeError("wrong", where="--heads", expected="LAYER.HEAD", fix="Write 3.2"),
            "--heads: wrong. Expected LAYER.HEAD. Write 3.2.",
        ),
        (HeadscopeError("a cause\n  of two lines"), "a cause of two lines."),
    ],
)
def test_an_error_is_one_line(error: HeadscopeError, line: str) -> None:
    assert str(error) == line


def test_an_error_survives_pickling() -> None:
    error = HeadscopeError("wrong", where=Path("x"), expected="right", fix="Mend it")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is HeadscopeError
    assert str(again) == str(error)
    assert (again.what, again.where, again.expected, again.fix) == (
        "wrong",
        Path("x"),
        "right",
        "Mend it",
    )


@pytest.mark.parametrize(
    ("wrong", "options", "line"),
    [
        ("entropi", ["self", "entropy", "next"], 'entropy, next or self; did you mean "entropy"?'),
        ("zzz", ["b", "a"], "a or b"),
        ("zzz", ["only"], "only"),
    ],
)
def test_choices_are_listed_with_the_nearest(wrong: str, options: list[str], line: str) -> None:
    assert choices(wrong, options) == line
