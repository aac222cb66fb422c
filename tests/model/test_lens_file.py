"""A lens is one file: a copy of the package with one more file has one more lens, everywhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import headscope

LENS = """
from headscope.model.lenses import ROWS, SIGN, Lens


class SquaredLens(Lens):
    name = "squared-weights"
    gives = frozenset({ROWS, SIGN})
    how = "Squared weights."

    def apply(self, attention, gradient=None):
        squares = attention.weights.square()
        totals = squares.sum(dim=-1)
        seen = attention.through(self.name, squares / totals[..., None])
        seen.row_totals = totals
        return seen
"""
USE = """
import torch
from transformers import BertModel

import headscope
from headscope.config.look import LookConfig
from headscope.config.option import options_of
from worded import worded

model = worded(BertModel)
texts = ["the old cat sat on the mat ."]
heads = headscope.analyze(model, texts=texts, lens="squared-weights").heads
assert "entropy@squared-weights" in set(heads["statistic"])
raw, squared = headscope.look(model, texts[0], lens="raw,squared-weights").lenses
assert squared.how == "Squared weights."
weights, squares = (torch.from_numpy(lens.stacks[0].weights) for lens in (raw, squared))
torch.testing.assert_close(squares, weights.square() / weights.square().sum(-1, keepdim=True))
assert "gradient, squared-weights;" in options_of(LookConfig)["lens"].help
"""


@pytest.mark.slow
def test_a_lens_is_one_file(tmp_path: Path) -> None:
    source = Path(next(iter(headscope.__path__)))
    package = shutil.copytree(
        source, tmp_path / "headscope", ignore=shutil.ignore_patterns("__pycache__")
    )
    (package / "model" / "lenses" / "squared_weights.py").write_text(LENS, "utf-8")
    tests = Path(__file__).parents[1]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(tests)])}
    done = subprocess.run(
        [sys.executable, "-c", USE], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
