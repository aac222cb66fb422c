"""A new encoder from texts: it learns what can be learned, and killed and taken up again it is the same model."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForMaskedLM, BertForMaskedLM
from typer.testing import CliRunner

import headscope
from children import bytes_of, finished, killed
from headscope import pretrain
from headscope.commands import app
from headscope.data.held_out import is_held_out
from headscope.errors import HeadscopeError
from headscope.training.resumable import STATE
from worded import LIKED, WORDS, saved, translator

FAST: dict[str, Any] = {"epochs": 2, "batch_size": 8, "learning_rate": 1e-2}
COMMON = "cat"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    saved(tmp_path / "bert", BertForMaskedLM)
    chance = random.Random(1)
    (tmp_path / "texts.txt").write_text(echoes(chance, 160), "utf-8")
    return tmp_path


def echoes(chance: random.Random, count: int) -> str:
    """Every text is one word again and again: a token is known from any other, but not without them."""
    chosen = chance.choices([*LIKED, COMMON, COMMON, "dog", "mat"], k=count)
    return "".join(" ".join([word] * 14) + "\n" for word in chosen)


def test_what_can_be_learned_is_learned_and_the_baseline_is_beaten(folder: Path) -> None:
    saved(
        folder / "bert", BertForMaskedLM, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    record = pretrain(
        corpus="texts.txt",
        out="made",
        architecture="bert",
        max_length=16,
        held_out=0.2,
        checkpoints=4,
        **FAST | {"epochs": 30},  # with any seed the loss ends near 0
    ).record
    last = record["moments"][-1]
    assert record["baseline"]["accuracy"] < 0.5
    assert last["metrics"]["accuracy"]["low"] > 0.9
    assert last["loss"] < 0.5 * record["baseline"]["loss"]
    assert json.loads(Path("made/training.json").read_text("utf-8")) == record
    assert not {"state.pt", ".owner"} & {path.name for path in Path("made").iterdir()}
    library = AutoModelForMaskedLM.from_pretrained("made")
    prompt = "dog dog [MASK] dog dog dog"
    tokens = headscope.load("made").tokenizer(prompt, return_tensors="pt")  # type: ignore[misc]
    with torch.no_grad():
        predicted = int(library(**tokens).logits[0, 3].argmax())
    assert WORDS[predicted] == "dog"
    steps = sorted(path.name for path in Path("made/checkpoints").iterdir())
    assert len(steps) == 4
    assert steps[0] == "step-000000"
    assert steps[-1] == f"step-{last['step']:06d}"
    final = AutoModelForMaskedLM.from_pretrained(f"made/checkpoints/{steps[-1]}").state_dict()
    assert all(torch.equal(value, final[name]) for name, value in library.state_dict().items())
    first = headscope.load(f"made/checkpoints/{steps[0]}")
    assert len(first.heads) == 4


def test_the_baseline_is_that_of_counting_by_hand(folder: Path) -> None:
    record = pretrain(
        corpus="texts.txt", architecture="bert", max_length=16, held_out=0.2, out="made", **FAST
    ).record
    lines = Path("texts.txt").read_text("utf-8").split("\n")[:-1]
    train = [line for i, line in enumerate(lines) if (i // 20) % 5]
    counts = Counter(word for line in train for word in line.split())
    losses = {
        word: math.log((sum(counts.values()) + len(WORDS)) / (count + 1))
        for word, count in counts.items()
    }
    held = [line for i, line in enumerate(lines) if not (i // 20) % 5]
    assert counts.most_common(1)[0][0] == COMMON
    shares = Counter(word for line in held for word in line.split())
    least, most = min(losses.values()), max(losses.values())
    assert least < record["baseline"]["loss"] < most
    assert record["baseline"]["accuracy"] == pytest.approx(
        shares[COMMON] / shares.total(), abs=0.06
    )
    assert record["sequences"]["train"]["read"] == len(train)
    assert record["sequences"]["held_out"]["read"] == len(held)
    assert record["held_out_share"] == len(held) / len(lines)


@pytest.mark.slow
def test_a_run_that_is_killed_again_and_again_ends_with_the_same_bytes(folder: Path) -> None:
    words = (
        "pretrain",
        "--config",
        "bert",
        "--corpus",
        "texts.txt",
        "--max-length",
        "16",
        "--steps",
        "16",
    )
    words += ("--batch-size", "4", "--checkpoints", "5", "--held-out", "0.1")
    finished(folder, *words, "--out", "whole")
    for after in (9, 14):
        assert killed(folder, *words, "--out", "made", "--resume", after=after)
        assert (folder / "made.partial" / STATE).exists()
    assert not (folder / "made").exists()
    finished(folder, *words, "--out", "made", "--resume")
    whole, made = bytes_of(folder / "whole"), bytes_of(folder / "made")
    records = [json.loads(files.pop("training.json")) for files in (whole, made)]
    assert (
        len([name for name in whole if name.startswith("checkpoints/") and "safetensors" in name])
        == 5
    )
    assert whole == made
    for record in records:
        del record["seconds"], record["command"]
    assert records[0] == records[1]


@pytest.mark.slow
def test_two_processes_train_the_model_that_one_trains(folder: Path) -> None:
    words = [
        "pretrain",
        "--corpus",
        "texts.txt",
        "--vocabulary",
        "300",
        "--layers",
        "1",
        "--hidden",
        "16",
    ]
    words += [
        "--heads-per-layer",
        "2",
        "--max-length",
        "16",
        "--steps",
        "5",
        "--batch-size",
        "7",
        "--held-out",
        "0.1",
    ]
    start = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    two = subprocess.run(
        [*start, "-m", "headscope", *words, "--out", "two"], capture_output=True, text=True
    )
    assert two.returncode == 0, two.stderr
    assert two.stdout.split() == ["two"]
    finished(folder, *words, "--out", "one")
    first, other = (
        AutoModelForMaskedLM.from_pretrained(name).state_dict() for name in ("one", "two")
    )
    for name, value in first.items():
        assert torch.allclose(value, other[name], atol=2e-5), name
    assert Path("one/tokenizer.json").read_bytes() == Path("two/tokenizer.json").read_bytes()


def test_sizes_vocabulary_and_positions_are_as_asked(folder: Path) -> None:
    sizes = {"layers": 3, "heads_per_layer": 2, "hidden": 24, "vocabulary": 280}
    pretrain(corpus="texts.txt", out="made", steps=2, max_length=20, **sizes)
    model = headscope.load("made", model_class="AutoModelForMaskedLM")
    config = model.model.config
    assert len(model.heads) == 6
    assert (config.hidden_size, config.intermediate_size, config.max_position_embeddings) == (
        24,
        96,
        20,
    )
    assert config.vocab_size == len(model.tokenizer) <= 280  # type: ignore[arg-type]
    assert model.tokenizer.model_max_length == 20  # type: ignore[union-attr]


def test_a_model_learns_under_a_mask(folder: Path) -> None:
    pretrain(
        corpus="texts.txt",
        out="made",
        architecture="bert",
        steps=2,
        max_length=16,
        mask="window:width=2",
    )
    record = json.loads(Path("made/training.json").read_text("utf-8"))
    assert record["model"]["edits"] == [
        {"kind": "Masked", "mask": "window:width=2", "open_special": False}
    ]


@pytest.mark.parametrize("share", [0.02, 0.1, 0.2, 0.3, 0.4, 0.5])
def test_the_share_that_is_held_out_is_the_one_that_was_asked_for(share: float) -> None:
    held = [number for number in range(20 * 500) if is_held_out(number, share)]
    assert len(held) == pytest.approx(share * 20 * 500)
    assert held[:20] == list(range(20)), "whole blocks, the first among them"
    assert len({number // 20 for number in held}) * 20 == len(held)


REFUSED = [
    (("--epochs", "2", "--steps", "3"), "--epochs requires that --steps is left out."),
    (("--steps", "0"), "--steps must be at least 1, got 0."),
    (("--layers", "0"), "--layers must be at least 1, got 0."),
    (
        ("--heads-per-layer", "3"),
        "--heads-per-layer, --hidden: the hidden size must be a multiple of the number of heads, got 16 and 3.",
    ),
    (
        ("--tokenizer", "bert", "--vocabulary", "400"),
        "--tokenizer and --vocabulary cannot be combined.",
    ),
    (("--vocabulary", "12"), "--vocabulary must be at least 261, got 12."),
    (("--held-out", "1"), "--held-out must be above 0 and at most 0.5, got 1."),
    (("--held-out", "0.51"), "--held-out must be above 0 and at most 0.5, got 0.51."),
    (
        ("--max-length", "64"),
        "--max-length: 64 tokens are more than there are positions. Expected at most 32.",
    ),
    (("--max-length", "2"), "--max-length: 2 leaves no room for text."),
    (("--limit", "15"), "texts.txt: 15 texts are too few to hold 20 out."),
    (("--checkpoints", "1"), "--checkpoints must be at least 2, got 1."),
    (("--corpus", "nowhere.txt"), "nowhere.txt: there is no such file here."),
    (
        ("--config", "translator"),
        "--config: must be an encoder such as bert, got marian, an encoder-decoder.",
    ),
    (
        ("--config", "bert/config.json"),
        "bert/config.json: this configuration comes without a tokenizer.",
    ),
    (("--config", "broken.json"), "broken.json:1:1: not JSON"),
    (("--config", "gpt.json", "--tokenizer", "bert"), "gpt.json: gpt2 has no MaskedLM."),
    (("--tokenizer", "translator"), "bert: the tokenizer has no mask token"),
    (("--mask", "nothing"), "--mask"),
]


@pytest.mark.parametrize(("words", "message"), REFUSED)
def test_what_cannot_be_trained_is_refused_in_a_line(
    words: tuple[str, ...], message: str, folder: Path
) -> None:
    made = translator()
    made.model.save_pretrained("translator")
    made.tokenizer.mask_token = None  # type: ignore[union-attr]
    made.tokenizer.save_pretrained("translator")  # type: ignore[union-attr]
    Path("broken.json").write_text("nothing", "utf-8")
    Path("gpt.json").write_text(
        json.dumps({"model_type": "gpt2", "n_layer": 1, "n_head": 2, "n_embd": 16}), "utf-8"
    )
    command_line = ["--config", "bert", "--corpus", "texts.txt", "--max-length", "16"]
    for option, value in zip(words[::2], words[1::2], strict=True):
        if option in command_line:
            command_line[command_line.index(option) + 1] = value
        else:
            command_line += [option, value]
    done = CliRunner().invoke(app, ["pretrain", *command_line, "--out", "made"])
    assert isinstance(done.exception, HeadscopeError), done.output
    assert str(done.exception).startswith(message)
    assert not list(folder.glob("made*"))
