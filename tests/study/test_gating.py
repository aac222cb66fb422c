"""headscope gate: from a task to plans, with a page; killed and resumed; bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from transformers import BertForSequenceClassification
from typer.testing import CliRunner

import headscope
from headscope import Aim, GateOptions, Settings, Study
from headscope.commands import app
from headscope.errors import HeadscopeError
from headscope.study.gating import gate
from worded import glue, saved

FAST = Settings(epochs=2, batch_size=8, learning_rate=1e-3)
WORDS = ("gate", "bert", "--task", "sst2", "--data", "glue", "--epochs", "2", "--batch-size", "8")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    saved(tmp_path / "bert", BertForSequenceClassification, num_labels=2)
    glue(tmp_path / "glue")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def command(*words: str):  # type: ignore[no-untyped-def]
    return CliRunner().invoke(app, list(words))


def test_gates_become_a_plan_of_the_trained_model(here: Path) -> None:
    done = command(*WORDS, "--keep", "2,1", "--out", "gated")
    assert done.exit_code == 0, done.output
    study = Study("gated")
    front = study.tables["front"]
    assert front["left"].tolist() == [4, 2, 1]
    kept = study.heads.query("statistic == 'gate-keep-2'")
    assert sorted(kept["value"]) == [0, 0, 1, 1]
    over_time = study.tables["gates"].query("aim == 'keep-2'")
    assert over_time["step"].is_monotonic_increasing
    last = over_time[over_time["step"] == over_time["step"].max()]
    assert last["gate"].tolist() == kept["value"].tolist()
    assert (here / "gated" / "figures" / "gates-keep-2.svg").exists()
    assert "Which heads close when" in (here / "gated" / "index.html").read_text("utf-8")
    cut = command("prune", "gated/keep-2", "--plan", "gated/keep-2/plan.json", "--out", "small")
    assert cut.exit_code == 0, cut.output
    assert len(headscope.load("small").heads) == 2
    found = headscope.evaluate("small", task="sst2", data="glue", split="dev:odd")
    assert found["metrics"]["loss"]["value"] == pytest.approx(front.loc[1, "loss"], rel=1e-9)


def test_frozen_weights_leave_a_plan_of_the_model_itself(here: Path) -> None:
    gate(
        "bert",
        task="sst2",
        data="glue",
        out="gated",
        aims=[Aim(keep=3)],
        options=GateOptions(frozen=True),
        settings=FAST,
    )
    assert [path.name for path in (here / "gated" / "keep-3").iterdir()] == ["plan.json"]
    plan = json.loads((here / "gated" / "keep-3" / "plan.json").read_text("utf-8"))
    assert plan["count"] == 1
    assert command("prune", "bert", "--plan", "gated/keep-3/plan.json", "--out", "small").exit_code == 0


def test_a_killed_run_goes_on_to_the_same_result(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    aims = [Aim(keep=3), Aim(keep=1)]
    gate("bert", task="sst2", data="glue", out="whole", aims=aims, settings=FAST)

    class Killed(Exception):
        pass

    steps = [0]

    def kill(step: object) -> None:
        steps[0] += 1
        if steps[0] == 21:  # in the second epoch of the second aim
            raise Killed

    with pytest.raises(Killed):
        gate("bert", task="sst2", data="glue", out="other", aims=aims, settings=FAST, watch=kill)
    assert (here / "other.partial" / "keep-1" / "state.pt").exists()
    with pytest.raises(HeadscopeError, match="begun with another epochs"):
        gate("bert", task="sst2", data="glue", out="other", aims=aims, resume=True, settings=Settings(3, 8, 1e-3))
    gate("bert", task="sst2", data="glue", out="other", aims=aims, settings=FAST, resume=True)
    for name in ("keep-3/model.safetensors", "keep-1/model.safetensors", "gates.csv", "heads.csv"):
        assert (here / "whole" / name).read_bytes() == (here / "other" / name).read_bytes(), name
    clock = ["time", "time_low", "time_high", "is_front"]
    fronts = [pd.read_csv(here / out / "front.csv").drop(columns=clock) for out in ("whole", "other")]
    pd.testing.assert_frame_equal(*fronts)


def test_a_penalty_that_closes_everything_is_stopped_and_said(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = command(*WORDS, "--epochs", "20", "--penalty", "1000", "--frozen", "--out", "gated")
    assert isinstance(done.exception, HeadscopeError)
    assert str(done.exception).startswith("--penalty 1000: all heads are closed at step ")
    assert not (here / "gated").exists()


REFUSED = [
    (("--out", "gated"), "gate: what shall open heads cost?"),
    (("--keep", "2", "--penalty", "0.1", "--out", "gated"), "gate: what shall open heads cost?"),
    (("--keep", "9", "--out", "gated"), "--keep: 9 heads cannot be kept. Expected 1 to 4."),
    (("--keep", "2,2", "--out", "gated"), "gate: no aim, or one twice."),
    (("--penalty", "-1", "--out", "gated"), "--penalty: -1.0 is no penalty. Expected 0 or more."),
    (("--penalty", "much", "--out", "gated"), '--penalty: "much" is no penalty.'),
    (("--penalty", "cross=1", "--out", "gated"), "--penalty: there is no cross. Expected some of encoder."),
    (("--keep", "2", "--settle", "0", "--out", "gated"), "--settle: 0.0 is no share."),
    (("--keep", "2", "--gate-rate", "0", "--out", "gated"), "--gate-rate: 0.0 is no rate."),
    (("--keep", "2", "--report-on", "dev:even", "--out", "gated"), "--report-on: "),
    (("--keep", "2", "--data", "glue/dev.tsv", "--out", "gated"), "glue/dev.tsv: there is no train file."),
]


@pytest.mark.parametrize(("words", "message"), REFUSED)
def test_what_cannot_be_learned_is_refused_in_a_line(words: tuple[str, ...], message: str, here: Path) -> None:
    done = command(*WORDS, *words)
    assert isinstance(done.exception, HeadscopeError), done.output
    assert str(done.exception).startswith(message)
    assert not list(here.glob("gated*"))
