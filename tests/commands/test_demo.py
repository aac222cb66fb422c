"""headscope demo: its task, and what it must show on the real model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from headscope.api.demo import QUESTION_COUNT, QUESTION_WORDS, write_questions
from headscope.commands import app
from headscope.data.bundled import BUNDLED
from headscope.data.squad import read_squad


def test_the_questions_are_beginnings_of_different_bundled_paragraphs(tmp_path: Path) -> None:
    write_questions(tmp_path / "questions.jsonl")
    questions = list(read_squad(tmp_path / "questions.jsonl"))
    assert len(questions) == QUESTION_COUNT
    # Two paragraphs that begin alike would be one, and its question would have two right answers.
    assert len({question.context for question in questions}) == QUESTION_COUNT
    lines = BUNDLED["wikipedia-pairs"].read_text("utf-8").splitlines()
    for question, line in zip(questions, lines, strict=False):
        pair = json.loads(line)
        assert question.text.split() == pair["a"].split()[:QUESTION_WORDS]
        assert question.context.split() == pair["b"].split()[:QUESTION_WORDS]


@pytest.mark.real
@pytest.mark.slow
def test_the_demo_has_syntactic_and_significant_heads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zoo_model: Callable[..., Path]
) -> None:
    zoo_model("minilm")  # skips without the weights
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["demo"])
    assert result.exit_code == 0, (result.output, result.exception)
    last = result.stdout.splitlines()[-2:]
    assert [line.split()[0] for line in last] == ["demo/index.html", "demo/look.html"]
    assert all((tmp_path / line.split()[0]).is_file() and line.endswith(".") for line in last)

    demo = tmp_path / "demo"
    record = json.loads((demo / "run.json").read_text("utf-8"))
    assert record["treebank"]["files"][0]["path"] == "ewt-sample"
    assert record["treebank"]["used"] == 200
    assert record["importance"]["examples"] == QUESTION_COUNT
    assert record["importance"]["truncated"] == 0
    assert record["importance"]["config"]["data"] == "demo/questions.jsonl"
    assert Path(record["importance"]["data"][0]["path"]).is_file()

    # Chosen on one half of the sentences, reported on the other: better than the best fixed offset
    relations = pd.read_csv(demo / "relations.csv")
    objects = relations[(relations["relation"] == "obj") & (relations["direction"] == "dependent")]
    assert (objects["low"] > objects["baseline"]).tolist() == [True]
    roles = pd.read_csv(demo / "roles.csv")
    assert "syntactic: obj" in set(roles["role"])
    examples = pd.read_csv(demo / "examples.csv")
    assert "syntactic: obj" in set(examples["role"])

    tests = pd.read_csv(demo / "significance.csv")
    losses = tests[tests["statistic"] == "ablation-loss"]
    significant = losses[losses["is_significant"]]
    # Worse without them, at 5 % after Holm's correction for all 72 heads
    assert len(losses) == 72
    assert len(significant) > 0
    assert (significant["low"] > 0).all()
    assert (losses["count"] == QUESTION_COUNT).all()
