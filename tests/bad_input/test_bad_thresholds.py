"""Every bad threshold and the whole message it must give, and what good ones leave in run.json."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from pathlib import Path

import pytest
from command_result import Run

from headscope.config.thresholds import Thresholds
from headscope.errors import HeadscopeError

NAMES = "beyond, block, broad, confident, neighbour, positional, rare, relation, sink or token"
BAD: list[tuple[str, str]] = [
    (
        "positionl=0.8",
        f'"positionl" is not a threshold. Expected {NAMES}; did you mean "positional"?',
    ),
    ("zzz=0.8", f'"zzz" is not a threshold. Expected {NAMES}.'),
    ("", f'"" is not a threshold. Expected {NAMES}.'),
    ("token=0.5,", f'"" is not a threshold. Expected {NAMES}.'),
    ("positional", '"positional" has no value. Expected NAME=VALUE, such as positional=0.9.'),
    ("positional=much", 'positional must be a number from 0 to 1, got "much".'),
    ("positional=", 'positional must be a number from 0 to 1, got "".'),
    ("positional=0.9=1", 'positional must be a number from 0 to 1, got "0.9=1".'),
    ("broad=0.5,positional=90", "positional must be a number from 0 to 1, got 90.0."),
    ("token=-0.1", "token must be a number from 0 to 1, got -0.1."),
    ("token=nan", "token must be a number from 0 to 1, got nan."),
    ("relation=-0.05", "relation must be a number from 0 to 1, got -0.05."),
    ("token=0.5,rare=0.6,token=0.7", '"token" is given twice. Expected each name once.'),
]


@pytest.mark.parametrize(("typed", "message"), BAD, ids=[typed for typed, _ in BAD])
def test_a_bad_threshold_is_refused_before_a_model_is_loaded(
    run: Run, typed: str, message: str
) -> None:
    output = run(
        "analyze", "no/such-model", "--corpus", "good.txt", "--out", "study", "--threshold", typed
    )
    assert (output.status, output.error) == (2, f"--threshold: {message}")
    assert len(output.rest) == 1


def test_a_bad_threshold_is_refused_from_python_too() -> None:
    with pytest.raises(
        HeadscopeError, match=r"^`thresholds`: rare must be a number from 0 to 1, got 2\.$"
    ):
        Thresholds(rare=2)


def test_every_threshold_is_named_in_the_help(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    shown = run("analyze", "--help").out
    listed = shown.split("repeated. Names: ")[1].split(". docs/reference/tables.md")[0]
    assert set(listed.replace(" and ", ", ").split(", ")) == {
        one.name for one in fields(Thresholds)
    }


def test_the_thresholds_used_are_in_the_record(work_folder: Path, analyze: Run) -> None:
    options = (
        "--threshold",
        "token=0.1, broad=0.2",
        "--threshold",
        "rare=0.7",
        "--frequency",
        "english",
    )
    assert analyze("bert", "good.txt", *options).status == 0
    recorded = json.loads((work_folder / "study" / "run.json").read_text())["options"]["thresholds"]
    assert recorded == asdict(Thresholds(token=0.1, broad=0.2, rare=0.7))
    assert analyze("bert", "good.txt", "--overwrite").status == 0
    recorded = json.loads((work_folder / "study" / "run.json").read_text())["options"]["thresholds"]
    assert recorded == asdict(Thresholds())
