"""prune, fix, fronts and speed from Python: with a task they do what the commands do, and return what they made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from transformers import BertForSequenceClassification
from typer.testing import CliRunner

import headscope
from headscope import FixedPatternsConfig, HeadscopeError, PruneConfig, Run, TaskData
from headscope.commands import app
from worded import glue, saved, sentiments, table

DATA = {"task": "sst2", "data": "dev.tsv"}
CLOCK = ["time", "time_low", "time_high", "is_front"]  # columns that no two runs have in common


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    saved(tmp_path / "bert", BertForSequenceClassification, num_labels=2)
    table(tmp_path / "dev.tsv", ("sentence", "label"), sentiments(80))
    return tmp_path


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def same_tables(left: Path, other: Path, name: str) -> None:
    first, second = (
        pd.read_csv(folder / "study" / name).drop(columns=CLOCK) for folder in (left, other)
    )
    pd.testing.assert_frame_equal(first, second)


def test_prune_with_a_task_is_the_command(directory: Path) -> None:
    words = "prune bert --task sst2 --data dev.tsv --remove 2 --search rank --batch-size 8"
    done = CliRunner().invoke(app, [*words.split(), "--out", "typed"])
    assert done.exit_code == 0, done.output
    options = {"remove": 2, "search": "rank", "batch_size": 8}
    before = files(directory)
    result = headscope.prune("bert", **DATA, **options)
    assert files(directory) == before, "without `out` nothing is written"
    assert len(result.model.heads) == 2
    assert result.study is not None
    assert list(result.tables) == ["front", "search"]
    assert result.write("later") == Path("later")
    config, data = PruneConfig(**options), TaskData(**DATA)
    written = headscope.prune("bert", data, config, run=Run(out=Path("written")))
    assert str(written.plan.heads) == str(result.plan.heads)
    typed = json.loads((directory / "typed" / "cut.json").read_text("utf-8"))
    for out in ("later", "written"):
        assert files(directory / out) == files(directory / "typed")
        assert weights(directory / out) == weights(directory / "typed")
        same_tables(directory / out, directory / "typed", "front.csv")
        chosen = json.loads((directory / out / "cut.json").read_text("utf-8"))["chosen"]
        for name in ("config", "target", "metrics", "stages", "removed"):
            assert chosen[name] == typed["chosen"][name], name
    record = json.loads((directory / "typed" / "study" / "run.json").read_text("utf-8"))
    assert record["config"] == typed["chosen"]["config"]
    assert {"remove": 2, "search": "rank", "task": "sst2", "select_on": "dev:half-a"}.items() <= (
        record["config"].items()
    )
    assert not {"out", "resume", "overwrite"} & set(record["config"])


def test_named_heads_alone_are_removed_without_measurement(directory: Path) -> None:
    model = headscope.load("bert")
    removed = headscope.prune(model, "0.1")
    small = removed.model
    assert (removed.record, removed.study) == ({"how": "They were named."}, None)
    assert str(removed.plan.heads) == "0.1"
    assert headscope.prune(model, heads=[(0, 1)]).model.heads == small.heads
    assert str(headscope.prune(small, layers=1).plan.heads) == "1.*"
    removed.write("removed")
    assert headscope.load("removed").heads == small.heads
    assert headscope.prune(model, plan="removed/plan.json").model.heads == small.heads
    with pytest.raises(HeadscopeError, match=r"PruneResult is not a model.*Pass result.model"):
        headscope.evaluate(removed, **DATA)
    result = headscope.prune(model, [(0, 1)], form="plain")
    assert result.model.heads == small.heads
    assert (result.study, result.tables, result.form) == (None, {}, "plain")
    result.write("plain")
    assert BertForSequenceClassification.from_pretrained("plain").config.num_labels == 2
    again = headscope.prune(model, plan="plain/plan.json", out="again")
    assert str(again.plan.heads) == "0.1"
    assert not (directory / "again" / "study").exists()


def test_repairs_and_training_work_without_a_directory(directory: Path) -> None:
    glue(directory / "glue")
    before = files(directory)
    result = headscope.prune("bert", "0.1", task="sst2", data="glue", repair="fold", recover=1)
    assert list(result.record["stages"]) == ["cut", "fold", "recovered"]
    assert files(directory) == before
    folder = result.write("small")
    output = headscope.evaluate(folder, task="sst2", data="glue", split="dev:half-b")
    assert output["metrics"] == result.record["stages"]["recovered"]["metrics"]


def test_a_preview_writes_nothing(directory: Path) -> None:
    before = files(directory)
    plan = headscope.preview_prune("bert", **DATA, sparsity=0.5, search="rank")
    assert len(plan.plan.heads) == 2
    options = "--task sst2 --data dev.tsv --split dev:half-b"
    assert plan.measured_on == options.split()
    assert files(directory) == before


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"heads": "0.1", "task": "sst2"}, "prune requires `data`"),
    ({"heads": "0.1", "report_on": "dev"}, "`report_on` requires `task` and `data`"),
    ({"remove": 2, "out": "x"}, "a search for heads requires `task` and `data`"),
    ({"heads": "0.1", "split": "test", **DATA}, "`split` has no effect in prune"),
    ({"heads": "0.1", "mask": "star"}, "`mask` has no effect in prune"),
    ({"remove": 0, **DATA}, "`remove` must be at least 1, got 0"),
    ({"remove": 2, "swaps": -1, **DATA}, "`swaps` must be at least 0, got -1"),
    ({"remove": 2, "sizes": [0, 1], **DATA}, "`sizes` must be at least 1, got 0"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_what_prune_cannot_do_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(HeadscopeError) as error:
        headscope.prune("gone", **options)
    assert str(error.value).startswith(message)


def test_an_unknown_option_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="did you mean 'keep_metric'"):
        headscope.prune("gone", keep_metrics=0.9, **DATA)
    with pytest.raises(TypeError, match="takes `layers` without other options"):
        headscope.prune("gone", layers=5, form="plain")


def test_fix_with_a_task_is_the_command(directory: Path) -> None:
    words = "fixed-patterns bert --task sst2 --data dev.tsv --sizes 1,2 --batch-size 8 --out typed"
    done = CliRunner().invoke(app, words.split())
    assert done.exit_code == 0, done.output
    data, config = TaskData(**DATA), FixedPatternsConfig(sizes=(1, 2), batch_size=8)
    result = headscope.fixed_patterns("bert", data, config)
    assert not (directory / "later").exists()
    result.write("later")
    assert files(directory / "later") == files(directory / "typed")
    assert weights(directory / "later") == weights(directory / "typed")
    same_tables(directory / "later", directory / "typed", "fixing.csv")
    assert result.model.fixed == dict(sorted(result.patterns.items()))
    named = headscope.fixed_patterns("bert", {(0, 1): "previous"}, data=data, sizes=(1,))
    assert {str(head): name for head, name in named.patterns.items()} == {"encoder.0.1": "previous"}
    alone = headscope.fixed_patterns("bert", {(0, 1): "previous"})
    assert (alone.patterns, alone.study) == (named.patterns, None)
    assert alone.record == {"how": "Patterns were named."}
    alone.write("alone")
    assert headscope.load("alone").fixed == alone.model.fixed
    twice = headscope.fixed_patterns(alone.model, "1.0=first")
    assert {str(head) for head in twice.patterns} == {"encoder.1.0"}


def test_join_and_speed_return_what_the_commands_print(directory: Path) -> None:
    for name in ("rank", "greedy"):
        headscope.prune("bert", **DATA, remove=1, search=name, sizes=(1,), out=name)
    joined = headscope.join(["rank", "greedy"])
    assert set(joined.tables["fronts"]["search"]) == {"rank by gradient-second", "greedy"}
    result = headscope.speed("rank", against="bert", batch_size=1, length=8, repeats=2)
    assert [model.name for model in result.models] == ["bert", "rank"]
    assert result.layers is not None
    assert result.mask is None
    masked = headscope.speed("bert", mask="star", length=8, repeats=6, out="speed.svg")
    assert masked.mask is not None
    assert (directory / "speed.svg").exists()
    with pytest.raises(HeadscopeError, match="several values of `length` require `mask`"):
        headscope.speed("bert", length=(8, 16))
