"""`look --off` draws the page of the model with these heads ablated, as `look(off=…)` does in Python."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import headscope
from headscope.commands import app
from headscope.errors import HeadscopeError

sys.path.insert(0, str(Path(__file__).parents[1] / "planted"))
from planted import planted


def test_the_page_is_that_of_python(tmp_path: Path) -> None:
    model = planted()
    model.save(tmp_path / "model")
    text, page = "the cat sat on the mat .", tmp_path / "look.html"
    words = ["look", str(tmp_path / "model"), text, "--off", "0.1,1.*", "--out", str(page)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, (result.output, result.exception)
    loaded = headscope.load(tmp_path / "model")
    with_all, without = (loaded.look(text, off=off) for off in (None, "0.1,1.*"))
    assert without.off == "0.1,1.*"
    shown = page.read_text("utf-8")
    assert "0.1,1.*" in shown
    with_all.save(tmp_path / "all.html")
    assert "0.1,1.*" not in (tmp_path / "all.html").read_text("utf-8")


def test_a_head_that_the_model_does_not_have_is_refused(tmp_path: Path) -> None:
    planted().save(tmp_path / "model")
    page = tmp_path / "look.html"
    words = ["look", str(tmp_path / "model"), "the cat", "--off", "9.9", "--out", str(page)]
    result = CliRunner().invoke(app, words)
    assert str(result.exception).startswith('--off: "9.9"'), result.exception
    assert not page.exists()


@pytest.mark.parametrize("off", ["x", ""])
def test_what_does_not_name_heads_is_refused(off: str, tmp_path: Path) -> None:
    words = ["look", "minilm", "the cat", "--off", off, "--out", str(tmp_path / "look.html")]
    result = CliRunner().invoke(app, words)
    assert isinstance(result.exception, HeadscopeError)
    assert "off" in str(result.exception)
    assert not (tmp_path / "look.html").exists()
