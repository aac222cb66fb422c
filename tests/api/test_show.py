"""headscope.show_mask and headscope.show_model: the same as `masks show` and `models show`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import BertModel
from typer.testing import CliRunner

import headscope
from headscope.commands import app
from headscope.errors import HeadscopeError
from worded import saved


def printed(line: str) -> str:
    done = CliRunner().invoke(app, line.split())
    assert done.exit_code == 0, done.output
    return done.stdout


def test_a_mask_is_shown_as_in_the_shell(tmp_path: Path) -> None:
    view = headscope.show_mask("window:width=1", length=3)
    assert view.allowed.int().tolist() == [[1, 1, 0], [1, 1, 1], [0, 1, 1]]
    assert view.record == {
        "mask": "window:width=1", "length": 3, "sparsity": pytest.approx(2 / 9), "without_keys": 0,
    }  # fmt: skip
    assert printed("masks show window:width=1 --length 3") == "\n".join(view.lines()) + "\n"
    assert list(view.lines())[1:] == ["██·", "███", "·██"]
    assert len(list(headscope.show_mask("star", length=41).lines())) == 1  # too wide for a terminal
    out = tmp_path / "mask.svg"
    assert headscope.show_mask("star", length=5, out=out).length == 5
    assert out.read_text("utf-8").lstrip().startswith("<?xml")


def test_positions_without_keys_attend_to_themselves() -> None:
    view = headscope.show_mask("diagonal-no-diagonal", length=3)
    assert (view.without_keys, view.sparsity) == (3, pytest.approx(2 / 3))
    assert view.allowed.diagonal().all()


def test_a_mask_that_does_not_exist_is_refused() -> None:
    with pytest.raises(HeadscopeError, match=r"`mask` .*did you mean"):
        headscope.show_mask("stra")
    with pytest.raises(HeadscopeError, match="`length` must be at least 1"):
        headscope.show_mask("star", length=0)


def test_a_model_is_shown_as_in_the_shell(tmp_path: Path) -> None:
    folder = saved(tmp_path / "bert", BertModel)
    summary = headscope.show_model(folder)
    assert (summary.family, summary.architecture) == ("bert", "BertModel")
    assert printed(f"models show {folder}") == "\n".join(summary.lines()) + "\n"
    assert json.loads(printed(f"models show {folder} --json")) == summary.record
    assert list(summary.tables["model"]["fact"])[:3] == ["model", "family", "class"]
    loaded = headscope.show_model(headscope.load(folder))
    assert (loaded.family, loaded.architecture) == ("bert", "BertModel")
    assert loaded.record["reading"] == summary.record["reading"]
    written = summary.write(tmp_path / "out")
    assert json.loads((written / "run.json").read_text("utf-8")) == summary.record
