"""headscope masks, and --mask where a model is used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import BertForSequenceClassification
from typer.testing import CliRunner

import headscope
from headscope.commands import app
from headscope.errors import HeadscopeError
from headscope.masks.patterns import PATTERNS
from worded import glue, saved

TASK = ("--task", "sst2", "--data", "glue")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    saved(tmp_path / "bert", BertForSequenceClassification, num_labels=2)
    glue(tmp_path / "glue")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def done(*words: str) -> str:
    found = CliRunner().invoke(app, list(words))
    assert found.exit_code == 0, found.output
    return found.stdout


def refused(*words: str) -> str:
    found = CliRunner().invoke(app, list(words))
    assert isinstance(found.exception, HeadscopeError), found.output
    return str(found.exception)


def test_all_masks_are_listed_and_one_is_shown(here: Path) -> None:
    said = done("masks")
    assert all(f"\n{name} " in f"\n{said}" for name in PATTERNS)
    assert "longformer:width=5,globals=first/middle" in said
    shown = done("masks", "show", "window:width=1", "--length", "4")
    assert shown.splitlines()[1:] == ["██··", "███·", "·███", "··██"]
    for name in ("mask.svg", "mask.png"):
        done("masks", "show", "star", "--length", "16", "--out", name)
        assert (here / name).stat().st_size > 500
    assert refused("masks", "show", "star", "--out", "mask.pdf").startswith('mask.pdf: ".pdf" is no picture.')
    assert refused("masks", "show", "star", "--length", "0").startswith("--length: 0 is too few.")
    assert refused("masks", "show", "star", "--out", "nowhere/mask.svg").startswith(
        "nowhere/mask.svg: cannot be written"
    )


def test_what_is_shown_is_what_is_met(here: Path) -> None:
    shown = done("masks", "show", "diagonal-no-diagonal", "--length", "4").splitlines()
    assert shown[0] == "diagonal-no-diagonal: 75.00 % of 4 x 4 positions may not be attended to"
    assert shown[1:] == [
        "4 of 4 positions may attend to nothing: these attend to themselves",
        "█···",
        "·█··",
        "··█·",
        "···█",
    ]
    for mask, said in (
        ("longformer:globals=500", "128 positions have no position 500. Expected 0 to 127, or a larger --length."),
        ("random:drop=128", "128 of 128 keys cannot be dropped. Expected less than 128, or a larger --length."),
    ):
        assert refused("masks", "show", mask) == f'--mask "{mask}": {said}'
    assert "longformer:globals=500" in done("masks", "show", "longformer:globals=500", "--length", "501")


def test_a_mask_changes_what_a_task_and_a_study_see(here: Path) -> None:
    plain, masked = (
        json.loads(done("evaluate", "bert", *TASK, *more, "--json")) for more in ((), ("--mask", "diagonal"))
    )
    assert plain["metrics"]["loss"] != masked["metrics"]["loss"]
    worn = headscope.load("bert", model_class="AutoModelForSequenceClassification").wear(headscope.Masked("diagonal"))
    assert headscope.evaluate(worn, task="sst2", data="glue")["metrics"] == masked["metrics"]
    (here / "texts.txt").write_text("good bad\nthe cat sat\n")
    done("analyze", "bert", "--corpus", "texts.txt", "--mask", "no-diagonal", "--out", "study")
    study = headscope.Study("study")
    assert study.heads.query("statistic == 'self'")["value"].max() == 0
    assert study.record["model"]["edits"] == ["Masked('no-diagonal')"]
    done("look", "bert", "good bad", "--mask", "star", "--open-special", "--out", "look.html")


def test_importance_under_a_mask_runs_whole_passes_under_it(here: Path) -> None:
    done("importance", "bert", *TASK, "--mask", "diagonal", "--out", "which")
    study = headscope.Study("which")
    assert study.record["importance"]["way"] == "plain"
    worn = headscope.load("bert", model_class="AutoModelForSequenceClassification").wear(headscope.Masked("diagonal"))
    whole = headscope.evaluate(worn, task="sst2", data="glue")["metrics"]["loss"]["value"]
    with worn.edited(headscope.Ablate("0.1")):
        without = headscope.evaluate(worn, task="sst2", data="glue")["metrics"]["loss"]["value"]
    found = study.heads.query("statistic == 'ablation-loss' and layer == 0 and head == 1")["value"].item()
    assert found == pytest.approx(without - whole, abs=1e-6)


def test_training_under_a_mask(here: Path) -> None:
    for name, more in (("plain", ()), ("masked", ("--mask", "diagonal"))):
        done("finetune", "bert", *TASK, "--epochs", "1", *more, "--out", name)
    plain, masked = (
        headscope.load(name, model_class="AutoModelForSequenceClassification").model.classifier.weight
        for name in ("plain", "masked")
    )
    assert not torch.equal(plain, masked)
    record = json.loads((here / "masked" / "training.json").read_text("utf-8"))
    assert record["model"]["edits"] == ["Masked('diagonal')"]
    again = json.loads(done("evaluate", "masked", *TASK, "--mask", "diagonal", "--json"))
    assert again["metrics"]["loss"]["value"] == pytest.approx(record["best"]["dev_loss"], rel=1e-9)


def test_what_is_no_mask_is_said_before_anything_is_read(here: Path) -> None:
    assert refused("evaluate", "bert", "--task", "sst2", "--data", "glue", "--mask", "spiral").startswith(
        '--mask "spiral"'
    )
    assert refused("evaluate", "bert", *TASK, "--open-special").startswith("--open-special: there is no mask")
    assert refused("finetune", "bert", *TASK, "--mask", "spiral", "--out", "x").startswith('--mask "spiral"')
    assert not (here / "x").exists()


def test_a_model_can_be_cut_only_without_its_mask(here: Path) -> None:
    worn = headscope.load("bert").wear(headscope.Masked("star"))
    with pytest.raises(HeadscopeError, match="watched or edited"):
        headscope.prune(worn, "0.0")
