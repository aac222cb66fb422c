"""Options that have an effect only with others: the table against the commands, and the same errors from Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer

import headscope
from headscope.commands import app
from headscope.config.requirements import RULES, check_effects
from headscope.errors import HeadscopeError
from headscope.model.attention_model import AttentionModel
from worded import sentiments, table

PYTHON_ONLY = {"texts", "sentences", "patterns", "column", "fields"}  # `column` is `--column` in the command line


def options_of(command: str) -> dict[str, Any]:
    """The options of a command by name, with their defaults."""
    found: Any = typer.main.get_command(app)
    for word in command.split(" "):
        found = found.commands[word]
    return {one.name: one.default for one in found.params}


@pytest.mark.parametrize("command", RULES)
def test_the_table_holds_options_of_the_command_with_their_defaults(command: str) -> None:
    options = options_of(command)
    for rule in RULES[command]:
        assert set(rule.options) <= set(options) | PYTHON_ONLY
        for name, default in rule.options.items():
            if name in options:
                assert (options[name] or None) == (default or None), name


@pytest.mark.parametrize("command", RULES)
def test_what_is_not_given_is_never_refused(command: str) -> None:
    values = options_of(command)
    check_effects(command, values, given=set())
    check_effects(command, values)


def never() -> AttentionModel:
    raise AssertionError("the model is loaded before the options are checked")


def never_for(task_class: str) -> AttentionModel:
    return never()


IMPORTANCE: list[tuple[dict[str, Any], str]] = [
    ({"by": "gradient", "kinds": "shared"}, "--kind requires --by ablation"),
    ({"by": ["gradient"], "kinds": ["only", "site"]}, "--kind requires --by ablation"),
    ({"by": "gradient", "mode": "mean"}, "--mode requires --by ablation"),
    ({"by": "gradient", "heads": "0.1"}, "--heads requires --by ablation"),
    ({"by": "gradient", "race": 0.05}, "--race requires --by ablation"),
    ({"normalized": True}, "--normalized requires --by gradient"),
    ({"rules": "voita"}, "--rules requires --by relevance"),
    ({"labels_free": True}, "--labels-free requires --by gradient"),
    ({"patterns": {headscope.Head("encoder", 0, 0): "first"}}, "--patterns requires --mode fixed"),
]


@pytest.mark.parametrize(("options", "message"), IMPORTANCE)
def test_importance_refuses_options_without_effect(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    table(tmp_path / "dev.tsv", ("sentence", "label"), sentiments(8))
    with pytest.raises(HeadscopeError, match=f"^{message}"):
        headscope.importance(never_for, task="sst2", data=tmp_path / "dev.tsv", **options)


ANALYZE: list[tuple[dict[str, Any], str]] = [
    ({"control": True}, "--control requires --treebank"),
    ({"lenient": True}, "--lenient requires --treebank"),
    ({"pool": "max"}, "--pool requires --treebank"),
    ({"all_rows": True, "statistics": ["entropy"]}, "--all-rows requires --statistics with twin-distance"),
]


@pytest.mark.parametrize(("options", "message"), ANALYZE)
def test_analyze_refuses_options_without_effect(options: dict[str, Any], message: str) -> None:
    with pytest.raises(HeadscopeError, match=f"^{message}"):
        headscope.analyze(never, texts=["the cat"], **options)


def test_the_other_verbs_refuse_options_without_effect(tmp_path: Path) -> None:
    with pytest.raises(HeadscopeError, match=r"^--target requires --lens"):
        headscope.look("no-such-model", "the cat", target=1)
    with pytest.raises(HeadscopeError, match=r"^--target requires --lens"):
        headscope.token_map("no-such-model", "the cat", by="rollout", target=1)
    with pytest.raises(HeadscopeError, match=r"^--limit requires --models"):
        headscope.compare([tmp_path, tmp_path], limit=3)
    with pytest.raises(HeadscopeError, match=r"^--open-special requires --mask"):
        headscope.finetune("no-such-model", task="sst2", data=tmp_path, out=tmp_path / "x", open_special=True)
    with pytest.raises(HeadscopeError, match=r"^--open-special requires --mask"):
        headscope.pretrain(corpus=tmp_path / "texts.txt", out=tmp_path / "x", open_special=True)


@pytest.mark.parametrize("split", ["test", "train", "test:odd"])
def test_one_file_has_no_other_split(tmp_path: Path, split: str) -> None:
    data = table(tmp_path / "stsb_dev.tsv", ("sentence", "label"), sentiments(8))
    for verb in (headscope.evaluate, headscope.importance):
        with pytest.raises(HeadscopeError, match=r"^--split requires --data DIRECTORY"):
            verb(never_for, task="sst2", data=data, split=split)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("data", "split"),
    [("dev.tsv", "dev:odd"), ("pairs.tsv", "dev"), ("sst2_test.tsv", "test"), ("", "test"), ("datasets:a/b", "test")],
)
def test_a_split_that_the_data_has_is_taken(tmp_path: Path, data: str, split: str) -> None:
    for name in ("dev.tsv", "pairs.tsv", "sst2_test.tsv"):
        table(tmp_path / name, ("sentence", "label"), sentiments(8))
    place = data if data.startswith("datasets:") else str(tmp_path / data)
    check_effects("evaluate", {"data": place, "split": split, "mask": None}, given={"split"})
