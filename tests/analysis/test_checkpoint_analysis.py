"""Heads over training: each checkpoint is analysed as it would be alone; killed and resumed; bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from transformers import BertForMaskedLM
from typer.testing import CliRunner

import headscope
from headscope import Study
from headscope.commands import app
from headscope.config.edit_record import EditRecord
from headscope.errors import HeadscopeError
from headscope.report.sections import findings_of
from headscope.report.top_findings import select_top
from headscope.training.checkpoints import write_checkpoint
from worded import sentiments, worded

STEPS = (0, 4, 30)
ASKED = ["previous", "entropy"]


def analyze_all(trained: str, **options: Any) -> Study:
    """The analysis of every checkpoint."""
    return headscope.analyze(trained, checkpoints=True, **options)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three models that differ, as the checkpoints of one training."""
    monkeypatch.chdir(tmp_path)
    for step in STEPS:
        write_checkpoint(worded(BertForMaskedLM, seed=step), tmp_path / "trained", step)
    moments = [
        {"step": step, "loss": 3.0 - step / 20, "accuracy": 0.1, "metrics": {}} for step in STEPS
    ]
    record = {"schema": 1, "moments": moments}
    (tmp_path / "trained" / "training.json").write_text(json.dumps(record), "utf-8")
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text, _ in sentiments(30)), "utf-8")
    return tmp_path


def test_every_step_has_the_numbers_of_an_analysis_of_its_own(folder: Path) -> None:
    words = [
        "analyze",
        "trained",
        "--checkpoints",
        "--corpus",
        "texts.txt",
        "--statistics",
        "previous,entropy",
        "--out",
        "study",
    ]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    study = Study("study")
    table = study.tables["film"]
    assert list(table.columns) == [
        "stack",
        "layer",
        "head",
        "statistic",
        "value",
        "low",
        "high",
        "count",
        "step",
    ]
    assert sorted(table["step"].unique()) == list(STEPS)
    for step in STEPS:
        alone = headscope.analyze(
            f"trained/checkpoints/step-{step:06d}", corpus="texts.txt", statistics=ASKED
        )
        here_too = table[table["step"] == step].drop(columns="step").reset_index(drop=True)
        pd.testing.assert_frame_equal(here_too, alone.heads, check_dtype=False, rtol=1e-9)
        roles = study.tables["film_roles"].query("step == @step")
        assert list(roles["role"]) == list(alone.tables["roles"]["role"])
    last = table[table["step"] == STEPS[-1]].drop(columns="step").reset_index(drop=True)
    pd.testing.assert_frame_equal(last, study.heads, check_dtype=False, rtol=1e-9)
    assert table.groupby("step")["value"].sum().nunique() == len(STEPS)
    assert {path.name for path in (folder / "study" / "figures").glob("film*.svg")} == {
        "film-encoder.svg",
        "film-roles-encoder.svg",
    }
    page = (folder / "study" / "index.html").read_text("utf-8")
    assert "Heads over training" in page
    assert "Roles over training" in page
    assert study.record["film"]["steps"] == list(STEPS)
    assert [one["loss"] for one in study.record["film"]["losses"]] == [3.0, 2.8, 1.5]
    assert not list((folder / "study").glob("step-*"))


