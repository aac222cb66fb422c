"""Options that have an effect only with others: the table against the commands, and the same errors from Python."""

from __future__ import annotations

import inspect
import json
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

import headscope
from headscope.commands import app
from headscope.commands._flags import to_flags
from headscope.config.option import Config
from headscope.config.requirements import RULES, SEARCH_BY, check_effects
from headscope.errors import HeadscopeError
from headscope.model.attention_model import AttentionModel
from headscope.study.result import Result
from worded import sentiments, table

PYTHON_ONLY = {
    "texts",
    "sentences",
    "patterns",
    "column",
    "swaps",
}  # `column` is `--column` in the command line


def options_of(command: str) -> dict[str, Any]:
    """The options of a command by name, with their defaults."""
    result: Any = typer.main.get_command(app)
    for word in command.split(" "):
        result = result.commands[word]
    return {one.name: one.default for one in result.params}


@pytest.mark.parametrize("command", RULES)
def test_the_table_holds_options_of_the_command(command: str) -> None:
    options = options_of(command)
    for rule in RULES[command]:
        assert set(rule.options) <= set(options) | PYTHON_ONLY


@pytest.mark.parametrize("command", RULES)
def test_what_is_not_given_is_never_refused(command: str) -> None:
    check_effects(command, options_of(command), set())


