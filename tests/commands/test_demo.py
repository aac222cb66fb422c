"""headscope demo: its task, and what it must show on the real model."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from headscope.commands import app
from headscope.commands.demo import EXAMPLES, RELATED, WORDS, write_pairs
from headscope.data.bundled import BUNDLED


def test_half_of_the_pairs_are_of_one_article_and_half_of_two(tmp_path: Path) -> None:
    write_pairs(tmp_path / "pairs.jsonl")
    examples = [
        json.loads(line) for line in (tmp_path / "pairs.jsonl").read_text("utf-8").splitlines()
    ]
    assert len(examples) == EXAMPLES
    assert Counter(example["score"] for example in examples) == {
        RELATED: EXAMPLES / 2,
        0: EXAMPLES / 2,
    }
    lines = BUNDLED["wikipedia-pairs"].read_text("utf-8").splitlines()
    bundled = {pair["id"]: pair for pair in map(json.loads, lines)}
    articles: dict[str, set[int]] = {}  # by the beginning of the second paragraph
    for pair in bundled.values():
        articles.setdefault(" ".join(pair["b"].split()[:WORDS]), set()).add(pair["curid"])
    for example in examples:
        pair = bundled[example["id"]]
        assert example["a"].split() == pair["a"].split()[:WORDS]
        assert (pair["curid"] in articles[example["b"]]) == (example["score"] == RELATED)


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
    assert record["importance"]["examples"] == EXAMPLES
    assert record["importance"]["truncated"] == 0
    assert record["importance"]["config"]["data"] == "demo/pairs.jsonl"
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
    assert losses["is_significant"].sum() >= 3
    assert losses["p_adjusted"].min() < 0.01
