"""headscope fronts: several searches on the same axes; what the heads do that are kept; bad input."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pytest
from scipy.stats import fisher_exact
from transformers import BertForSequenceClassification
from typer.testing import CliRunner

from headscope import Study, analyze, gate, load, write
from headscope.commands import app
from headscope.errors import HeadscopeError
from headscope.pruning.compare_fronts import survivors
from worded import glue, saved, sentiments


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, two cuts, gates, and a study with roles."""
    here = tmp_path_factory.mktemp("fronts")
    saved(here / "bert", BertForSequenceClassification, num_labels=2)
    glue(here / "glue")
    words = [
        "prune",
        str(here / "bert"),
        "--task",
        "sst2",
        "--data",
        str(here / "glue"),
        "--heads",
        "2",
    ]
    for search in ("greedy", "rank"):
        done = CliRunner().invoke(app, [*words, "--search", search, "--out", str(here / search)])
        assert done.exit_code == 0, done.output
    gate(
        here / "bert",
        task="sst2",
        data=here / "glue",
        out=here / "gated",
        keep=(3, 2),
        frozen=True,
        epochs=1,
        batch_size=8,
    )
    model = load(here / "bert", model_class="AutoModelForSequenceClassification")
    write(analyze(model, texts=[text for text, _ in sentiments(20)]), here / "study")
    return here


def command(*words: object):  # type: ignore[no-untyped-def]
    return CliRunner().invoke(app, ["fronts", *map(str, words)])


def test_every_search_keeps_its_rows(made: Path, tmp_path: Path) -> None:
    out = tmp_path / "fronts"
    done = command(
        made / "greedy", made / "rank", made / "gated", "--roles", made / "study", "--out", out
    )
    assert done.exit_code == 0, done.output
    table = Study(out).tables["fronts"]
    for name, place in (("greedy", "greedy/study"), ("gates", "gated")):
        mine = table[table["search"] == name]
        own = pd.read_csv(made / place / "front.csv")
        assert mine["metric"].tolist() == own["metric"].tolist()
        assert mine["removed"].tolist() == own["removed"].tolist()
    assert any(name.startswith("rank by") for name in table["search"])
    page = (out / "index.html").read_text("utf-8")
    assert "Searches side by side" in page
    assert "What the heads do that are kept" in page


def test_survivors_are_counted_and_tested_against_chance() -> None:
    """Four heads, two positional; the cut leaves one positional head and nothing else."""
    roles = pd.DataFrame(
        [
            ("encoder", 0, 0, "previous token"),
            ("encoder", 0, 1, "positional +2"),
            ("encoder", 1, 0, "syntactic: det"),
            ("encoder", 1, 1, "undetermined"),
        ],
        columns=["stack", "layer", "head", "role"],
    )
    fronts = pd.DataFrame([{"search": "beam", "draw": 0, "removed": 3, "heads": "0.1,1.*"}])
    table = survivors(fronts, roles).set_index("role")
    assert table.loc["positional", ["with_role", "kept", "left"]].tolist() == [2, 1, 1]
    assert table.loc["positional", "expected"] == pytest.approx(0.5)
    assert table.loc["positional", "p"] == pytest.approx(
        fisher_exact([[1, 0], [1, 2]], alternative="greater").pvalue
    )
    assert table.loc["syntactic", "kept"] == 0
    assert table.loc["syntactic", "p"] == 1.0


def test_what_cannot_be_compared_is_refused(made: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(made / "gated", other)
    record = (other / "run.json").read_text("utf-8")
    (other / "run.json").write_text(record.replace('"task": "sst2"', '"task": "cola"'), "utf-8")
    cases = [
        ((made / "greedy",), "fronts: one front is no comparison."),
        ((made / "greedy", made / "study"), f"{made / 'study'}: a study without a front."),
        ((made / "greedy", other), f"{other}: another task than {made / 'greedy'} has."),
        (
            (made / "greedy", made / "gated", "--roles", made / "gated"),
            f"{made / 'gated'}: a study without roles.",
        ),
        ((made / "greedy", made / "nothing"), f"{made / 'nothing'}"),
    ]
    for words, message in cases:
        done = command(*words, "--out", tmp_path / "fronts")
        assert isinstance(done.exception, HeadscopeError), done.output
        assert str(done.exception).startswith(message)
        assert not list(tmp_path.glob("fronts*"))