SAVED = {"out": "new", "resume": True, "overwrite": True, "checkpoints": 2}
MASKED = {"mask": "star", "open_special": True}
SIZED = {
    "from_scratch": True,
    "layers": 2,
    "heads_per_layer": 2,
    "hidden": 8,
    "intermediate": 16,
    "vocabulary": 99,
}
READ = {"task": "stsb", "pooling": "first", "prompt": "query: "}
ON_TEXTS = {"corpus": ["texts.txt"], "pairs": True, "column": "a,b"}
SPLIT = {"task": "sst2", "data": "glue", "select_on": "dev", "report_on": "test"}
SEARCHED = {
    "task": "sst2",
    "data": "glue",
    "objective": "loss",
    "min_heads_per_layer": 1,
    "candidates": "0.*",
}
SEARCHED |= {
    "limit": 9,
    "sizes": "1,2",
    "try_repairs": "fold",
    "select_on": "dev",
    "report_on": "test",
}
SEARCHED |= {"report_limit": 9, "columns": "a=b", "labels": "a=b", "max_length": 9, "batch_size": 9}
SEARCHED |= {"seed": 1, "resume": True, "overwrite": True}
# Options that do have an effect together
USEFUL: list[tuple[str, dict[str, Any]]] = [
    (
        "analyze",
        MASKED
        | ON_TEXTS
        | {"long_texts": "skip", "frequency": "english", "word_pooling": "max", "all_rows": True},
    ),
    (
        "analyze",
        {
            "treebank": ["a.conllu"],
            "control": True,
            "lenient": True,
            "word_pooling": "max",
            "frequency": "english",
        },
    ),
    ("analyze", {"coreference": ["a.conll"], "lenient": True, "word_pooling": "max"}),
    (
        "analyze",
        {"sentences": ["a"], "control": True, "word_pooling": "max", "frequency": "english"},
    ),
    ("analyze", {"corpus": ["a"], "treebank": ["b"], "pairs": True, "long_texts": "window"}),
    ("analyze", {"texts": ["a"], "statistics": "entropy,twin-distance", "all_rows": True}),
    ("analyze", {"treebank": ["a"], "thresholds": ["relation=0.2"]}),
    ("analyze", {"corpus": ["a"], "frequency": "english", "thresholds": ["rare=0.2,sink=0.1"]}),
    ("analyze", {"corpus": ["a"], "thresholds": ["sink=0.1"]}),
    ("analyze", {"corpus": ["a"], "lens": "raw,gradient", "pooling": "last"}),
    ("compare", ON_TEXTS | {"models": ["a", "b"], "limit": 3, "max_length": 9, "batch_size": 2}),
    ("compare", {"models": ["a", "b"], "texts": ["a"]}),
    ("evaluate", MASKED | READ),
    ("evaluate", {"data": "glue", "split": "test"}),
    ("evaluate", READ | {"task": "retrieval"}),
    ("evaluate", READ | {"task": "similarity"}),
    (
        "analyze",
        ON_TEXTS
        | {
            "checkpoints": True,
            "model": "gone",
            "mask": "star",
            "open_special": True,
            "resume": True,
        },
    ),
    ("analyze", ON_TEXTS | {"revision": "main"}),
    (
        "analyze",
        {"checkpoints": True, "model": "gone", "treebank": ["a"], "thresholds": ["relation=0.2"]},
    ),
    ("finetune", MASKED | SIZED | READ | SAVED),
    ("fixed-patterns", {"heads": "0.*", **READ}),
    ("fixed-patterns", {"data": "glue", "select_on": "train", "report_on": "test"}),
    ("gate", SIZED | SPLIT | {"learning_rate": 1e-4, "settle": 0.5}),
    ("gate", SPLIT | {"freeze_weights": True}),
    ("gate", READ),
    ("gate", {"out": "gated", "resume": True, "overwrite": True}),
    ("gate", SPLIT | {"task": "mlm", "data": "datasets:owner/name"}),
    ("importance", MASKED | {"kind": "pair,layer", "heads": "0.1,0.2"}),
    ("importance", {"kind": "head,layer", "heads": "0.1", "sequential_test": 0.05, "mode": "mean"}),
    (
        "importance",
        {
            "by": "all",
            "kind": "pair",
            "heads": "0.*",
            "normalized": True,
            "relevance_rules": "attnlrp",
        },
    ),
    ("importance", {"by": "gradient", "normalized": True}),
    (
        "importance",
        {
            "by": "ablation,relevance",
            "relevance_rules": "voita",
            "mode": "fixed",
            "patterns": {"0.1": "first"},
        },
    ),
    ("importance", READ),
    ("importance", {"data": "glue", "split": "train"}),
    ("ablate-edges", MASKED),
    ("masks learn", SPLIT | {"learning_rate": 1e-4, "settle": 0.5}),
    ("masks learn", SPLIT | {"soft": True, "learning_rate": 1e-4}),
    ("masks learn", SPLIT | {"freeze_weights": True}),
    ("masks learn", READ | {"soft": True}),
    ("masks learn", {"objective": "mlm", "corpus": "texts.txt", "data": None}),
    ("masks learn", {"out": "masks", "resume": True, "overwrite": True}),
    ("look", MASKED | {"lens": "raw,relevance", "target": 1}),
    ("look", {"lens": "gradient", "target": 1, "pooling": "first"}),
    ("look", {"lens": "rollout,gradient-rollout", "pooling": "first"}),
    (
        "masks compare",
        {"start": "minilm", "epochs": 2, "learning_rate": 1e-4, "batch_size": 8, "limit": 9},
    ),
    (
        "masks compare",
        {"repair": 1, "mask": ["star"], "seeds": "0,1", "learning_rate": 1e-4, "batch_size": 8},
    ),
    ("masks compare", {"mask": ["star", "random:keep=0.3"], "seeds": "0,1"}),
    ("masks compare", {"seeds": "0,1"}),
    ("masks compare", READ),
    ("masks compare", {"out": "table", "resume": True, "overwrite": True}),
    ("masks compare", {"data": "glue", "report_on": "test"}),
    ("pretrain", MASKED | SAVED | {"epochs": 2}),
    ("pretrain", {"steps": 10}),
    (
        "prune",
        SEARCHED | {"remove": 3, "search": "beam", "beam_width": 2, "expansion": 4, "swaps": 2},
    ),
    (
        "prune",
        SEARCHED
        | {"keep_metric": 0.99, "search": "rank", "by": "relevance", "relevance_rules": "attnlrp"},
    ),
    ("prune", SEARCHED | {"sparsity": 0.3, "search": "iterative", "by": "norm", "step": 0.2}),
    ("prune", SEARCHED | {"speedup": 1.2, "search": "random", "draws": 5}),
    (
        "prune",
        {
            "remove": 3,
            "task": "sst2",
            "recover": 1,
            "distil": True,
            "learning_rate": 1e-4,
            "repair": "fold",
        },
    ),
    ("prune", {"heads": "0.1", "task": "sst2", "recover": 1, "seed": 1, "select_on": "dev"}),
    (
        "prune",
        {
            "plan": "plan.json",
            "task": "sst2",
            "repair": "refit",
            "select_on": "dev",
            "report_on": "test",
        },
    ),
    ("prune", {"remove": 3, "task": "sst2", "dry_run": True, "search": "greedy"}),
    (
        "prune",
        {"heads": "0.1", "pooling": "first", "prompt": "query: "},
    ),  # both are saved with the model
    ("serve", MASKED),
    ("speed", {"mask": "star", "out": "speed.svg"}),
    ("speed", {"against": "minilm"}),
]


