"""Training from files to a model that loads anywhere; killed and taken up again, it is the same model."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSequenceClassification, BertForMaskedLM, BertModel

from children import bytes_of, finished, killed
from headscope import evaluate, finetune
from headscope.errors import HeadscopeError
from headscope.training import finetune as module
from headscope.training.resumable import STATE
from sampling import slow
from worded import glue, random_bert, saved, tokenizer

FAST: dict[str, Any] = {"epochs": 4, "batch_size": 8, "learning_rate": 1e-2}


def untrained(folder: Path) -> Path:
    """A bare BERT as it is before training."""
    model = random_bert(BertModel)
    torch.manual_seed(1)  # whatever other tests drew before
    model.apply(model._init_weights)
    model.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    saved(tmp_path / "bert", BertModel)
    glue(tmp_path / "data")
    return tmp_path


def test_a_task_that_can_be_learned_is_learned(directory: Path) -> None:
    untrained(directory / "new")
    record = finetune("new", task="sst2", data="data", out="made", **FAST | {"epochs": 14}).record
    losses = [epoch["dev_loss"] for epoch in record["epochs"]]
    assert len(losses) == 14
    assert losses[-1] < 0.5 * losses[0]
    assert record["best"]["value"] > 0.9
    assert json.loads(Path("made/training.json").read_text("utf-8")) == record
    library = AutoModelForSequenceClassification.from_pretrained("made")
    assert library.config.label2id == {"0": 0, "1": 1}
    again = evaluate("made", task="sst2", data="data")
    assert again["metrics"]["accuracy"]["value"] == record["best"]["value"]
    assert {path.name for path in Path("made").iterdir()} >= {
        "model.safetensors",
        "tokenizer.json",
        "training.json",
    }
    assert not {"state.pt", "best.pt", ".owner"} & {path.name for path in Path("made").iterdir()}


def test_the_best_epoch_is_kept_and_not_the_last(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = iter([0.5, 0.9, 0.9, 0.7])
    real = module.evaluate_epoch

    def measured(*args):  # type: ignore[no-untyped-def]
        loss = {1: 0.4, 2: 0.3, 3: 0.2, 4: 0.1}[args[-1].epoch + 1]
        return real(*args) | {"value": next(values), "dev_loss": loss}

    monkeypatch.setattr(module, "evaluate_epoch", measured)
    record = finetune("bert", task="sst2", data="data", out="four", **FAST).record
    assert record["best"]["epoch"] == 3  # as good as the second, with the lower loss
    monkeypatch.undo()
    monkeypatch.chdir(directory)
    result = evaluate("four", task="sst2", data="data")["metrics"]["loss"]["value"]
    real_losses = [epoch["metrics"]["loss"]["value"] for epoch in record["epochs"]]
    assert result == pytest.approx(real_losses[2], abs=1e-6)
    assert abs(result - real_losses[3]) > 1e-5


def test_one_seed_gives_one_model_and_another_another(directory: Path) -> None:
    for out, seed in (("one", 0), ("again", 0), ("other", 1)):
        changes = {"epochs": 2, "learning_rate": 1e-3, "seed": seed}
        finetune("bert", task="sst2", data="data", out=out, **FAST | changes)
    first, again, other = (
        Path(out, "model.safetensors").read_bytes() for out in ("one", "again", "other")
    )
    assert first == again
    assert first != other


@pytest.mark.slow
def test_two_processes_train_the_model_that_one_trains(directory: Path) -> None:
    """Without dropout the shares of a batch add up to it; every process would end, and one alone writes."""
    config = json.loads(Path("bert/config.json").read_text("utf-8"))
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    Path("bert/config.json").write_text(json.dumps(config), "utf-8")
    words = [
        "finetune",
        "bert",
        "--task",
        "sst2",
        "--data",
        "data",
        "--epochs",
        "2",
        "--batch-size",
        "7",
    ]
    start = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    two = subprocess.run(
        [*start, "-m", "headscope", *words, "--out", "two"], capture_output=True, text=True
    )
    assert two.returncode == 0, two.stderr
    assert two.stdout.split() == ["two"]
    assert two.stderr.count("kept epoch") == 1
    finished(directory, *words, "--out", "one")
    first, other = (
        AutoModelForSequenceClassification.from_pretrained(name).state_dict()
        for name in ("one", "two")
    )
    before = AutoModelForSequenceClassification.from_pretrained("bert").state_dict()
    for name, value in first.items():
        assert torch.allclose(value, other[name], atol=2e-5), name
    assert any(
        (value - before[name]).abs().max() > 2e-4
        for name, value in first.items()
        if "encoder" in name
    )


@pytest.mark.parametrize("kills", [2, slow(6)])
def test_a_run_that_is_killed_again_and_again_ends_with_the_same_bytes(
    directory: Path, kills: int
) -> None:
    words = (
        "finetune",
        "bert",
        "--task",
        "sst2",
        "--data",
        "data",
        "--epochs",
        "2",
        "--batch-size",
        "3",
    )
    finished(directory, *words, "--out", "whole")
    chance = random.Random(0)
    partial = directory / "made.partial" / STATE
    for _ in range(kills):
        assert killed(directory, *words, "--out", "made", "--resume", after=chance.randint(3, 9))
    assert partial.exists()
    assert not (directory / "made").exists()
    finished(directory, *words, "--out", "made", "--resume")
    whole, made = bytes_of(directory / "whole"), bytes_of(directory / "made")
    records = [json.loads(files.pop("training.json")) for files in (whole, made)]
    assert whole == made
    for record in records:
        del record["seconds"], record["command"]
    assert records[0] == records[1]
    assert not (directory / "made.partial").exists()


REFUSED: list[tuple[dict[str, object], str]] = [
    ({"batch_size": 4}, "`batch_size` must be as in the run to resume (8), got 4"),
    ({"learning_rate": 1e-3}, "`learning_rate` must be as in the run to resume (0.01), got 0.001"),
    ({"seed": 3}, "`seed` must be as in the run to resume (0), got 3"),
    ({"limit": 20}, "`limit` must be as in the run to resume (null), got 20"),
    ({"max_length": 16}, "`max_length` must be as in the run to resume (null), got 16"),
    ({"labels": {"x": "1"}}, '`labels` must be as in the run to resume (null), got {"x": "1"}'),
]


def test_another_option_is_refused_by_name(directory: Path) -> None:
    options: dict[str, Any] = {"task": "sst2", "data": "data", "out": "made", **FAST}

    def stop(done: int, total: int, part: str = "") -> None:
        if done == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        finetune("bert", **options, progress=stop)
    before = bytes_of(directory / "made.partial")
    for changes, named in REFUSED:
        with pytest.raises(HeadscopeError) as error:
            finetune("bert", **{**options, **changes}, resume=True)
        assert str(error.value) == (
            f"{directory / 'made.partial' / STATE}: {named}. "
            "Give the same options again, or `overwrite=True` instead of `resume=True` to begin anew."
        )
        assert bytes_of(directory / "made.partial") == before
    record = finetune("bert", **options, resume=True).record
    assert len(record["epochs"]) == 4


def test_other_data_and_another_model_are_refused_too(directory: Path) -> None:
    def stop(done: int, total: int, part: str = "") -> None:
        if done == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        finetune("bert", task="sst2", data="data", out="made", **FAST, progress=stop)
    saved(directory / "other", BertModel, seed=1)
    with pytest.raises(HeadscopeError, match="`name` must be as in the run to resume"):
        finetune("other", task="sst2", data="data", out="made", **FAST, resume=True)
    glue(directory / "data", train=50)
    with pytest.raises(HeadscopeError, match="`data` must be as in the run to resume"):
        finetune("bert", task="sst2", data="data", out="made", **FAST, resume=True)


def test_a_trained_model_is_only_replaced_when_asked_for(directory: Path) -> None:
    finetune("bert", task="sst2", data="data", out="made", epochs=1, batch_size=8)
    with pytest.raises(
        HeadscopeError, match=r"made: a trained model is already there\. Add `overwrite=True`"
    ):
        finetune("bert", task="sst2", data="data", out="made", epochs=1, batch_size=8)
    finetune("bert", task="sst2", data="data", out="made", epochs=1, batch_size=8, overwrite=True)


def test_a_masked_language_model_is_trained_without_labels(directory: Path) -> None:
    saved(directory / "mlm", BertForMaskedLM)
    texts = ["the cat sat on the mat .", "a dog ran ."] * 8
    for name in ("train", "dev"):
        Path(f"data/{name}.txt").write_text("\n".join(texts), "utf-8")
    for name in ("train", "dev"):
        Path(f"data/{name}.tsv").unlink()
    record = finetune("mlm", task="masked", data="data", out="made", **FAST | {"epochs": 6}).record
    assert record["epochs"][-1]["dev_loss"] < record["epochs"][0]["dev_loss"]
    assert record["best"]["metric"] == "accuracy"
