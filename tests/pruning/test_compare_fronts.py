"""headscope report: several searches on the same axes; what the heads do that are kept; bad input."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pytest
from scipy.stats import fisher_exact
from transformers import BertForSequenceClassification
from typer.testing import CliRunner

import headscope
from headscope import analyze, gate, load, write
from headscope.commands import app
from headscope.errors import HeadscopeError
from headscope.pruning.compare_fronts import survivors
from worded import glue, saved, sentiments


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, two cuts, gates, and a study with roles."""
    folder = tmp_path_factory.mktemp("fronts")
    saved(folder / "bert", BertForSequenceClassification, num_labels=2)
    glue(folder / "glue")
    words = [
        "prune",
        str(folder / "bert"),
        "--task",
        "sst2",
        "--data",
        str(folder / "glue"),
        "--remove",
        "2",
    ]
    for search in ("greedy", "rank"):
        done = CliRunner().invoke(app, [*words, "--search", search, "--out", str(folder / search)])
        assert done.exit_code == 0, done.output
    gate(
        folder / "bert",
        task="sst2",
        data=folder / "glue",
        out=folder / "gated",
        keep=(3, 2),
        freeze_weights=True,
        epochs=1,
        batch_size=8,
    )
    model = load(folder / "bert", model_class="AutoModelForSequenceClassification")
    write(analyze(model, texts=[text for text, _ in sentiments(20)]), folder / "study")
    return folder


def command(*words: object):  # type: ignore[no-untyped-def]
    return CliRunner().invoke(app, ["report", *map(str, words)])


def test_every_search_keeps_its_rows(made: Path, tmp_path: Path) -> None:
    out, page_file = tmp_path / "fronts", tmp_path / "fronts.html"
    studies = [made / name for name in ("greedy", "rank", "gated", "study")]
    done = command(*studies, "--tables", out, "--out", page_file)
    assert done.exit_code == 0, done.output
    table = pd.read_csv(out / "fronts.csv")
    assert len(pd.read_csv(out / "survivors.csv"))
    for name, position in (("greedy", "greedy/study"), ("gates", "gated")):
        mine = table[table["search"] == name]
        own = pd.read_csv(made / position / "front.csv")
        assert mine["metric"].tolist() == own["metric"].tolist()
        assert mine["removed"].tolist() == own["removed"].tolist()
    assert any(name.startswith("rank by") for name in table["search"])
    page = page_file.read_text("utf-8")
    assert "Comparison of searches" in page
    assert "Roles of the heads that are kept" in page


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


def test_searches_of_other_tasks_have_no_common_front(made: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(made / "gated", other)
    record = (other / "run.json").read_text("utf-8")
    (other / "run.json").write_text(record.replace('"task": "sst2"', '"task": "cola"'), "utf-8")
    assert "fronts" in headscope.join([made / "greedy", made / "gated"]).tables
    assert "fronts" not in headscope.join([made / "greedy", other]).tables


def test_tables_of_a_report_are_not_overwritten(made: Path, tmp_path: Path) -> None:
    (tmp_path / "fronts").mkdir()
    (tmp_path / "fronts" / "notes.txt").write_text("mine", "utf-8")
    words = made / "greedy", made / "rank", "--tables", tmp_path / "fronts"
    done = command(*words, "--out", tmp_path / "page.html")
    assert isinstance(done.exception, HeadscopeError)
    assert str(done.exception).startswith(f"{tmp_path / 'fronts'}: ")
    assert not (tmp_path / "page.html").exists()