@pytest.mark.parametrize(("command", "options"), USEFUL)
def test_options_that_have_an_effect_are_never_refused(
    command: str, options: dict[str, Any]
) -> None:
    values = options_of(command) | options
    check_effects(command, values, set(options))


@pytest.mark.parametrize("command", RULES)
def test_every_option_of_the_table_has_a_case_in_which_it_has_an_effect(command: str) -> None:
    options = {name for rule in RULES[command] for name in rule.options}
    assert options <= {name for one, inputs in USEFUL if one == command for name in inputs}


def test_checkpoints_may_open_special_tokens_under_the_mask_of_the_training(tmp_path: Path) -> None:
    options = {"checkpoints": True, "model": tmp_path, "corpus": ["a"], "open_special": True}
    with pytest.raises(
        HeadscopeError,
        match=r"^`open_special` requires `mask=NAME`, or checkpoints of a training with a mask",
    ):
        check_effects("analyze", options, {"open_special"})
    record = {"schema": 1, "model": {"edits": ["Masked('star')"]}}
    (tmp_path / "training.json").write_text(json.dumps(record), "utf-8")
    check_effects("analyze", options, {"open_special"})
    with pytest.raises(HeadscopeError, match=r"^`open_special` requires `mask=NAME`, or"):
        check_effects("analyze", options | {"mask": "dense"}, {"open_special"})


def never() -> AttentionModel:
    raise AssertionError("the model is loaded before the options are checked")


def never_for(task_class: str) -> AttentionModel:
    return never()


IMPORTANCE: list[tuple[dict[str, Any], str]] = [
    ({"by": "gradient", "kind": "shared"}, '`kind` requires `by="ablation"`'),
    ({"by": ["gradient"], "kind": ["only", "site"]}, '`kind` requires `by="ablation"`'),
    ({"by": "gradient", "mode": "mean"}, '`mode` requires `by="ablation"`'),
    ({"by": "gradient", "heads": "0.1"}, '`heads` requires `by="ablation"`'),
    ({"by": "gradient", "sequential_test": 0.05}, '`sequential_test` requires `by="ablation"`'),
    ({"normalized": True}, '`normalized` requires `by="gradient"`'),
    ({"relevance_rules": "voita"}, '`relevance_rules` requires `by="relevance"`'),
    ({"self_labels": True}, '`self_labels` requires `by="gradient"`'),
    (
        {"patterns": {headscope.Head("encoder", 0, 0): "first"}},
        '`patterns` requires `mode="fixed"`',
    ),
]


