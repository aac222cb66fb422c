"""A loss that becomes NaN: the step is named, the last good state stays, and a smaller rate goes on from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BertModel

from headscope import finetune
from headscope.errors import HeadscopeError
from headscope.training.resumable import DIVERGED, STATE
from poison import poisoned
from worded import glue, saved

RATE = 1e-3


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    saved(tmp_path / "bert", BertModel)
    glue(tmp_path / "data", train=24, dev=8)
    return tmp_path


def trained(out: str, rate: float = RATE, **options: Any) -> dict[str, Any]:
    options |= {"epochs": 3, "batch_size": 8, "learning_rate": rate}
    return finetune("bert", task="sst2", data="data", out=out, **options).record


def test_the_last_good_state_is_kept_and_a_smaller_rate_goes_on_from_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        poisoned(patch, at=5)
        with pytest.raises(HeadscopeError) as error:
            trained("made", checkpoints=4)
    assert str(error.value) == (
        "bert: the loss is nan at step 5. The state of step 3 is kept: go on from it with `resume=True` and a smaller "
        "`learning_rate` than 0.001."
    )
    assert not Path("made").exists()
    state = torch.load("made.partial/state.pt", weights_only=True)
    assert state["number"] == 3
    assert all(
        value.isfinite().all() for value in state["model"].values() if value.is_floating_point()
    )
    with pytest.raises(
        HeadscopeError,
        match=r"`learning_rate`: the loss is nan at step 5 with a rate of 0\.001\. Exp",
    ):
        trained("made", checkpoints=4, resume=True)
    with pytest.raises(HeadscopeError, match="`checkpoints` must be as in the run to resume"):
        trained("made", rate=RATE / 2, checkpoints=3, resume=True)
    record = trained("made", rate=RATE / 2, checkpoints=4, resume=True)
    assert record["diverged"] == [
        {"what": "the loss is nan at step 5", "learning_rate": RATE, "resumed_from": 3}
    ]
    assert len(record["epochs"]) == 3
    assert not {STATE, DIVERGED} & {path.name for path in Path("made").iterdir()}
    assert sorted(path.name for path in Path("made/checkpoints").iterdir())[-1] == "step-000009"


def test_a_run_that_goes_on_slower_and_is_stopped_again_is_the_run_of_the_smaller_rate(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        poisoned(patch, at=5)
        with pytest.raises(HeadscopeError):
            trained("made")

    def stop(done: int, total: int, part: str = "") -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trained("made", rate=RATE / 2, resume=True, progress=stop)
    with pytest.raises(HeadscopeError, match="`learning_rate` must be as in the run to resume"):
        trained("made", rate=RATE / 4, resume=True)
    assert trained("made", rate=RATE / 2, resume=True)["config"]["learning_rate"] == RATE / 2


def test_before_any_state_there_is_nothing_to_keep(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poisoned(monkeypatch, at=2)
    with pytest.raises(HeadscopeError) as error:
        trained("made")
    assert (
        str(error.value)
        == "bert: the loss is nan at step 2. Try a smaller `learning_rate` than 0.001."
    )
    assert not list(folder.glob("made*"))


def test_a_gradient_that_is_no_number_is_never_stepped_along(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poisoned(monkeypatch, at=4, gradient=True)
    with pytest.raises(
        HeadscopeError, match=r"the gradient's norm is nan at step 4\. The state of step 3 is kept"
    ):
        trained("made")
    note = json.loads(Path("made.partial/diverged.json").read_text("utf-8"))
    assert note["learning_rate"] == RATE
