"""A tiny real model in a directory, and the command line in this process: what it said and what it left.

    output = run("analyze", "bert", "--corpus", "corpus.txt", "--out", "study")
    output.status, output.error              # 2, "corpus.txt: no text in it. Expected …"

A test stands in a directory of its own with `bert` and `gpt2` beside it, so messages hold paths as typed. After a
run that failed, `run` itself claims that nothing was written.
"""

from __future__ import annotations

import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_result import CommandResult, Run, save_tokenizer
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2Model

from headscope import commands
from headscope.report import write as writer


@pytest.fixture(scope="session")
def models_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """bert (masked language model, 64 positions, adds special tokens) and gpt2 (64 positions, adds none)."""
    folder = tmp_path_factory.mktemp("models")
    size = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    bert = BertForMaskedLM(BertConfig(**size, intermediate_size=64, max_position_embeddings=64))
    bert.save_pretrained(folder / "bert")
    save_tokenizer(folder / "bert")
    ids = {"bos_token_id": 2, "eos_token_id": 3, "pad_token_id": 0}
    gpt2 = GPT2Model(
        GPT2Config(vocab_size=99, n_embd=32, n_layer=2, n_head=4, n_positions=64, **ids)
    )
    gpt2.save_pretrained(folder / "gpt2")
    save_tokenizer(folder / "gpt2", adds_special=False)
    return folder


@pytest.fixture
def work_folder(models_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory a test stands in, with copies of the models that it may spoil, and a good corpus."""
    for model in models_folder.iterdir():
        shutil.copytree(model, tmp_path / model.name)
    (tmp_path / "good.txt").write_text("the cat sat.\nthe mat\na, b\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HEADSCOPE_OFFLINE", "1")
    return tmp_path


@pytest.fixture
def run(
    work_folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Run]:
    """The command line in this process, without the figures, which take longer than all the rest."""
    monkeypatch.setattr(writer, "write_report", _write_no_report)
    before = signal.getsignal(signal.SIGTERM)

    def call(*words: str | Path) -> CommandResult:
        before_call = _listing(work_folder)
        monkeypatch.setattr(sys, "argv", ["headscope", *map(str, words)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as stop:
            commands.main()
        output = CommandResult(int(stop.value.code or 0), *capfd.readouterr())
        if output.status:
            assert _listing(work_folder) == before_call, "a failed command left something behind"
        return output

    yield call
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def analyze(run: Run) -> Run:
    """`analyze(model, corpus, *options)`, into the directory `study`."""

    def call(
        model: str | Path = "bert", corpus: str | Path = "good.txt", *options: str
    ) -> CommandResult:
        return run("analyze", model, "--corpus", corpus, "--out", "study", *options)

    return call


def _listing(folder: Path) -> set[tuple[str, int]]:
    return {
        (str(path), path.lstat().st_mtime_ns) for path in folder.rglob("*") if not path.is_dir()
    } | {(str(path), 0) for path in folder.rglob("*") if path.is_dir()}


def _write_no_report(study: object, folder: Path, **options: object) -> None:
    (folder / "index.html").write_text("")