@pytest.mark.parametrize(("options", "message"), IMPORTANCE)
def test_importance_refuses_options_without_effect(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    table(tmp_path / "dev.tsv", ("sentence", "label"), sentiments(8))
    with pytest.raises(HeadscopeError, match=f"^{message}"):
        headscope.importance(never_for, task="sst2", data=tmp_path / "dev.tsv", **options)


ANALYZE: list[tuple[dict[str, Any], str]] = [
    ({"control": True}, "`control` requires `treebank=FILE`"),
    ({"lenient": True}, "`lenient` requires `treebank=FILE`"),
    ({"word_pooling": "max"}, "`word_pooling` requires `treebank"),
    (
        {"all_rows": True, "statistics": ["entropy"]},
        "`all_rows` requires `statistics` with twin-distance",
    ),
]


@pytest.mark.parametrize(("options", "message"), ANALYZE)
def test_analyze_refuses_options_without_effect(options: dict[str, Any], message: str) -> None:
    with pytest.raises(HeadscopeError, match=f"^{message}"):
        headscope.analyze(never, texts=["the cat"], **options)


def test_the_other_verbs_refuse_options_without_effect(tmp_path: Path) -> None:
    with pytest.raises(HeadscopeError, match=r"^`target` requires `lens`"):
        headscope.look("no-such-model", "the cat", target=1)
    with pytest.raises(HeadscopeError, match=r"^`target` requires `lens`"):
        headscope.token_map("no-such-model", "the cat", by="rollout", target=1)
    with pytest.raises(HeadscopeError, match=r"^`limit` requires `models="):
        headscope.compare([tmp_path, tmp_path], limit=3)
    with pytest.raises(HeadscopeError, match=r"^`open_special` requires `mask=NAME`"):
        headscope.finetune(
            "no-such-model", task="sst2", data=tmp_path, out=tmp_path / "x", open_special=True
        )
    with pytest.raises(HeadscopeError, match=r"^`open_special` requires `mask=NAME`"):
        headscope.pretrain(corpus=tmp_path / "texts.txt", out=tmp_path / "x", open_special=True)


def refused(message: str, call: Callable[[], object]) -> None:
    with pytest.raises(HeadscopeError) as error:
        call()
    assert str(error.value) == f"{message}. It has no effect otherwise."


FROZEN = "weights that are trained: leave `freeze_weights` out"
POOLED = "a task that compares vectors of texts: stsb or retrieval"
OUTSIDE_SEARCH = "a search (`remove=N`, `sparsity`, `keep_metric` or `speedup`); here `heads` or `plan` names the heads"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"freeze_weights": True, "settle": 0.5},
            f"`settle` requires {FROZEN}",
        ),
        (
            {"freeze_weights": True, "learning_rate": 1e-3},
            f"`learning_rate` requires {FROZEN}",
        ),
        (
            {"freeze_weights": True, "from_scratch": True},
            "`freeze_weights` requires trained weights: leave `from_scratch` out",
        ),
        (
            {"task": "mlm", "select_on": "dev"},
            "`select_on` requires a directory with train and dev files",
        ),
        ({"pooling": "first"}, f"`pooling` requires {POOLED}"),
        ({"prompt": "query: "}, f"`prompt` requires {POOLED}"),
    ],
)
def test_gate_refuses_options_without_effect(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    (tmp_path / "texts.txt").write_text("the cat\n", "utf-8")
    where = {"task": "sst2", "data": tmp_path / "texts.txt", "out": tmp_path / "new"}
    refused(message, lambda: headscope.gate("gone", keep=1, **(where | options)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"sparsity": None, "soft": True, "settle": 0.5},
            "`settle` requires a mask that becomes 0 or 1: leave `soft` out",
        ),
        (
            {"freeze_weights": True, "learning_rate": 1e-3},
            f"`learning_rate` requires {FROZEN}",
        ),
        (
            {"task": "mlm", "report_on": "test"},
            "`report_on` requires a directory with train and dev files",
        ),
        ({"pooling": "first"}, f"`pooling` requires {POOLED}"),
    ],
)
def test_learn_mask_refuses_options_without_effect(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    (tmp_path / "texts.txt").write_text("the cat\n", "utf-8")
    where = {"task": "sst2", "data": tmp_path / "texts.txt", "out": tmp_path / "new"}
    refused(
        message,
        lambda: headscope.learn_mask("gone", **(where | {"sparsity": 0.5} | options)),
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 1}, "`epochs` requires `start=MODEL`"),
        ({"limit": 3}, "`limit` requires `repair=N` or `start=MODEL`"),
        (
            {"mask": "star", "seeds": (0, 1)},
            "`seeds` requires `repair`, `start` or a mask that is drawn by chance",
        ),
        ({"prompt": "query: "}, f"`prompt` requires {POOLED}"),
    ],
)
def test_compare_masks_refuses_options_without_effect(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    where = {"task": "sst2", "data": tmp_path, "out": tmp_path / "new"}
    refused(message, lambda: headscope.compare_masks("gone", **(where | options)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"search": "greedy", "beam_width": 9}, '`beam_width` requires `search="beam"`'),
        ({"search": "rank", "swaps": 1}, '`swaps` requires `search="beam"`'),
        ({"by": "norm"}, f"`by` requires {SEARCH_BY}"),
        ({"search": "rank", "step": 0.2}, '`step` requires `search="iterative"`'),
        ({"draws": 9}, '`draws` requires `search="random"`'),
        (
            {"search": "rank", "by": "gradient", "relevance_rules": "attnlrp"},
            f'`relevance_rules` requires {SEARCH_BY} with `by="relevance"`',
        ),
    ],
)
def test_search_refuses_options_without_effect(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    refused(
        message,
        lambda: headscope.search("gone", task="sst2", data=tmp_path / "gone", remove=1, **options),
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_heads_per_layer": 1}, f"`min_heads_per_layer` requires {OUTSIDE_SEARCH}"),
        ({"search": "rank", "by": "norm"}, f"`search` requires {OUTSIDE_SEARCH}"),
        ({"sizes": (1, 2)}, f"`sizes` requires {OUTSIDE_SEARCH}"),
        ({"try_repairs": ("fold",)}, f"`try_repairs` requires {OUTSIDE_SEARCH}"),
        ({"seed": 1}, "`seed` requires a search or `recover`"),
        ({"distil": True}, "`distil` requires `recover=N`, as in `recover=1`"),
        ({"learning_rate": 1e-4}, "`learning_rate` requires `recover=N`, as in `recover=1`"),
    ],
)
def test_prune_refuses_options_without_effect(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    refused(message, lambda: headscope.prune("gone", "0.1", out=tmp_path / "new", **options))
    assert not (tmp_path / "new").exists()


def test_checkpoints_fixed_patterns_and_pretrain_refuse_options_without_effect(
    tmp_path: Path,
) -> None:
    new = tmp_path / "new"
    refused(
        "`pairs` requires `corpus=FILE`",
        lambda: headscope.analyze(
            tmp_path, checkpoints=True, out=new, treebank=tmp_path / "a.conllu", pairs=True
        ),
    )
    refused(
        "`thresholds` requires `treebank=FILE` for the threshold relation",
        lambda: headscope.analyze(
            tmp_path,
            checkpoints=True,
            out=new,
            corpus="a.txt",
            thresholds=headscope.Thresholds(relation=0.2),
        ),
    )
    refused(
        "`heads` requires that `patterns` is left out: they name heads",
        lambda: headscope.fixed_patterns(
            "gone", "0.1=first", heads="0.1", task="sst2", data=tmp_path, out=new
        ),
    )
    refused(
        "`epochs` requires that `steps` is left out",
        lambda: headscope.pretrain(corpus="a.txt", out=new, epochs=5, steps=3),
    )


def test_finetune_and_analyze_refuse_what_the_task_and_the_data_do_not_use(tmp_path: Path) -> None:
    refused(
        f"`pooling` requires {POOLED}",
        lambda: headscope.finetune(
            "gone", task="sst2", data=tmp_path, out=tmp_path / "new", pooling="first"
        ),
    )
    refused(
        "`thresholds` requires `frequency=SOURCE` for the threshold rare",
        lambda: headscope.analyze(
            never, texts=["the cat"], thresholds=headscope.Thresholds(rare=0.2)
        ),
    )


@pytest.mark.parametrize("split", ["test", "train", "test:odd"])
def test_one_file_has_no_other_split(tmp_path: Path, split: str) -> None:
    data = table(tmp_path / "stsb_dev.tsv", ("sentence", "label"), sentiments(8))
    for verb in (headscope.evaluate, headscope.importance):
        with pytest.raises(HeadscopeError, match=r"^`split` requires `data=DIRECTORY`"):
            verb(never_for, task="sst2", data=data, split=split)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("data", "split"),
    [
        ("dev.tsv", "dev:half-b"),
        ("pairs.tsv", "dev"),
        ("sst2_test.tsv", "test"),
        ("newstest2014.tsv", "test"),
        ("", "test"),
        ("datasets:a/b", "test"),
    ],
)
def test_a_split_that_the_data_has_is_taken(tmp_path: Path, data: str, split: str) -> None:
    for name in ("dev.tsv", "pairs.tsv", "sst2_test.tsv", "newstest2014.tsv"):
        table(tmp_path / name, ("sentence", "label"), sentiments(8))
    path = data if data.startswith("datasets:") else str(tmp_path / data)
    check_effects("evaluate", {"data": path, "split": split, "mask": None}, {"split"})


