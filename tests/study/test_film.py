"""Heads over training: each checkpoint is analysed as it would be alone; killed and resumed; bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from transformers import BertForMaskedLM
from typer.testing import CliRunner

import headscope
from headscope import Study
from headscope.commands import app
from headscope.errors import HeadscopeError
from headscope.study.checkpoints import write_checkpoint
from headscope.study.film import film
from worded import sentiments, worded

STEPS = (0, 4, 30)
ASKED = ["previous", "entropy"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three models that differ, as the checkpoints of one training."""
    monkeypatch.chdir(tmp_path)
    for step in STEPS:
        write_checkpoint(worded(BertForMaskedLM, seed=step), tmp_path / "trained", step)
    moments = [{"step": step, "loss": 3.0 - step / 20, "accuracy": 0.1, "metrics": {}} for step in STEPS]
    record = {"schema": 1, "moments": moments}
    (tmp_path / "trained" / "training.json").write_text(json.dumps(record), "utf-8")
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text, _ in sentiments(30)), "utf-8")
    return tmp_path


def test_every_step_has_the_numbers_of_an_analysis_of_its_own(here: Path) -> None:
    words = ["film", "trained", "--corpus", "texts.txt", "--statistics", "previous,entropy", "--out", "study"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    study = Study("study")
    table = study.tables["film"]
    assert list(table.columns) == ["stack", "layer", "head", "statistic", "value", "low", "high", "count", "step"]
    assert sorted(table["step"].unique()) == list(STEPS)
    for step in STEPS:
        alone = headscope.analyze(f"trained/checkpoints/step-{step:06d}", corpus="texts.txt", statistics=ASKED)
        here_too = table[table["step"] == step].drop(columns="step").reset_index(drop=True)
        pd.testing.assert_frame_equal(here_too, alone.heads, check_dtype=False, rtol=1e-9)
        roles = study.tables["film_roles"].query("step == @step")
        assert list(roles["role"]) == list(alone.tables["roles"]["role"])
    last = table[table["step"] == STEPS[-1]].drop(columns="step").reset_index(drop=True)
    pd.testing.assert_frame_equal(last, study.heads, check_dtype=False, rtol=1e-9)
    assert table.groupby("step")["value"].sum().nunique() == len(STEPS)
    assert {path.name for path in (here / "study" / "figures").glob("film*.svg")} == {
        "film-encoder.svg",
        "film-roles-encoder.svg",
    }
    page = (here / "study" / "index.html").read_text("utf-8")
    assert "Heads over training" in page
    assert "Roles over training" in page
    assert study.record["film"]["steps"] == list(STEPS)
    assert [one["loss"] for one in study.record["film"]["losses"]] == [3.0, 2.8, 1.5]
    assert not list((here / "study").glob("step-*"))


def test_a_killed_run_goes_on_with_the_next_checkpoint_to_the_same_tables(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    film("trained", corpus="texts.txt", statistics=ASKED, out="whole")
    told: list[str] = []

    def stop(line: str) -> None:
        told.append(line)
        if len(told) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        film("trained", corpus="texts.txt", statistics=ASKED, out="made", say=stop)
    with pytest.raises(HeadscopeError, match="begun with another limit"):
        film("trained", corpus="texts.txt", statistics=ASKED, out="made", resume=True, limit=9)
    again: list[str] = []
    film("trained", corpus="texts.txt", statistics=ASKED, out="made", resume=True, say=again.append)
    assert again == ["step 30 (3 of 3)"]
    for name in ("film.csv", "film_roles.csv", "heads.csv", "heads.parquet"):
        assert (here / "whole" / name).read_bytes() == (here / "made" / name).read_bytes(), name


REFUSED = [
    (("nowhere", "--corpus", "texts.txt"), "nowhere: there is no such directory."),
    ((".", "--corpus", "texts.txt"), ".: no checkpoints here. Expected a model trained with --checkpoints N."),
    (("trained", "--corpus", "nowhere.txt"), "nowhere.txt: there is no such file here."),
    (("trained",), "corpus: no text was given."),
    (("trained", "--corpus", "-"), "-: this can be read only once."),
    (("trained", "--corpus", "texts.txt", "--statistics", "entropi"), '"entropi" is no'),
    (("trained", "--corpus", "texts.txt", "--pairs"), "texts.txt:1: 1 column."),
    (("trained", "--treebank", "texts.txt"), "texts.txt:1"),
]


@pytest.mark.parametrize(("words", "message"), REFUSED)
def test_what_cannot_be_filmed_is_refused_in_a_line(words: tuple[str, ...], message: str, here: Path) -> None:
    done = CliRunner().invoke(app, ["film", *words, "--out", "study"])
    assert isinstance(done.exception, HeadscopeError), done.output
    assert message in str(done.exception)
    assert not list(here.glob("study*"))
