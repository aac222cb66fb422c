"""headscope masks, and --mask where a model is used."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
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
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    saved(tmp_path / "bert", BertForSequenceClassification, num_labels=2)
    glue(tmp_path / "glue")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def done(*words: str) -> str:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(*words: str) -> str:
    result = CliRunner().invoke(app, list(words))
    assert isinstance(result.exception, HeadscopeError), result.output
    return str(result.exception)


def test_all_masks_are_listed_and_one_is_shown(folder: Path) -> None:
    output = done("masks")
    assert all(f"\n{name} " in f"\n{output}" for name in PATTERNS)
    assert "longformer:width=5,globals=first/middle" in output
    shown = done("masks", "show", "window:width=1", "--length", "4")
    assert shown.splitlines()[1:] == ["██··", "███·", "·███", "··██"]
    for name in ("mask.svg", "mask.png"):
        done("masks", "show", "star", "--length", "16", "--out", name)
        assert (folder / name).stat().st_size > 500
    assert refused("masks", "show", "star", "--out", "mask.pdf").startswith(
        'mask.pdf: the name of a picture must end in .svg or .png, got ".pdf".'
    )
    assert refused("masks", "show", "star", "--length", "0").startswith(
        "--length must be at least 1, got 0."
    )
    assert refused("masks", "show", "star", "--out", "nowhere/mask.svg").startswith(
        "nowhere/mask.svg: cannot be written"
    )


def test_what_cannot_be_shown_is_reported_before_anything_is_printed(folder: Path) -> None:
    assert refused("masks", "show", "nosuch").startswith('MASK "nosuch": "nosuch" is not a mask.')
    result = CliRunner().invoke(app, ["masks", "show", "star", "--out", "bad.xyz"])
    assert isinstance(result.exception, HeadscopeError)
    assert result.stdout == ""
    wide = CliRunner().invoke(app, ["masks", "show", "bigbird"])
    assert len(wide.stdout.splitlines()) == 1
    assert (
        wide.stderr
        == "loading torch …\ntoo wide for a terminal: take --length 40 or less, or --out mask.svg\n"
    )


def test_every_command_has_examples_of_its_own() -> None:
    output = {name: done("masks", name, "--help") for name in ("show", "compare")}
    assert "masks compare" not in output["show"]
    assert "masks show" not in output["compare"]


def test_the_column_of_numbers_is_named_above_it() -> None:
    header, first = done("masks").splitlines()[:2]
    assert header.split()[:2] == ["name", "forbidden"]
    assert header.index("forbidden") + len("forbidden") == first.index("%") + 1
    assert header.index("allowed attention") == first.index("Every position")


def test_what_is_shown_is_what_is_met(folder: Path) -> None:
    shown = done("masks", "show", "diagonal-no-diagonal", "--length", "4").splitlines()
    assert shown[0] == "diagonal-no-diagonal: 75.00 % of 4 x 4 positions may not be attended to"
    assert shown[1:] == [
        "4 of 4 positions may attend to nothing: these attend to themselves",
        "█···",
        "·█··",
        "··█·",
        "···█",
    ]
    for mask, output in (
        (
            "longformer:globals=500",
            "global positions must be 0 to 127, got 500. Change it, or give a larger --length.",
        ),
        (
            "random:drop=128",
            "drop must be less than 128, got 128. Change it, or give a larger --length.",
        ),
    ):
        assert refused("masks", "show", mask) == f'MASK "{mask}": {output}'
    assert "longformer:globals=500" in done(
        "masks", "show", "longformer:globals=500", "--length", "501"
    )


def test_a_mask_changes_what_a_task_and_a_study_see(folder: Path) -> None:
    plain, masked = (
        json.loads(done("evaluate", "bert", *TASK, *more, "--json"))
        for more in ((), ("--mask", "diagonal"))
    )
    assert plain["metrics"]["loss"] != masked["metrics"]["loss"]
    masked_model = headscope.load(
        "bert", model_class="AutoModelForSequenceClassification"
    ).edit_permanently(headscope.Masked("diagonal"))
    assert (
        headscope.evaluate(masked_model, task="sst2", data="glue")["metrics"] == masked["metrics"]
    )
    (folder / "texts.txt").write_text("good bad\nthe cat sat\n")
    done("analyze", "bert", "--corpus", "texts.txt", "--mask", "no-diagonal", "--out", "study")
    study = headscope.Study("study")
    assert study.heads.query("statistic == 'self'")["value"].max() == 0
    assert study.record["model"]["edits"] == [
        {"kind": "Masked", "mask": "no-diagonal", "open_special": False}
    ]
    done("look", "bert", "good bad", "--mask", "star", "--open-special", "--out", "look.html")


def test_importance_under_a_mask_runs_whole_passes_under_it(folder: Path) -> None:
    done("importance", "bert", *TASK, "--mask", "diagonal", "--out", "which")
    study = headscope.Study("which")
    assert study.record["importance"]["way"] == "plain"
    masked = headscope.load(
        "bert", model_class="AutoModelForSequenceClassification"
    ).edit_permanently(headscope.Masked("diagonal"))
    whole = headscope.evaluate(masked, task="sst2", data="glue")["metrics"]["loss"]["value"]
    with masked.edited(headscope.Ablate("0.1")):
        without = headscope.evaluate(masked, task="sst2", data="glue")["metrics"]["loss"]["value"]
    rows = study.heads.query("statistic == 'ablation-loss' and layer == 0 and head == 1")[
        "value"
    ].item()
    assert rows == pytest.approx(without - whole, abs=1e-6)


def test_training_under_a_mask(folder: Path) -> None:
    for name, more in (("plain", ()), ("masked", ("--mask", "diagonal"))):
        done("finetune", "bert", *TASK, "--epochs", "1", *more, "--out", name)
    plain, masked = (
        headscope.load(
            name, model_class="AutoModelForSequenceClassification"
        ).model.classifier.weight
        for name in ("plain", "masked")
    )
    assert not torch.equal(plain, masked)
    record = json.loads((folder / "masked" / "training.json").read_text("utf-8"))
    assert record["model"]["edits"] == [
        {"kind": "Masked", "mask": "diagonal", "open_special": False}
    ]
    again = json.loads(done("evaluate", "masked", *TASK, "--mask", "diagonal", "--json"))
    assert again["metrics"]["loss"]["value"] == pytest.approx(record["best"]["dev_loss"], rel=1e-9)


def test_what_is_no_mask_is_reported_before_anything_is_read(folder: Path) -> None:
    assert refused(
        "evaluate", "bert", "--task", "sst2", "--data", "glue", "--mask", "spiral"
    ).startswith('--mask "spiral"')
    assert refused("evaluate", "bert", *TASK, "--open-special").startswith(
        "--open-special requires --mask NAME."
    )
    assert refused("finetune", "bert", *TASK, "--mask", "spiral", "--out", "x").startswith(
        '--mask "spiral"'
    )
    assert not (folder / "x").exists()


def test_a_model_can_be_cut_only_without_its_mask(folder: Path) -> None:
    masked = headscope.load("bert").edit_permanently(headscope.Masked("star"))
    with pytest.raises(HeadscopeError, match="watched or edited"):
        headscope.prune(masked, "0.0")


@pytest.mark.parametrize("kind", [bool, int, np.float32, np.uint8])
def test_a_mask_of_ones_own_is_a_plain_array(folder: Path, kind: type) -> None:
    """Rows attend, columns are seen: nothing looks to the right, and only the first sees itself."""
    mine = np.tril(np.ones((12, 12)), -1)
    mine[0, 0] = 1
    np.save(folder / "mine.npy", mine.astype(kind))
    shown = done("masks", "show", "mine.npy", "--length", "3").splitlines()
    assert shown[1:] == ["█··", "█··", "██·"]
    assert "mine.npy+star" in done("masks", "show", "mine.npy+star", "--length", "4")


def test_a_plain_array_acts_as_the_mask_that_it_is(folder: Path) -> None:
    np.save(folder / "mine.npy", headscope.masks.read_mask("star").at(32)[0].numpy())
    named, mine = (
        done("evaluate", "bert", *TASK, "--mask", mask, "--json") for mask in ("star", "mine.npy")
    )
    assert json.loads(named)["metrics"] == json.loads(mine)["metrics"]


HOLE = np.eye(3, dtype=bool)
HOLE[1, 1] = False
ARRAYS = [
    (
        np.ones((3, 4), dtype=bool),
        "a mask must be n x n (rows attend, columns are attended to), got 3 x 4.",
    ),
    (
        np.ones((1, 3, 3), dtype=bool),
        "a mask must be n x n (rows attend, columns are attended to), got 1 x 3 x 3.",
    ),
    (np.array(1), "a mask must be n x n (rows attend, columns are attended to), got one number."),
    (
        np.eye(3) / 2,
        "values must be true or 1 where attention is allowed, else false or 0, got float64.",
    ),
    (
        np.full((3, 3), "1"),
        "values must be true or 1 where attention is allowed, else false or 0, got <U1.",
    ),
    (HOLE, "every position must have a key, got none for position 1 of all."),
    (np.array([[object()]]), "not a mask: "),
]


@pytest.mark.parametrize(("held", "message"), ARRAYS)
def test_an_array_that_is_no_mask_is_refused_in_a_line(
    folder: Path, held: np.ndarray, message: str
) -> None:
    np.save(folder / "mine.npy", held, allow_pickle=True)
    assert refused("masks", "show", "mine.npy").startswith(f"mine.npy: {message}")


def test_a_file_without_the_right_fields_says_what_is_expected(folder: Path) -> None:
    assert refused("masks", "show", "mine.npy").startswith("mine.npy: there is no such file.")
    np.savez(folder / "mine.npz", mask=np.eye(3, dtype=bool))
    output = refused("masks", "show", "mine.npz")
    assert output.startswith(
        "mine.npz: a mask file must have the fields allowed and about (docs/explanation/learning.md), got mask."
    )
    assert ".npy" in output
    np.save((folder / "array.npz").open("wb"), np.eye(3, dtype=bool))
    assert refused("masks", "show", "array.npz").startswith("array.npz: not a mask")
    (folder / "mine.npz").rename("archive.npy")
    assert refused("masks", "show", "archive.npy").startswith(
        "archive.npy: not a mask: it is an archive."
    )