def test_texts_may_be_an_array_or_a_column() -> None:
    column = pd.Series(["a", "b"])
    for texts in (["a", "b"], column, column.to_numpy(dtype=object)):
        check_effects(
            "compare", options_of("compare") | {"models": ["a", "b"], "texts": texts}, {"texts"}
        )
        with pytest.raises(HeadscopeError, match=r"requires `models=\[A, B\]`"):
            check_effects("compare", options_of("compare") | {"texts": texts}, {"texts"})


def test_an_option_that_is_given_with_its_default_is_refused_in_python_and_the_shell() -> None:
    task = {"task": "sst2", "data": "gone"}
    message = r"^`beam_width` requires `search=\"beam\""
    with pytest.raises(HeadscopeError, match=message):
        headscope.search("no-such-model", **task, remove=3, search="greedy", beam_width=3)
    words = ["prune", "no-such-model", "--task", "sst2", "--data", "gone", "--remove", "3"]
    words += ["--search", "greedy", "--beam-width", "3", "--out", "gone"]
    result = CliRunner().invoke(app, words)
    assert str(result.exception).startswith("--beam-width requires --search beam")


def test_missing_texts_are_refused_alike_in_python_and_the_shell(tmp_path: Path) -> None:
    with pytest.raises(HeadscopeError) as error:
        headscope.analyze("no-such-model", out=tmp_path / "new")
    result = CliRunner().invoke(app, ["analyze", "no-such-model", "--out", str(tmp_path / "new")])
    assert str(result.exception) == to_flags(str(error.value))


def test_a_flag_of_another_name_than_its_field_is_translated_by_one_table() -> None:
    shown = {"thresholds": "--threshold", "architecture": "--config", "batch_size": "--batch-size"}
    assert {name: to_flags(f"`{name}`") for name in shown} == shown


def test_every_config_and_result_of_a_public_function_is_public() -> None:
    for name in headscope.__all__:
        function = inspect.unwrap(getattr(headscope, name))
        if inspect.isfunction(function):
            hints = typing.get_type_hints(function)
            kinds = [k for hint in hints.values() for k in (hint, *typing.get_args(hint))]
            for kind in kinds:
                if (
                    inspect.isclass(kind)
                    and issubclass(kind, Config | Result)
                    and kind is not Result
                ):
                    assert getattr(headscope, kind.__name__) is kind
    assert "save" not in headscope.__all__