def test_a_killed_run_goes_on_with_the_next_checkpoint_to_the_same_tables(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    analyze_all("trained", corpus="texts.txt", statistics=ASKED, out="whole")
    lines: list[str] = []

    def stop(line: str) -> None:
        lines.append(line)
        if len(lines) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        analyze_all("trained", corpus="texts.txt", statistics=ASKED, out="made", log=stop)
    with pytest.raises(HeadscopeError, match="`limit` must be as in the run to resume"):
        analyze_all(
            "trained", corpus="texts.txt", statistics=ASKED, out="made", resume=True, limit=9
        )
    again: list[str] = []
    analyze_all(
        "trained", corpus="texts.txt", statistics=ASKED, out="made", resume=True, log=again.append
    )
    assert [line for line in again if line.startswith("step")] == ["step 30 (3 of 3)"]
    for name in ("film.csv", "film_roles.csv", "heads.csv", "heads.parquet"):
        assert (folder / "whole" / name).read_bytes() == (folder / "made" / name).read_bytes(), name


def test_thresholds_may_be_a_mapping(folder: Path) -> None:
    options: dict[str, Any] = {"corpus": "texts.txt", "limit": 4, "statistics": ["sink"]}
    mapped = analyze_all("trained", out="mapped", thresholds={"sink": 0.01}, **options)
    whole = analyze_all(
        "trained", out="whole", thresholds=headscope.Thresholds(sink=0.01), **options
    )
    assert mapped.tables["film_roles"].equals(whole.tables["film_roles"])


def trained_under(folder: Path, edit: str) -> None:
    record = json.loads((folder / "trained" / "training.json").read_text("utf-8"))
    record["model"] = {"edits": [edit]}
    (folder / "trained" / "training.json").write_text(json.dumps(record), "utf-8")


def test_a_film_is_under_the_mask_of_the_training_unless_another_is_named(folder: Path) -> None:
    trained_under(folder, repr(headscope.Masked("window:width=1", open_special=True)))
    options: dict[str, Any] = {"corpus": "texts.txt", "statistics": ASKED}
    messages: list[str] = []
    own = analyze_all("trained", out="own", log=messages.append, **options)
    assert (
        messages[0]
        == 'under the mask of its training: window:width=1 with special tokens open (without: `mask="dense"`)'
    )
    named = analyze_all("trained", out="named", mask="window:width=1", open_special=True, **options)
    pd.testing.assert_frame_equal(own.heads, named.heads)
    other: list[str] = []
    star = analyze_all("trained", out="star", mask="star", log=other.append, **options)
    dense = analyze_all("trained", out="dense", mask="dense", **options)
    assert not any("mask" in line for line in other)
    assert [one.record["model"]["edits"] for one in (star, dense)] == [
        [{"kind": "Masked", "mask": "star", "open_special": False}],
        [],
    ]
    page = (folder / "own" / "index.html").read_text("utf-8")
    assert "<dt>mask</dt><dd>window:width=1, special tokens open</dd>" in page


@pytest.mark.parametrize(
    "edit", ["Ablate('3.2')", "Masked(", "Masked(Mask())", "", "Masked('star') + 1"]
)
def test_other_edits_are_not_read_as_masks(edit: str) -> None:
    assert EditRecord.read(edit).mask is None


def test_how_roles_changed_is_reported_among_the_first(folder: Path) -> None:
    """Two heads of four become positional, the first at step 4; one is broad all the while, one no longer for sure."""
    study = analyze_all("trained", corpus="texts.txt", statistics=ASKED, out="study")
    held = [
        (0, 0, 0, "broad"),
        (4, 0, 0, "broad"),
        (30, 0, 0, "broad"),
        (4, 1, 0, "previous token"),
    ]
    held += [(30, 1, 0, "previous token"), (30, 1, 1, "positional +2"), (0, 0, 1, "separators")]
    rows = [
        {
            "stack": "encoder",
            "layer": layer,
            "head": head,
            "role": role,
            "value": 0.9,
            "low": 0.8,
            "high": 1.0,
        }
        | {
            "baseline": float("nan"),
            "threshold": 0.5,
            "is_sure": True,
            "rule": "a rule",
            "step": step,
            "count": 30,
        }
        for step, layer, head, role in held
    ]
    rows.append(rows[-1] | {"step": 30, "is_sure": False})
    study.tables["film_roles"] = pd.DataFrame(rows)
    first, _ = select_top([findings_of(study)])
    [lines] = [str(one) for one in first if one.kind == "training"]
    assert lines == (
        "From step 0 to step 30 of the training, the number of heads with a clear role went from 2 to 3 of 4. "
        "Positional 0 to 2, special-token 1 to 0, diffuse 1 to 1; the first positional head appeared at step 4."
    )
    del study.tables["film"]
    assert not [one for one in findings_of(study) if one.kind == "training"]


REFUSED = [
    (("nowhere", "--corpus", "texts.txt"), "nowhere: there is no such directory."),
    (
        (".", "--corpus", "texts.txt"),
        ".: a trained model must have two checkpoints or more, got no checkpoints. Train it with --checkpoints N.",
    ),
    (("trained", "--corpus", "nowhere.txt"), "nowhere.txt: there is no such file here."),
    (("trained",), "analyze requires texts. Expected --corpus FILE"),
    (("trained", "--corpus", "-"), "-: this can be read only once."),
    (("trained", "--corpus", "texts.txt", "--statistics", "entropi"), '"entropi" is no'),
    (("trained", "--corpus", "texts.txt", "--pairs"), "texts.txt:1: 1 column."),
    (("trained", "--treebank", "texts.txt"), "texts.txt:1"),
]


@pytest.mark.parametrize(("words", "message"), REFUSED)
def test_what_cannot_be_filmed_is_refused_in_a_line(
    words: tuple[str, ...], message: str, folder: Path
) -> None:
    done = CliRunner().invoke(app, ["analyze", *words, "--checkpoints", "--out", "study"])
    assert isinstance(done.exception, HeadscopeError), done.output
    assert message in str(done.exception)
    assert not list(folder.glob("study*"))


def test_nothing_is_written_without_a_directory(folder: Path) -> None:
    options: dict[str, Any] = {"corpus": "texts.txt", "statistics": ASKED}
    before = sorted(path.name for path in folder.iterdir())
    study = analyze_all("trained", **options)
    assert sorted(path.name for path in folder.iterdir()) == before
    pd.testing.assert_frame_equal(
        study.tables["film"], analyze_all("trained", out="study", **options).tables["film"]
    )
    assert (folder / "study" / "index.html").exists()
    assert study.record["config"]["statistics"] == ASKED
    with pytest.raises(HeadscopeError, match=r"^`open_special` requires `mask=NAME`"):
        analyze_all("trained", open_special=True, **options)
