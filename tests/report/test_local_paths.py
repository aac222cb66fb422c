"""A page that is sent to others names files and models, and does not say where they are on this machine."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from transformers import BertForSequenceClassification, BertModel

import headscope
from headscope import commands
from headscope.study.local_paths import local_name, without_paths
from worded import saved, sentiments, table

TEXTS = "the cat sat on the mat .\na dog ran .\nthe old house is red .\n"


def run(monkeypatch: pytest.MonkeyPatch, *words: object) -> None:
    monkeypatch.setattr(sys, "argv", ["headscope", *map(str, words)])
    with pytest.raises(SystemExit) as stop:
        commands.main()
    assert stop.value.code == 0


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A directory whose name no page may hold."""
    folder = tmp_path / "home of somebody" / "secret"
    saved(folder / "tiny-bert", BertModel)
    saved(folder / "tiny-classifier", BertForSequenceClassification, num_labels=2)
    (folder / "corpus.txt").write_text(TEXTS)
    table(folder / "dev.tsv", ("sentence", "label"), sentiments(24))
    return folder


def assert_clean(page: str, *names: str) -> None:
    assert "secret" not in page
    assert "somebody" not in page
    for name in names:
        assert name in page


def test_no_page_holds_a_local_path(secret: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, corpus, dev = secret / "tiny-bert", secret / "corpus.txt", secret / "dev.tsv"
    run(
        monkeypatch,
        "analyze",
        model,
        "--corpus",
        corpus,
        "--out",
        secret / "s",
        "--statistics",
        "entropy,previous",
    )
    record = json.loads((secret / "s" / "run.json").read_text())
    assert record["data"]["files"][0]["path"] == str(corpus), "the record keeps the path"
    assert record["model"]["name"] == str(model)
    assert str(corpus) in record["command"]
    page = (secret / "s" / "index.html").read_text("utf-8")
    assert_clean(page, "corpus.txt", record["data"]["files"][0]["sha256"], "tiny-bert")
    assert (
        "headscope analyze tiny-bert --corpus corpus.txt --out s --statistics entropy,previous"
        in page
    )
    classifier = secret / "tiny-classifier"
    task = ("--task", "sst2", "--data", dev, "--by", "gradient")
    run(monkeypatch, "importance", classifier, *task, "--out", secret / "i")
    assert_clean((secret / "i" / "index.html").read_text("utf-8"), "dev.tsv", "tiny-classifier")
    run(monkeypatch, "report", secret / "s", secret / "i", "--out", secret / "report.html")
    assert_clean(
        (secret / "report.html").read_text("utf-8"), "tiny-bert", "tiny-classifier", "corpus.txt"
    )
    run(monkeypatch, "compare", secret / "s", secret / "s", "--out", secret / "c")
    assert_clean((secret / "c" / "index.html").read_text("utf-8"), "tiny-bert")


def test_a_look_names_a_model_by_its_directory(
    secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = headscope.look(secret / "tiny-bert", "the cat sat").page()
    assert_clean(page, "<title>tiny-bert: attention heads</title>", "<h1>tiny-bert</h1>")
    monkeypatch.chdir(secret)
    assert "<h1>tiny-bert</h1>" in headscope.look("./tiny-bert", "the cat sat").page()


@pytest.mark.parametrize(
    ("value", "key", "expected"),
    [
        ("/home/me/my data/x.tsv", "path", "x.tsv"),
        ("data/x.tsv", "path", "x.tsv"),
        ("org/name", "name", "org/name"),
        ("./tiny", "name", "tiny"),
        ("~/models/tiny/", "name", "tiny"),
        ("datasets:nyu-mll/glue:sst2", "data", "datasets:nyu-mll/glue:sst2"),
        ("Masked(/home/me/mask.npz)", "edits", "Masked(mask.npz)"),
        ("wrong: /home/me/x.txt:3 has a line", "note", "wrong: x.txt:3 has a line"),
        (
            "a share of 1/2, and/or https://example.org/a/b",
            "note",
            "a share of 1/2, and/or https://example.org/a/b",
        ),
        (
            "headscope prune '/home/my me/m' --data=/a/b.tsv,../c/d.tsv --out /a/out --train datasets:/a/folder",
            "command",
            "headscope prune m --data=b.tsv,d.tsv --out out --train datasets:folder",
        ),
    ],
)
def test_local_paths_become_names_and_nothing_else_changes(
    value: str, key: str, expected: str
) -> None:
    assert without_paths({"kind": [{key: value}]}) == {"kind": [{key: expected}]}
    assert local_name("org/name") == "org/name"
