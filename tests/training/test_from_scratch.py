"""Training with new weights: of the model's kind, in any size; an encoder-decoder that learns to translate."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForSeq2SeqLM, BertForSequenceClassification
from typer.testing import CliRunner

import headscope
from headscope import FinetuneConfig, ModelSizes, Run, TaskData
from headscope.commands import app
from headscope.data.vocabulary import train_tokenizer
from headscope.errors import HeadscopeError
from headscope.model.new_model import Architecture, Source, new_model, resize_config
from headscope.tasks import get_task
from headscope.tasks.prepared import batch_of
from worded import PLAIN, glue, saved, translator

ENCODERS = ["albert", "bert", "deberta-v2", "distilbert", "electra", "modernbert", "roberta"]


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def saved_translator(folder: Path) -> Path:
    """With embeddings as large as positions, as the real ones are: else new words are hardly seen beside them."""
    made = translator()
    made.model.config.scale_embedding = True
    made.model.save_pretrained(folder)
    made.tokenizer.save_pretrained(folder)  # type: ignore[union-attr]
    return folder


def copies(folder: Path, train: int = 160, dev: int = 24) -> Path:
    """Pairs whose target repeats the first word of the source: what cross attention is for."""
    chance = random.Random(5)
    folder.mkdir()
    for name, count in (("train", train), ("dev", dev)):
        words = [chance.choice(PLAIN[:4]) for _ in range(count)]
        (folder / f"{name}.tsv").write_text(
            "".join(f"{word}\t{word} {word} {word}\n" for word in words), "utf-8"
        )
    return folder


def test_an_encoder_decoder_learns_from_nothing_and_its_bleu_is_measured(directory: Path) -> None:
    saved_translator(directory / "mt")
    copies(directory / "data")
    config = FinetuneConfig(
        *(1, 2, 32), from_scratch=True, epochs=8, batch_size=8, learning_rate=3e-3
    )
    data = TaskData("translation", "data")
    record = headscope.finetune("mt", data, config, run=Run(out=Path("made"))).record
    losses = [epoch["dev_loss"] for epoch in record["epochs"]]
    assert (
        losses[-1] < 0.5 * math.log(4) / 4
    )  # without the source the first of four tokens costs twice that
    assert losses[-1] < losses[0]
    assert record["config"]["hidden"] == 32
    made = AutoModelForSeq2SeqLM.from_pretrained("made")
    assert (made.config.d_model, made.config.encoder_layers, made.config.decoder_ffn_dim) == (
        32,
        1,
        128,
    )
    result = headscope.evaluate("made", task="bleu", data="data")
    assert 0 <= result["metrics"]["bleu"]["value"] <= 100


def test_weights_are_new_and_follow_from_the_seed(directory: Path) -> None:
    saved(directory / "bert", BertForSequenceClassification, num_labels=2)
    glue(directory / "data", train=16, dev=8)
    for out, seed in (("one", 0), ("again", 0), ("other", 1)):
        options = {"epochs": 1, "batch_size": 8, "learning_rate": 1e-9, "from_scratch": True}
        headscope.finetune("bert", "data", task="sst2", out=out, seed=seed, **options)
    first, again, other = (
        Path(out, "model.safetensors").read_bytes() for out in ("one", "again", "other")
    )
    assert first == again
    assert first != other
    new, old = (headscope.load(name).model.state_dict() for name in ("one", "bert"))
    for name, value in new.items():
        if "weight" in name and "LayerNorm" not in name:
            assert not torch.allclose(value, old[name], atol=1e-4), name
    assert headscope.load("one").model.config.label2id == {"0": 0, "1": 1}


@pytest.mark.parametrize("family", ENCODERS)
def test_every_family_is_made_in_another_size(family: str) -> None:
    tokens = train_tokenizer(["the cat sat"], 300)
    source = Source(family, AutoConfig.for_model(family))
    sizes = ModelSizes(2, 4, 32)
    new = Architecture(source, "AutoModelForMaskedLM", sizes, max_length=24)
    model = new_model(new, tokens)
    assert len(model.heads) == 8
    assert model.model.get_input_embeddings().weight.shape[0] == len(tokens)
    with torch.no_grad():
        ids = torch.randint(4, len(tokens), (1, 24))
        assert model(input_ids=ids).logits.shape == (1, 24, len(tokens))


def test_a_model_that_knows_no_segments_is_given_none_and_can_be_masked() -> None:
    tokens = train_tokenizer(["the cat sat on the mat"], 300)
    made = {}
    for family in ("modernbert", "bert"):
        source = Source(family, AutoConfig.for_model(family))
        sizes = ModelSizes(2, 4, 32)
        new = Architecture(source, "AutoModelForMaskedLM", sizes, max_length=24)
        made[family] = new_model(new, tokens)
    batches = {
        family: next(headscope.encode(model, [("the cat", "sat")]))
        for family, model in made.items()
    }
    assert {family: "token_type_ids" in batch.inputs for family, batch in batches.items()} == {
        "modernbert": False,
        "bert": True,
    }
    for family, model in made.items():
        with torch.no_grad(), model.edited(headscope.Masked("star")):
            assert model(batches[family]).logits.isfinite().all()


@pytest.mark.parametrize("layers", [2, 7])
def test_kinds_of_layers_follow_their_number_and_are_saved(layers: int, tmp_path: Path) -> None:
    settings = {
        "model_type": "modernbert",
        "num_hidden_layers": 4,
        "num_attention_heads": 2,
        "hidden_size": 8,
    }
    config = AutoConfig.for_model(**settings, global_attn_every_n_layers=2)
    made = resize_config(config, ModelSizes(layers=layers))
    made.save_pretrained(tmp_path)
    assert AutoConfig.from_pretrained(tmp_path).layer_types == [
        config.layer_types[i % 4] for i in range(layers)
    ]


def test_a_family_that_counts_another_token_as_padding_is_refused() -> None:
    source = Source("mpnet", AutoConfig.for_model("mpnet"))
    new = Architecture(source, "AutoModelForMaskedLM", ModelSizes(1, 2, 16))
    with pytest.raises(
        HeadscopeError, match="mpnet takes token 1 for padding, the tokenizer token 0"
    ):
        new_model(new, train_tokenizer(["the cat sat"], 300))


def test_smoothed_targets_are_learned_from_and_plain_ones_judged(directory: Path) -> None:
    model, task = translator(), get_task("translation")
    items = task.items(copies(directory / "data") / "dev.tsv")
    prepared = task.prepare(model, items)
    task.smoothing = 0.2
    batch = batch_of(model, prepared, range(4))
    with torch.no_grad():
        judged = task.extract_answers(task.call(model, batch), batch, prepared)
    with torch.enable_grad():
        learned = task.extract_answers(task.call(model, batch), batch, prepared)
    assert prepared.labels is not None
    for i in range(4):
        with torch.no_grad():
            logits = model.model(
                **{name: value[i : i + 1] for name, value in batch.inputs.items()}
            ).logits[0]
        logs = logits.log_softmax(dim=-1)
        plain = sum(-logs[at, label].item() for at, label in enumerate(prepared.labels[i]))
        spread = sum(-logs[at].mean().item() for at in range(len(prepared.labels[i])))
        assert judged[i, 0].item() == pytest.approx(plain, rel=1e-4)
        assert learned[i, 0].item() == pytest.approx(0.8 * plain + 0.2 * spread, rel=1e-4)


REFUSED = [
    (
        ("bert", "--task", "sst2", "--layers", "1"),
        "--layers requires --from-scratch.",
    ),
    (
        ("bert", "--task", "sst2", "--label-smoothing", "0.1"),
        "--label-smoothing: must be 0 for sst2, which has no target tokens, got 0.1.",
    ),
    (
        ("bert", "--task", "sst2", "--label-smoothing", "1"),
        "--label-smoothing must be at least 0 and below 1, got 1.",
    ),
    (
        ("bert", "--task", "sst2", "--checkpoints", "99"),
        "--checkpoints: a training of 3 steps can keep 2 to 4 checkpoints, got 99.",
    ),
    (("bert", "--task", "translation", "--from-scratch"), "bert: bert has no Seq2SeqLM."),
    (
        ("bert", "--task", "sst2", "--from-scratch", "--heads-per-layer", "5"),
        "--heads-per-layer, --hidden: the hidden size must be a multiple of the number of heads, got 16 and 5",
    ),
    (
        ("bert", "--task", "sst2", "--data", "data/sst2_dev.tsv"),
        "data/sst2_dev.tsv: one file cannot be both",
    ),
    (
        ("bert", "--task", "translation", "--data", "a.en,a.fr"),
        "a.en,a.fr: two files are one split.",
    ),
    (("bert", "--task", "sst2", "--data", "devs"), "devs: no file for train here, only dev.tsv."),
]


@pytest.mark.parametrize(("words", "message"), REFUSED)
def test_what_cannot_be_trained_is_refused_in_a_line(
    words: tuple[str, ...], message: str, directory: Path
) -> None:
    saved(directory / "bert", BertForSequenceClassification, num_labels=2)
    glue(directory / "data", train=8, dev=8)
    pairs = "the cat\ta dog\n" * 8
    for name in ("train", "dev"):
        (directory / "data" / f"{name}.tsv").rename(directory / "data" / f"sst2_{name}.tsv")
        (directory / "data" / f"translation_{name}.tsv").write_text(pairs, "utf-8")
    (directory / "devs").mkdir()
    (directory / "devs" / "dev.tsv").write_text("sentence\tlabel\nthe cat\t1\n", "utf-8")
    data = [] if "--data" in words else ["--data", "data"]
    done = CliRunner().invoke(app, ["finetune", *words, *data, "--epochs", "3", "--out", "made"])
    assert isinstance(done.exception, HeadscopeError), done.output
    assert str(done.exception).startswith(message), str(done.exception)
    assert not list(directory.glob("made*"))
