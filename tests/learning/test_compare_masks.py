"""headscope masks compare: straight away, repaired, trained so from the start; resumed; bad input."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import torch
from transformers import BertForSequenceClassification
from typer.testing import CliRunner

import headscope
from headscope import Masked, Study, compare_masks
from headscope.commands import app
from headscope.data.encode import Sequence as Encoded
from headscope.data.encode import Side
from headscope.errors import HeadscopeError
from headscope.heads import Site
from headscope.learning.compare_masks import Case, forbidden_share, over_seeds
from headscope.masks import read_mask
from headscope.masks.mask_file import MaskPositions
from worded import glue, saved

WORDS = ("masks", "compare", "bert", "--task", "sst2", "--data", "glue")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    saved(tmp_path / "bert", BertForSequenceClassification, num_labels=2)
    saved(tmp_path / "new", BertForSequenceClassification, seed=3, num_labels=2)
    glue(tmp_path / "glue")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def command(*words: str):  # type: ignore[no-untyped-def]
    return CliRunner().invoke(app, list(words))


def test_straight_away_every_mask_gives_what_evaluate_gives_under_it(folder: Path) -> None:
    done = command(*WORDS, "--out", "table")
    assert done.exit_code == 0, done.output
    study = Study("table")
    table = study.tables["mask_table"].set_index("mask")
    assert table.loc["dense", "metric_change"] == 0.0
    for mask in ("no-diagonal", "star", "bigbird"):
        model = headscope.load(
            "bert", model_class="AutoModelForSequenceClassification"
        ).edit_permanently(Masked(mask))
        result = headscope.evaluate(model, task="sst2", data="glue")
        assert table.loc[mask, "metric"] == pytest.approx(result["metrics"]["accuracy"]["value"])
        assert table.loc[mask, "loss"] == pytest.approx(
            result["metrics"]["loss"]["value"], rel=1e-6
        )
    assert "Cost of masks" in (folder / "table" / "index.html").read_text("utf-8")
    assert not [path for path in (folder / "table").iterdir() if path.name.startswith("straight")]


def test_models_are_repaired_and_trained_from_the_start_with_every_seed(folder: Path) -> None:
    study = compare_masks(
        "bert",
        task="sst2",
        data="glue",
        out="table",
        mask=("star", "random:drop=1"),
        seeds=(0, 1),
        repair=1,
        start="new",
        epochs=1,
        batch_size=8,
        learning_rate=1e-4,
    )
    runs = study.tables["mask_runs"]
    assert (
        len(runs) == 4 + 6 + 6
    )  # straight away only what is drawn by chance differs between seeds
    assert (runs[runs["mask"] == "dense"]["metric_change"] == 0).all()
    table = study.tables["mask_table"].set_index(["mode", "mask"])
    assert table.loc[("repaired", "star"), "seeds"] == 2
    mine = runs.query("mode == 'from start' and mask == 'star'")
    assert table.loc[("from start", "star"), "metric"] == pytest.approx(mine["metric"].mean())
    options = {"epochs": 1, "batch_size": 8, "mask": "star"}
    headscope.finetune("new", "glue", task="sst2", out="by-hand", **options)
    model = headscope.load(
        "by-hand", model_class="AutoModelForSequenceClassification"
    ).edit_permanently(Masked("star"))
    result = headscope.evaluate(model, task="sst2", data="glue")
    assert mine.iloc[0]["loss"] == pytest.approx(result["metrics"]["loss"]["value"], rel=1e-6)


def test_a_killed_run_goes_on_to_the_same_table(folder: Path) -> None:
    options = {"task": "sst2", "data": "glue", "mask": "star", "repair": 2, "batch_size": 8}
    compare_masks("bert", out="whole", **options)

    class Killed(Exception):
        pass

    def kill(done: int, total: int, part: str = "") -> None:
        if part.startswith("repaired-1") and done == 3:
            raise Killed

    with pytest.raises(Killed):
        compare_masks("bert", out="other", **options, progress=kill)
    compare_masks("bert", out="other", **options, resume=True)
    assert (folder / "whole" / "mask_table.csv").read_bytes() == (
        folder / "other" / "mask_table.csv"
    ).read_bytes()


def text(*ids: int) -> Encoded:
    return Encoded(0, Side(list(ids), [], []), None)


def test_the_forbidden_share_is_that_of_the_texts() -> None:
    texts = [text(*range(size)) for size in (4, 4, 10)]
    mask, encoder = read_mask("no-diagonal"), [Site("encoder", 0)]
    assert forbidden_share(mask, texts, encoder) == pytest.approx((4 + 4 + 10) / (16 + 16 + 100))
    opened = forbidden_share(mask, texts, encoder, frozenset({0, 3, 9}))
    assert opened == pytest.approx((2 + 2 + 7) / (16 + 16 + 100)), "special tokens see themselves"
    assert forbidden_share(read_mask("dense"), texts, encoder) == 0.0
    behind = forbidden_share(mask, texts, [Site("decoder", 0)])
    assert behind == pytest.approx((3 + 3 + 9) / (10 + 10 + 55)), (
        "what is later is not there; the first sees itself"
    )


@pytest.mark.parametrize(
    ("mask", "drawn"),
    [
        ("star", "star"),
        ("random", "random:seed=7"),
        ("bigbird", "bigbird:seed=7"),
        ("bigbird:random=2", "bigbird:random=2,seed=7"),
        ("random:drop=1-no-diagonal", "random:drop=1,seed=7-no-diagonal"),
        ("bigbird-no-diagonal", "bigbird:seed=7-no-diagonal"),
        ("window+random:keep=0.1", "window+random:keep=0.1,seed=7"),
        ("random:seed=3+bigbird", "random:seed=3+bigbird:seed=7"),
        ("no-diagonal", "no-diagonal"),
    ],
)
def test_whatever_is_drawn_by_chance_has_the_seed(mask: str, drawn: str) -> None:
    assert Case("straight", mask, 7, 1).seeded_mask == drawn
    assert read_mask(drawn).at(9).shape == (1, 9, 9)


def test_a_start_and_mask_files_are_part_of_the_run(folder: Path) -> None:
    def written(allowed: torch.Tensor) -> None:
        MaskPositions(("all",), "model", False, True, allowed[None]).write(folder / "mine.npz")

    def stop(done: int, total: int, part: str = "") -> None:
        if part.startswith("from-start-1"):
            raise KeyboardInterrupt

    def compared(**kwargs: object) -> None:
        task = {"task": "sst2", "data": "glue", "out": "table"}
        how = {"mask": "mine.npz", "start": "new", "epochs": 1, "batch_size": 8}
        compare_masks("bert", **task, **how, **kwargs)

    written(torch.ones(32, 32, dtype=torch.bool))
    with pytest.raises(KeyboardInterrupt):
        compared(progress=stop)
    written(torch.ones(32, 32, dtype=torch.bool).tril())
    with pytest.raises(HeadscopeError, match="`mask_files` must be as in the run to resume"):
        compared(resume=True)
    written(torch.ones(32, 32, dtype=torch.bool))
    saved(folder / "new", BertForSequenceClassification, seed=4, num_labels=2)
    with pytest.raises(HeadscopeError, match="`start` must be as in the run to resume"):
        compared(resume=True)


def test_over_seeds_is_students_interval() -> None:
    """Three seeds with changes -1, -2, -3: mean -2, deviation 1, t of two degrees 4.3027."""
    rows = [
        {
            "mode": "repaired",
            "mask": "star",
            "seed": seed,
            "sparsity": 0.5,
            "metric": 0.5,
            "metric_change": -1.0 - seed,
        }
        | {"change_low": 0.0, "change_high": 0.0, "loss": 1.0, "loss_change": 0.1}
        for seed in range(3)
    ]
    row = over_seeds(pd.DataFrame(rows)).iloc[0]
    assert row["seeds"] == 3
    assert row["metric_change"] == pytest.approx(-2)
    assert row["change_low"] == pytest.approx(-2 - 4.3027 / 3**0.5, abs=1e-3)
    assert row["change_high"] == pytest.approx(-2 + 4.3027 / 3**0.5, abs=1e-3)


REFUSED = [
    (("--mask", "sun"), '--mask "sun": "sun" is not a mask.'),
    (("--mask", "star", "--mask", "star"), "--mask must not repeat a value, got star twice."),
    (("--start", "nowhere"), 'no model "nowhere".'),
    (("--repair", "-1"), "--repair must be at least 0, got -1."),
    (("--repair", "1", "--data", "glue/dev.tsv"), "glue/dev.tsv: there is no train file."),
    (("--seeds", "a"), '--seeds must be one or more whole numbers such as 3,10,20, got "a".'),
]


@pytest.mark.parametrize(("words", "message"), REFUSED)
def test_what_cannot_be_compared_is_refused_in_a_line(
    words: tuple[str, ...], message: str, folder: Path
) -> None:
    done = command(*WORDS, *words, "--out", "table")
    assert isinstance(done.exception, HeadscopeError), done.output
    assert str(done.exception).startswith(message)
    assert not list(folder.glob("table*"))


def test_a_loaded_model_is_compared_under_special_tokens_and_left_unchanged(folder: Path) -> None:
    model = headscope.load("bert", model_class="AutoModelForSequenceClassification")
    before = {name: value.clone() for name, value in model.model.state_dict().items()}
    task = headscope.TaskData("sst2", "glue")
    how = {"mask": "star", "repair": 1, "open_special": True, "batch_size": 8}
    live = compare_masks(model, task, **how)
    assert not model.permanent_edits
    assert all(model.model.state_dict()[name].equal(value) for name, value in before.items())
    pd.testing.assert_frame_equal(
        live.tables["mask_table"], compare_masks("bert", task, **how).tables["mask_table"]
    )
