"""Probes from files to tables."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch
from forest import NO_VECTORS, random_tree
from typer.testing import CliRunner

from coreferent import LETTERS, reader
from headscope.analysis.parsed_sentences import Treebanks, make_batches, words_of
from headscope.analysis.probe import PROBES, Probes
from headscope.analysis.probe_models import (
    AttentionOnly,
    DistanceAndWords,
    Probe,
    RightBranching,
    score,
)
from headscope.analysis.word_maps import WordMaps, reading_heads
from headscope.api.probe import probe
from headscope.commands import app
from headscope.errors import HeadscopeError
from headscope.study.schema.tables import TABLES


def conllu(sentences: list[tuple[list[str], list[int]]], relation: str = "dep") -> str:
    """The last word of each is punctuation."""
    lines = []
    for words, governors in sentences:
        for i, (word, governor) in enumerate(zip(words, governors, strict=True), start=1):
            name = "root" if governor == 0 else "punct" if i == len(words) else relation
            lines.append(f"{i}\t{word}\t_\tX\t_\t_\t{governor}\t{name}\t_\t_\n")
        lines.append("\n")
    return "".join(lines)


def sentences(count: int, seed: int) -> list[tuple[list[str], list[int]]]:
    draw = random.Random(seed)
    made = []
    for _ in range(count):
        size = draw.randrange(3, 8)
        words = ["".join(draw.choices(LETTERS, k=draw.choice((1, 1, 2)))) for _ in range(size)]
        made.append((words, random_tree(draw, size)))
    return made


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("train.conllu").write_text(conllu(sentences(40, 0)), "utf-8")
    Path("test.conllu").write_text(conllu(sentences(30, 1)), "utf-8")
    return tmp_path


def test_a_run_gives_every_probe_with_its_interval_and_the_weights_of_every_head(
    files: Path,
) -> None:
    calls: list[tuple[int, int]] = []
    result = probe(
        reader(),
        "train.conllu",
        test="test.conllu",
        dimensions=5,
        epochs=2,
        progress=lambda *it: calls.append(it),
    )
    assert list(result.table.columns) == TABLES["probes"].names
    assert tuple(result.table["probe"]) == PROBES
    expected = [0, (2 * 5 + 8) * 256 + 512, 8 * 11 + 2, 8 + 2, 8 * 11 + 2]
    assert result.table["parameters"].tolist() == expected
    scored = sum(
        not (i == len(words) and governor > 0)
        for words, governors in sentences(30, 1)
        for i, governor in enumerate(governors, start=1)
    )
    assert result.table["count"].tolist() == [scored] * 5
    assert (
        (result.table["low"] <= result.table["uas"]) & (result.table["uas"] <= result.table["high"])
    ).all()
    branching = sum(
        governor == (i + 1 if i < len(words) else 0)
        for words, governors in sentences(30, 1)
        for i, governor in enumerate(governors, start=1)
        if not (i == len(words) and governor > 0)
    )
    assert result.table["uas"][0] == pytest.approx(branching / scored)
    assert list(result.weights.columns) == ["stack", "layer", "head", "dependent", "governor"]
    assert len(result.weights) == 4
    assert calls[-1] == (240, 240)
    assert result.record["test"]["used"] == 30
    assert result.record["vectors"] == {"files": [], "dimensions": 5, "known": 1.0}


def test_the_same_seed_gives_the_same_numbers_whatever_is_kept(files: Path) -> None:
    first, other = (
        probe(reader(), "train.conllu", test="test.conllu", epochs=2, memory=memory)
        for memory in (0, 1024)
    )
    pd.testing.assert_frame_equal(first.table, other.table, check_exact=True)
    pd.testing.assert_frame_equal(first.weights, other.weights, check_exact=True)


def test_how_sentences_are_batched_does_not_change_what_a_probe_says(files: Path) -> None:
    model, heads = reader(), reading_heads(reader())
    data = Treebanks(["train.conllu"], ["test.conllu"], False, None, 0)
    data.encode(model, None)
    batches = make_batches(data.test, NO_VECTORS, words_of, len(heads), 0)
    alone = [
        replace(
            trees,
            governors=trees.governors[i : i + 1, :size],
            scored=trees.scored[i : i + 1, :size],
            words=trees.words[i : i + 1, :size],
            encoded=trees.encoded[i : i + 1],
            numbers=trees.numbers[i : i + 1],
        )
        for trees in batches
        for i, size in enumerate(trees.present.sum(dim=1).tolist())
    ]
    assert len(alone) == 30
    only = AttentionOnly(len(heads))
    only.weight.data = (
        torch.randn(only.weight.shape, generator=torch.Generator().manual_seed(0)) * 5
    )
    probes: dict[str, Probe] = {
        "only": only,
        "branching": RightBranching(),
        "distance": DistanceAndWords(1),
    }
    together, apart = (
        score(probes, some, WordMaps(model, heads), NO_VECTORS) for some in (batches, alone)
    )
    assert together == apart


def test_one_treebank_is_cut_into_halves(files: Path) -> None:
    result = probe(reader(), "train.conllu", epochs=1)
    train, test = result.record["train"], result.record["test"]
    assert (train["half"], test["half"]) == ("train", "test")
    assert train["used"] + test["used"] == 40
    assert min(train["used"], test["used"]) > 8


def test_a_model_without_special_tokens_is_probed_too(files: Path) -> None:
    result = probe(reader("gpt2"), "train.conllu", test="test.conllu", epochs=1)
    assert result.table["uas"].between(0, 1).all()
    assert set(result.weights["stack"]) == {"decoder"}


NONE = "Expected sentences in CoNLL-U that the model can read."


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"test": "punctuation.conllu"},
            "punctuation.conllu: no sentence with words other than punctuation is left to be scored on. "
            + NONE,
        ),
        (
            {"limit": 1},
            "train.conllu: no sentence with words other than punctuation is left to be scored on. "
            + NONE
            + " Give others with `test`: one file is split into two halves.",
        ),
        (
            {"test": "test.conllu", "max_length": 4},
            "train.conllu: no sentence with words other than punctuation is left to train on "
            "(40 too long, 30 too long). " + NONE,
        ),
        ({"epochs": 0}, "`epochs` must be at least 1, got 0."),
        ({"dimensions": 0}, "`dimensions` must be at least 1, got 0."),
    ],
)
def test_what_leaves_nothing_to_probe_is_reported(
    options: dict[str, object], message: str, files: Path
) -> None:
    Path("punctuation.conllu").write_text("1\t.\t_\tPUNCT\t_\t_\t0\troot\t_\t_\n\n", "utf-8")
    with pytest.raises(HeadscopeError) as error:
        probe(reader(), "train.conllu", **options)  # type: ignore[arg-type]
    assert str(error.value) == message


def test_the_command_writes_tables_and_record(files: Path) -> None:
    model = reader()
    assert model.tokenizer is not None
    model.model.float().save_pretrained("model")
    model.tokenizer.save_pretrained("model")
    Path("v.txt").write_text(
        "".join(f"{letter} {i} {i * i}\n" for i, letter in enumerate(LETTERS)), "utf-8"
    )
    command = "probe model --treebank train.conllu --test test.conllu --vectors v.txt --epochs 1 --out out"
    output = CliRunner().invoke(app, command.split(), catch_exceptions=False)
    assert output.exit_code == 0
    assert [line.split()[0] for line in output.stdout.splitlines()] == ["probe", *PROBES]
    assert tuple(pd.read_csv("out/probes.csv")["probe"]) == PROBES
    assert len(pd.read_csv("out/probe_weights.csv")) == 4
    record = json.loads(Path("out/run.json").read_text("utf-8"))
    assert record["vectors"]["files"][0]["path"] == "v.txt"
    assert 0.3 < record["vectors"]["known"] < 0.9


def test_a_directory_of_probes_is_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, weights = pd.DataFrame({"probe": ["right-branching"]}), pd.DataFrame({"head": [0]})
    result = Probes(table, weights, {"schema": 1})
    with monkeypatch.context() as broken:
        broken.setattr(weights, "to_csv", lambda *_, **__: 1 / 0)  # after probes.csv was written
        with pytest.raises(ZeroDivisionError):
            result.write(tmp_path / "probes")
    assert list(tmp_path.iterdir()) == [], "neither the directory nor a part of it"
    assert result.write(tmp_path / "probes") == tmp_path / "probes"
    assert {file.name for file in (tmp_path / "probes").iterdir()} == {
        "probes.csv",
        "probe_weights.csv",
        "run.json",
    }
    with pytest.raises(HeadscopeError, match="already there"):
        result.write(tmp_path / "probes")


def test_probes_that_cannot_be_written_leave_the_earlier_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Probes(pd.DataFrame({"probe": ["first"]}), pd.DataFrame({"head": [0]}), {"schema": 1})
    first.write(tmp_path / "probes")
    second = Probes(pd.DataFrame({"probe": ["second"]}), pd.DataFrame({"head": [0]}), {"schema": 1})
    monkeypatch.setattr(second.weights, "to_csv", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        second.write(tmp_path / "probes", overwrite=True)
    assert pd.read_csv(tmp_path / "probes" / "probes.csv")["probe"].tolist() == ["first"]
