"""How a text becomes one vector: what the files state, what pooling computes, and what is refused by name."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertModel, GPT2Model

from embedding import TEXTS, embedding, random_decoder, vectors_of, write
from headscope import load
from headscope.api.evaluate import evaluate
from headscope.config.poolings import POOLINGS
from headscope.errors import HeadscopeError, HeadscopeWarning
from headscope.model.attention_model import AttentionModel
from headscope.model.reading import Dense, Normalize, TextReading
from headscope.model.reading_files import read_reading
from headscope.model.relevance.targets import component_along
from headscope.tasks import get_task
from worded import saved, sentence, table, tokenizer, worded

CHANCE = random.Random(3)
ROWS = [(sentence(CHANCE), sentence(CHANCE), round(CHANCE.uniform(0, 5), 1)) for _ in range(15)]
NAMES = ("sentence1", "sentence2", "score")


# Files


@pytest.mark.parametrize("new", [False, True])
@pytest.mark.parametrize(
    ("stated", "pooling"),
    [
        ("mean", "mean"),
        ("cls", "first"),
        ("lasttoken", "last"),
        ("max", "max"),
        ("mean_sqrt_len_tokens", "mean_sqrt_len"),
        ("weightedmean", "weightedmean"),
    ],
)
def test_pooling_is_read_in_both_formats(
    stated: str, pooling: str, new: bool, tmp_path: Path
) -> None:
    result = read_reading(embedding(tmp_path, stated, new=new))
    assert (result.pooling, result.stated_by, result.problem) == (
        pooling,
        "1_Pooling/config.json",
        None,
    )
    assert [type(module) for module in result.modules] == [Normalize]


def test_everything_else_is_read(tmp_path: Path) -> None:
    prompts = {
        "prompts": {"query": "who is "},
        "default_prompt_name": "query",
        "similarity_fn_name": "dot",
    }
    dense = "torch.nn.modules.activation.Tanh"
    result = read_reading(
        embedding(
            tmp_path, normalize=False, dense=dense, length=12, prompts=prompts, include_prompt=False
        )
    )
    assert (result.max_length, result.include_prompt, result.similarity) == (12, False, "dot")
    assert result.prompt_for() == result.prompt_for("query") == "who is "
    assert result.prompt_for("document") == ""
    (module,) = result.modules
    assert isinstance(module, Dense)
    assert module.weight.shape == (6, 16)


def test_a_directory_without_modules_states_nothing(tmp_path: Path) -> None:
    result = load(saved(tmp_path, BertModel)).reading
    assert (result.pooling, result.modules, result.files) == (None, (), {})


def set_type(folder: Path, position: int, kind: str) -> None:
    modules = json.loads((folder / "modules.json").read_text("utf-8"))
    modules[position]["type"] = kind
    write(folder / "modules.json", modules)


def set_path(folder: Path, position: int, path: str) -> None:
    modules = json.loads((folder / "modules.json").read_text("utf-8"))
    modules[position]["path"] = path
    write(folder / "modules.json", modules)


def change(folder: Path, name: str, **values: Any) -> None:
    write(folder / name, {**json.loads((folder / name).read_text("utf-8")), **values})


def drop_weights(folder: Path) -> None:
    (folder / "2_Dense" / "model.safetensors").rename(folder / "2_Dense" / "pytorch_model.bin")


@pytest.mark.parametrize(
    ("spoil", "match"),
    [
        (
            lambda folder: set_type(folder, 2, "sentence_transformers.models.CNN"),
            r"sentence_transformers\.models\.CNN",
        ),
        (
            lambda folder: set_type(folder, 2, "my_code.Normalize"),
            r"my_code\.Normalize is not supported",
        ),
        (
            lambda folder: set_type(folder, 0, "sentence_transformers.models.BoW"),
            "first module is .*BoW",
        ),
        (
            lambda folder: set_type(folder, 1, "sentence_transformers.models.Normalize"),
            "no Pooling follows",
        ),
        (
            lambda folder: change(folder, "1_Pooling/config.json", pooling_mode="median"),
            '"median" is not supported',
        ),
        (
            lambda folder: change(folder, "1_Pooling/config.json", pooling_mode=["cls", "mean"]),
            "cls and mean at once",
        ),
        (
            lambda folder: change(folder, "2_Dense/config.json", activation_function="os.system"),
            "os.system",
        ),
        (lambda folder: change(folder, "2_Dense/config.json", use_residual=True), "use_residual"),
        (
            lambda folder: change(
                folder, "2_Dense/config.json", module_input_name="token_embeddings"
            ),
            "token_embeddings",
        ),
        (drop_weights, r"2_Dense has no model\.safetensors"),
        (
            lambda folder: (folder / "1_Pooling" / "config.json").write_text("{"),
            r"1_Pooling/config\.json is not JSON",
        ),
        (lambda folder: write(folder / "modules.json", {}), "not a list of modules"),
        (
            lambda folder: write(folder / "modules.json", [{"path": "../x", "type": "a"}]),
            "leads out of the directory",
        ),
        (lambda folder: set_path(folder, 1, "."), "Pooling has no directory of its own"),
        (lambda folder: set_path(folder, 1, ""), "Pooling has no directory of its own"),
        (
            lambda folder: write(folder / "sentence_bert_config.json", {"max_seq_length": -1}),
            "positive number, got -1",
        ),
    ],
)
def test_what_cannot_be_read_is_refused_by_name_when_it_is_needed(
    spoil: Any, match: str, tmp_path: Path
) -> None:
    folder = embedding(tmp_path / "model", dense="torch.nn.modules.linear.Identity")
    spoil(folder)
    model = load(folder)  # attention can be looked at all the same
    with pytest.raises(HeadscopeError, match=match):
        get_task("stsb").check(model)
    with pytest.raises(HeadscopeError, match=match):
        model.save(tmp_path / "again")
    assert not (tmp_path / "again").exists()
    get_task("stsb").check(load(folder, pooling="mean"))


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    folder = embedding(tmp_path / "model", dense="torch.nn.modules.linear.Identity")
    (folder / "2_Dense" / "model.safetensors").unlink()
    touched = tmp_path / "touched"
    (folder / "2_Dense" / "pytorch_model.bin").write_bytes(
        b"cbuiltins\nopen\n(V" + str(touched).encode() + b"\nVw\ntR."
    )
    assert load(folder).reading.problem is not None
    assert not touched.exists()


# Pooling, written out


def by_hand(pooling: str, states: list[list[float]]) -> list[float]:
    count, columns = len(states), list(zip(*states, strict=True))
    if pooling == "first":
        return states[0]
    if pooling == "last":
        return states[-1]
    if pooling == "max":
        return [max(column) for column in columns]
    if pooling == "weightedmean":
        weights = range(1, count + 1)
        return [
            sum(w * x for w, x in zip(weights, column, strict=True)) / sum(weights)
            for column in columns
        ]
    return [sum(column) / (count if pooling == "mean" else math.sqrt(count)) for column in columns]


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("pooling", POOLINGS)
def test_pooling_is_that_written_out(pooling: str, side: str) -> None:
    states = torch.randn(3, 7, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    real = torch.zeros(3, 7, dtype=torch.long)
    for row, length in enumerate((7, 4, 1)):
        real[row, slice(length) if side == "right" else slice(7 - length, 7)] = 1
    result = TextReading(pooling=pooling).pool(states, real)
    for row in range(3):
        assert result[row].tolist() == pytest.approx(
            by_hand(pooling, states[row][real[row].bool()].tolist())
        )


@pytest.mark.parametrize("pooling", POOLINGS)
def test_derivatives_are_finite_differences(pooling: str) -> None:
    noise = torch.Generator().manual_seed(2)
    states = torch.randn(2, 4, 3, generator=noise, dtype=torch.float64, requires_grad=True)
    real = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    direction = torch.randn(2, 3, generator=noise, dtype=torch.float64)
    reading = TextReading(pooling=pooling, modules=(Normalize("2_Normalize"),))
    output = component_along(reading.vectors(states, real, hold_lengths=True), direction)
    (slope,) = torch.autograd.grad(output.sum(), states)
    plain = TextReading(pooling=pooling)
    lengths = plain.pool(states.detach(), real).norm(dim=-1)  # held fixed

    def value(moved: torch.Tensor) -> float:
        return float(((plain.pool(moved, real) * direction).sum(dim=-1) / lengths).sum())

    for cell in np.ndindex(*states.shape):
        step = torch.zeros_like(states)
        step[cell] = 1e-6
        difference = (value(states.detach() + step) - value(states.detach() - step)) / 2e-6
        assert float(slope[cell]) == pytest.approx(difference, abs=1e-6)
    if pooling in ("first", "last", "max"):
        assert float(slope[1, 2:].abs().max()) == 0  # padding
        assert (
            int((slope[0].abs() > 0).sum(dim=0).max()) == 1
        )  # each number of the vector is one token's


# Tasks


def test_a_task_uses_the_stated_pooling(tmp_path: Path) -> None:
    data = table(tmp_path / "stsb_dev.tsv", NAMES, ROWS)
    first, mean = (load(embedding(tmp_path / mode, mode)) for mode in ("cls", "mean"))
    result = {
        name: evaluate(model, task="stsb", data=data)
        for name, model in (("first", first), ("mean", mean))
    }
    vectors = {i: vectors_of(first, list(row[:2])) for i, row in enumerate(ROWS)}
    losses = [(float(vectors[i][0] @ vectors[i][1]) - ROWS[i][2] / 5) ** 2 for i in vectors]
    assert result["first"]["metrics"]["loss"]["value"] == pytest.approx(
        sum(losses) / len(losses), abs=1e-5
    )
    assert (
        abs(
            result["first"]["metrics"]["loss"]["value"] - result["mean"]["metrics"]["loss"]["value"]
        )
        > 1e-3
    )


def test_the_default_is_named_once_where_nothing_is_stated(tmp_path: Path) -> None:
    data = table(tmp_path / "stsb_dev.tsv", NAMES, ROWS)
    with pytest.warns(
        HeadscopeWarning, match="no file states the pooling.*the mean of the token states is used"
    ):
        evaluate(worded(BertModel), task="stsb", data=data)


def test_a_decoder_without_a_statement_is_refused(tmp_path: Path) -> None:
    model = AttentionModel(random_decoder(), tokenizer(ends=True), name="decoder")
    with pytest.raises(
        HeadscopeError, match=r'for a decoder there is no default\. Pass `pooling="last"`'
    ):
        get_task("stsb").check(model)
    random_decoder().save_pretrained(tmp_path)
    tokenizer(ends=True).save_pretrained(tmp_path)
    get_task("stsb").check(load(tmp_path, pooling="last"))
    get_task("stsb").check(load(embedding(tmp_path / "stated", "lasttoken", kind=GPT2Model)))


def test_a_pooling_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        HeadscopeError, match=r'`pooling` must be mean, first, last, .* got "median"'
    ):
        load(saved(tmp_path, BertModel), pooling="median")


def test_questions_and_paragraphs_have_prompts_of_their_own(tmp_path: Path) -> None:
    prompts = {"prompts": {"query": "who is ", "passage": "the old "}}
    model = load(embedding(tmp_path / "model", prompts=prompts, include_prompt=False))
    texts = ["a cat", "a dog sat", "the red house", "a warm mat"]
    paragraphs = [
        {
            "context": context,
            "qas": [
                {"id": name, "question": question, "answers": [{"text": "", "answer_start": 0}]}
            ],
        }
        for name, context, question in (("a", *texts[:2]), ("b", *texts[2:]))
    ]
    write(tmp_path / "dev.json", {"data": [{"title": "t", "paragraphs": paragraphs}]})
    task = get_task("retrieval")
    prepared = task.prepare(model, task.items(tmp_path / "dev.json"))
    assert model.tokenizer is not None
    read = [model.tokenizer.decode(sequence.source.ids) for sequence in prepared.sequences]
    assert read == [
        "[CLS] the old a cat [SEP]",
        "[CLS] the old the red house [SEP]",
        "[CLS] who is a dog sat [SEP]",
        "[CLS] who is a warm mat [SEP]",
    ]
    assert prepared.extras.skipped == (3, 3, 3, 3)


def test_every_text_is_pooled_alike_in_any_batch() -> None:
    model = worded(BertModel)
    for pooling in POOLINGS:
        model.reading = TextReading(pooling=pooling)
        together = vectors_of(model, TEXTS[:5])
        for row, text in enumerate(TEXTS[:5]):
            assert float((vectors_of(model, [text])[0] - together[row]).abs().max()) < 1e-5
