"""Every bad model file, and the whole message it must give."""

from __future__ import annotations

import io
import json
import os
import pickle
import socket
import struct
import sys
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from command_result import WORDS, Run, save_tokenizer
from safetensors.torch import load_file, save_file

from headscope.model.families import families
from headscope.model.resolve_spec import HUB_IDS, find_folder
from headscope.model.zoo import MODELS

FAMILIES = ", ".join(families())
NAMED = " or ".join([", ".join(sorted(MODELS)[:-1]), sorted(MODELS)[-1]])
A_HUB_ID = "a directory, a hub id such as google-bert/bert-base-uncased"
HUB_MEND = (
    "Check the name and the network, or give a directory or a named model (headscope models)."
)
NO_DIRECTORY = (
    "there is no such directory. Check the path; a hub id has the form org/name, and headscope models lists "
    "the named models."
)
AGAIN = "Expected a model configuration. Download it again."
WHOLE = "Expected a whole file. Download it again."
SAVED_WITH = "Expected the configuration the weights were saved with."
TOKENIZER_FILES = "Expected tokenizer.json, or the files the family uses, next to the weights."

# Names


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every host that is looked up; all of them are out of reach."""
    hosts: list[str] = []

    def look_up(host: str, *args: Any, **options: Any) -> Any:
        hosts.append(host)
        raise socket.gaierror(socket.EAI_NONAME, "no network in tests")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return hosts


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            "minilmm",
            f'no model "minilmm". Expected {A_HUB_ID}, or one of {NAMED}; did you mean "minilm"? '
            "headscope models describes the named ones.",
        ),
        (
            "zzz",
            f'no model "zzz". Expected {A_HUB_ID}, or one of {NAMED}. headscope models describes the named ones.',
        ),
        (
            "",
            f'no model "". Expected {A_HUB_ID}, or one of {NAMED}. headscope models describes the named ones.',
        ),
        ("/nowhere/model", f"/nowhere/model: {NO_DIRECTORY}"),
        ("./bertt", f"./bertt: {NO_DIRECTORY}"),
        ("~nobody-at-all/model", f"~nobody-at-all/model: {NO_DIRECTORY}"),
        ("x" * 300 + "/", "x" * 300 + f"/: {NO_DIRECTORY}"),
        (
            "bert/model.safetensors",
            "bert/model.safetensors: this is a file. Expected the directory of a transformers model. "
            "Give the directory it is in.",
        ),
        (
            "acme/encoder",
            'there is no directory "acme/encoder", and the hub\'s model of this name cannot be had: '
            f"it is not in the local cache and HF_HUB_OFFLINE is set. {HUB_MEND}",
        ),
        (
            "acme/encoder@v2",
            'there is no directory "acme/encoder", and the hub\'s model of this name cannot be had at revision v2: '
            f"it is not in the local cache and HF_HUB_OFFLINE is set. {HUB_MEND}",
        ),
        (
            "bert-base-uncased",
            'there is no directory "bert-base-uncased", and the hub\'s model google-bert/bert-base-uncased cannot be '
            f"had: it is not in the local cache and HF_HUB_OFFLINE is set. {HUB_MEND}",
        ),
        (
            "gpt2-medium@main",
            'there is no directory "gpt2-medium", and the hub\'s model openai-community/gpt2-medium cannot be had at '
            f"revision main: it is not in the local cache and HF_HUB_OFFLINE is set. {HUB_MEND}",
        ),
        ("./bert-base-uncased", f"./bert-base-uncased: {NO_DIRECTORY}"),
    ],
)
def test_a_model_that_is_not_there_is_refused_without_asking_the_network(
    analyze: Run, spec: str, message: str, connections: list[str]
) -> None:
    output = analyze(spec)
    assert (output.status, output.error) == (2, message)
    assert not connections


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("bert", '--revision "main": "bert" is a directory. Expected a hub id with it.'),
        ("minilm", '--revision "main": "minilm" is a named model. Expected a hub id with it.'),
        (
            "acme/a@v2",
            '--revision "main": "acme/a@v2" names another revision. Expected one of them.',
        ),
    ],
)
def test_a_revision_that_would_be_ignored_is_refused(analyze: Run, spec: str, message: str) -> None:
    output = analyze(spec, "good.txt", "--revision", "main")
    assert (output.status, output.error) == (2, message)


@pytest.mark.parametrize(
    "words", [("acme/encoder",), ("acme/encoder@v2",), ("acme/encoder", "--revision", "v2")]
)
def test_a_hub_model_in_the_cache_works_offline(
    work_folder: Path,
    models_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    run: Run,
    words: tuple[str, ...],
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(work_folder / "hub"))
    repository = work_folder / "hub" / "models--acme--encoder"
    commit = "0123456789abcdef0123456789abcdef01234567"
    (repository / "snapshots").mkdir(parents=True)
    (repository / "refs").mkdir()
    (work_folder / "bert").rename(repository / "snapshots" / commit)
    for name in ("main", "v2"):
        (repository / "refs" / name).write_text(commit)
    output = run("analyze", *words, "--corpus", "good.txt", "--out", "study")
    assert output.status == 0, output.err
    recorded = json.loads((work_folder / "study" / "run.json").read_text())["model"]
    assert (recorded["name"], recorded["revision"]) == (
        "acme/encoder",
        "v2" if "v2" in "".join(words) else None,
    )


@pytest.mark.parametrize(
    "cached", ["models--google-bert--bert-base-uncased", "models--bert-base-uncased", None]
)
def test_an_old_short_name_finds_the_hub_model_unless_a_directory_has_it(
    work_folder: Path, monkeypatch: pytest.MonkeyPatch, cached: str | None
) -> None:
    """In the hub's cache under today's name, or under the old one from an earlier download; or a directory."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(work_folder / "hub"))
    if cached is None:
        (work_folder / "bert").rename(work_folder / "bert-base-uncased")
        assert find_folder("bert-base-uncased") == (
            Path("bert-base-uncased"),
            "bert-base-uncased",
            None,
        )
        return
    commit = "0123456789abcdef0123456789abcdef01234567"
    snapshot = work_folder / "hub" / cached / "snapshots" / commit
    snapshot.parent.mkdir(parents=True)
    (work_folder / "hub" / cached / "refs").mkdir()
    (work_folder / "hub" / cached / "refs" / "main").write_text(commit)
    (work_folder / "bert").rename(snapshot)
    folder, name, revision = find_folder("bert-base-uncased")
    assert (folder.resolve(), revision) == (snapshot.resolve(), None)
    assert name == cached.removeprefix("models--").replace("--", "/")


def test_every_short_name_is_one_of_the_hub_with_its_owner() -> None:
    assert all(identifier.partition("/")[2] == name for name, identifier in HUB_IDS.items())
    assert not set(HUB_IDS) & set(MODELS), "a named model would hide it"


# Files


def config(**changes: Any) -> Callable[[Path], None]:
    """Change config.json; None takes a key out."""

    def spoil(model: Path) -> None:
        path = model / "config.json"
        values = json.loads(path.read_text()) | changes
        path.write_text(
            json.dumps({key: value for key, value in values.items() if value is not None})
        )

    return spoil


def content(name: str, data: bytes) -> Callable[[Path], None]:
    def spoil(model: Path) -> None:
        (model / name).write_bytes(data)

    return spoil


def cut(name: str, kept: int) -> Callable[[Path], None]:
    def spoil(model: Path) -> None:
        (model / name).write_bytes((model / name).read_bytes()[:kept])

    return spoil


def gone(*names: str) -> Callable[[Path], None]:
    def spoil(model: Path) -> None:
        for name in names:
            (model / name).unlink()

    return spoil


def tensors(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], None]:
    def spoil(model: Path) -> None:
        state = load_file(model / "model.safetensors")
        change(state)
        save_file(state, model / "model.safetensors", metadata={"format": "pt"})

    return spoil


def pickled(change: Callable[[bytes], bytes] = lambda data: data) -> Callable[[Path], None]:
    """The same weights as pytorch_model.bin, then changed."""

    def spoil(model: Path) -> None:
        packed = io.BytesIO()
        torch.save(load_file(model / "model.safetensors"), packed)
        (model / "model.safetensors").unlink()
        (model / "pytorch_model.bin").write_bytes(change(packed.getvalue()))

    return spoil


def bigger_tokenizer(model: Path) -> None:
    save_tokenizer(model, words=[*WORDS, *(f"word{i}" for i in range(40))])


def sharded(model: Path) -> None:
    (model / "model.safetensors").unlink()
    index = {
        "metadata": {},
        "weight_map": {"bert.pooler.dense.weight": "model-00001-of-00002.safetensors"},
    }
    (model / "model.safetensors.index.json").write_text(json.dumps(index))


LAYER = "bert.encoder.layer.1.attention.self.query.weight"
BIN = "bert/pytorch_model.bin"
SAFE = "bert/model.safetensors"
BAD_FILES: dict[str, tuple[Callable[[Path], None], str]] = {
    "no config.json": (
        gone("config.json"),
        "bert: no config.json here. Expected the directory of a transformers model. "
        "Give the directory that save_pretrained wrote, or a name (headscope models).",
    ),
    "config.json not JSON": (
        content("config.json", b'{\n  "a": 1,\n  oops\n}'),
        "bert/config.json:3:3: not JSON: Expecting property name enclosed in double quotes. "
        + AGAIN,
    ),
    "config.json empty": (
        content("config.json", b""),
        f"bert/config.json:1:1: not JSON: Expecting value. {AGAIN}",
    ),
    "config.json a list": (
        content("config.json", b"[1]"),
        f"bert/config.json: not a JSON object. {AGAIN}",
    ),
    "config.json nested": (
        content("config.json", b"[" * 100_000),
        "bert/config.json: not readable (maximum recursion depth exceeded while decoding a JSON array from a "
        f"unicode string). {AGAIN}",
    ),
    "config.json huge": (
        content("config.json", b" " * 20_000_000),
        "bert/config.json: 20 MB are too many. Expected a model configuration.",
    ),
    "config.json binary": (
        content("config.json", b"\x80\x03\xff"),
        "bert/config.json: not readable ('utf-8' codec can't decode byte 0x80 in position 0: invalid start byte). "
        + AGAIN,
    ),
    "no model_type": (
        config(model_type=None),
        'bert/config.json: no model_type. Expected one that transformers knows, such as "bert". Download it again.',
    ),
    "model_type a list": (
        config(model_type=["bert"]),
        'bert/config.json: model_type is ["bert"]. Expected one that transformers knows, such as "bert". '
        "Download it again.",
    ),
    "unsupported architecture": (
        config(model_type="mamba"),
        f'bert/config.json: model type "mamba" is not supported. Expected one of {FAMILIES}. '
        "To add a family, see docs/reference/families.md.",
    ),
    "a model type that steers the terminal": (
        config(model_type="\x1b[31mred\nline"),
        f'bert/config.json: model type "\\x1b[31mred line" is not supported. Expected one of {FAMILIES}. '
        "To add a family, see docs/reference/families.md.",
    ),
    "layers without end": (
        config(num_hidden_layers=10**9),
        "bert/config.json: num_hidden_layers is 1000000000. Expected 1 to 1000. Download it again.",
    ),
    "no layer at all": (
        config(num_hidden_layers=0),
        "bert/config.json: num_hidden_layers is 0. Expected 1 to 1000. Download it again.",
    ),
    "weights missing": (
        gone("model.safetensors"),
        "bert: no weights here. Expected model.safetensors or pytorch_model.bin. "
        "Download the whole model; weights for other frameworks are not read.",
    ),
    "safetensors cut in the data": (
        cut("model.safetensors", 20_000),
        f"{SAFE}: the weights cannot be read (Error while deserializing header: incomplete metadata, file not "
        f"fully covered). {WHOLE}",
    ),
    "safetensors cut in the header": (
        cut("model.safetensors", 100),
        f"{SAFE}: the weights cannot be read (Error while deserializing header: invalid header length). {WHOLE}",
    ),
    "safetensors empty": (
        content("model.safetensors", b""),
        f"{SAFE}: the file is empty. Expected weights. Download it again.",
    ),
    "safetensors a web page": (
        content("model.safetensors", b"<!DOCTYPE html><html>Please log in</html>" * 9),
        f"{SAFE}: the file is a web page. Expected weights. Download it again.",
    ),
    "safetensors a pointer": (
        content(
            "model.safetensors",
            b"version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 9\n",
        ),
        f"{SAFE}: the file is a pointer of git-lfs. Expected weights. Fetch the file itself: git lfs pull.",
    ),
    "safetensors with a huge header": (
        content("model.safetensors", struct.pack("<Q", 2**40) + b"{}" * 99),
        f"{SAFE}: the weights cannot be read (Error while deserializing header: header too large). {WHOLE}",
    ),
    "a shard missing": (
        sharded,
        f"{SAFE}.index.json: the weights cannot be read (No such file or directory: "
        f"bert/model-00001-of-00002.safetensors). {WHOLE}",
    ),
    "bin empty": (
        lambda model: (pickled()(model), content("pytorch_model.bin", b"")(model))[0],
        f"{BIN}: the file is empty. Expected weights. Download it again.",
    ),
    "bin cut": (
        pickled(lambda data: data[: len(data) // 2]),
        f"{BIN}: the weights cannot be read (Invalid argument). {WHOLE}",
    ),
    "bin not a pickle": (
        pickled(lambda data: b"hello" * 99),
        f"{BIN}: the weights cannot be read. {WHOLE}",
    ),
    "NaN": (
        tensors(lambda state: state[LAYER].view(-1)[7].fill_(float("nan"))),
        f"bert: the weights hold NaN or infinite numbers, in '{LAYER}' first. Expected numbers. "
        "Get a sound checkpoint.",
    ),
    "infinity": (
        tensors(lambda state: state[LAYER].view(-1)[7].fill_(float("inf"))),
        f"bert: the weights hold NaN or infinite numbers, in '{LAYER}' first. Expected numbers. "
        "Get a sound checkpoint.",
    ),
    "vocabulary larger than the embedding": (
        bigger_tokenizer,
        f"bert: the tokenizer has token ids up to {len(WORDS) + 39}, but the model embeds only 0 to 98. "
        "Expected tokenizer and weights of one model.",
    ),
    "tokenizer missing": (
        gone("tokenizer.json", "tokenizer_config.json"),
        "bert: the tokenizer knows 5 tokens, the model 99: its files are missing or of another kind. "
        + TOKENIZER_FILES,
    ),
    "tokenizer.json broken": (
        content("tokenizer.json", b'{"version"'),
        "bert: the tokenizer cannot be read (Expecting ':' delimiter: line 1 column 11 (char 10)). "
        + TOKENIZER_FILES,
    ),
    "shapes that do not fit": (
        config(vocab_size=120),
        f"{SAFE}: 'bert.embeddings.word_embeddings.weight' has shape 99 x 32, but config.json makes it 120 x 32. "
        "Expected weights and config.json of one model.",
    ),
    "an absurd width": (
        config(hidden_size=10**9),
        "bert: BertForMaskedLM needs more memory than there is. Check the sizes in config.json; if they are right, "
        "take --dtype bfloat16 or a larger machine.",
    ),
    "heads that do not divide": (
        config(num_attention_heads=5),
        f"bert/config.json: no BertForMaskedLM can be built from it (The hidden size (32) is not a multiple of the "
        f"number of attention heads (5)). {SAVED_WITH}",
    ),
    "a width that is a word": (
        config(hidden_size="wide"),
        f"bert/config.json: no BertForMaskedLM can be built from it (Validation error for field 'hidden_size': "
        f"TypeError: Field 'hidden_size' expected int, got str (value: 'wide')). {SAVED_WITH}",
    ),
    "encoder tensors missing": (
        tensors(
            lambda state: [state.pop(key) for key in list(state) if "layer.1.attention.self" in key]
        ),
        "bert: the weights lack 6 tensors of BertForMaskedLM, "
        "'bert.encoder.layer.1.attention.self.key.bias' first; they would be random. "
        "Get the whole checkpoint, or load another class with model_class.",
    ),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_a_bad_model_file_is_refused_by_name(work_folder: Path, analyze: Run, case: str) -> None:
    spoil, message = BAD_FILES[case]
    spoil(work_folder / "bert")
    output = analyze("bert")
    assert (output.status, output.error) == (2, message)


@pytest.mark.parametrize("case", ["NaN", "encoder tensors missing"])
def test_look_refuses_what_analyze_refuses(work_folder: Path, run: Run, case: str) -> None:
    spoil, message = BAD_FILES[case]
    spoil(work_folder / "bert")
    output = run("look", "bert", "the cat", "--out", "page.html")
    assert (output.status, output.error) == (2, message)


# Nothing is executed


class Payload:
    """Unpickled the careless way, it makes a file."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.target,)


@pytest.mark.parametrize("form", ["zip", "plain pickle"])
def test_a_malicious_pickle_is_not_run(work_folder: Path, analyze: Run, form: str) -> None:
    target = work_folder / "owned"
    pickled()(work_folder / "bert")
    if form == "zip":
        torch.save({"weight": Payload(target)}, work_folder / BIN)
        assert zipfile.is_zipfile(work_folder / BIN)
    else:
        (work_folder / BIN).write_bytes(pickle.dumps(Payload(target)))
    output = analyze("bert")
    assert not target.exists()
    assert (output.status, output.error) == (
        2,
        f"{BIN}: this is not a pickle of weights alone; nothing in it was run. Expected tensors. "
        "Get the model as safetensors.",
    )
    pickle.loads(pickle.dumps(Payload(target)))
    assert target.exists(), "the payload is harmless, so this test proves nothing"


def plant_code(model: Path, target: Path) -> None:
    """A module that makes a file when imported, with the classes that auto_map names."""
    (model / "custom.py").write_text(
        f"from pathlib import Path\nPath({str(target)!r}).touch()\n"
        "class Config: pass\nclass Model: pass\nclass Words: pass\n"
    )


YES = b"y\n" * 20


@pytest.fixture
def open_stdin(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A stdin that would say yes to any question."""
    reader, writer = os.pipe()
    os.write(writer, YES)
    with os.fdopen(reader) as answers:
        monkeypatch.setattr(sys, "stdin", answers)
        yield answers
    os.close(writer)


def assert_unread(answers: Any) -> None:
    """Nobody has asked: transformers does, and waits for an answer."""
    assert os.read(answers.fileno(), 100) == YES


AUTO_MAP = {
    "AutoConfig": "custom.Config",
    "AutoModel": "custom.Model",
    "AutoModelForMaskedLM": "custom.Model",
}


def test_code_of_a_known_model_type_is_ignored(
    work_folder: Path, analyze: Run, open_stdin: Any
) -> None:
    plant_code(work_folder / "bert", work_folder / "owned")
    config(auto_map=AUTO_MAP)(work_folder / "bert")
    output = analyze("bert")
    assert output.status == 0, output.err
    assert not (work_folder / "owned").exists()
    assert (
        "note: config.json names code of its own (auto_map), which was not run: loaded as transformers' own class\n"
    ) in output.err


def test_tensors_that_the_model_does_not_have_are_noted(work_folder: Path, analyze: Run) -> None:
    tensors(lambda state: state.update({"bert.extra.weight": torch.ones(3)}))(work_folder / "bert")
    output = analyze("bert")
    assert output.status == 0, output.err
    assert (
        "note: 1 tensors of the file have no place in BertForMaskedLM, 'bert.extra.weight' first\n"
        in output.err
    )


def test_code_of_an_unknown_model_type_is_refused(
    work_folder: Path, analyze: Run, open_stdin: Any
) -> None:
    plant_code(work_folder / "bert", work_folder / "owned")
    config(auto_map=AUTO_MAP, model_type="acme")(work_folder / "bert")
    output = analyze("bert")
    assert (output.status, output.error) == (
        2,
        'bert/config.json: model type "acme" needs code from its own files (auto_map), which headscope never runs. '
        f"Expected one of {FAMILIES}.",
    )
    assert not (work_folder / "owned").exists()
    assert_unread(open_stdin)


@pytest.mark.parametrize("files", ["with tokenizer.json", "without tokenizer.json"])
def test_code_of_a_tokenizer_is_not_run(
    work_folder: Path, analyze: Run, open_stdin: Any, files: str
) -> None:
    plant_code(work_folder / "bert", work_folder / "owned")
    path = work_folder / "bert" / "tokenizer_config.json"
    values = json.loads(path.read_text())
    values |= {"auto_map": {"AutoTokenizer": ["custom.Words", None]}, "tokenizer_class": "Words"}
    path.write_text(json.dumps(values))
    if files == "without tokenizer.json":
        (work_folder / "bert" / "tokenizer.json").unlink()
    output = analyze("bert")
    assert not (work_folder / "owned").exists()
    assert output.status in (0, 2)
    if output.status:
        assert output.error.startswith("bert: the tokenizer "), output.error
    assert_unread(open_stdin)


@pytest.mark.parametrize("named", ["logging", "Trainer", "AutoTokenizer", "GPT2Model", 5, ["x"]])
def test_a_class_that_is_no_model_of_this_type_is_not_used(
    work_folder: Path, analyze: Run, named: Any
) -> None:
    config(architectures=[named])(work_folder / "bert")
    output = analyze("bert")
    assert output.status == 0, output.err
    assert (
        f"note: architectures in config.json names {named!r}, which is not a bert class of transformers: "
        "loaded as the bare model" in output.err
    )


def test_a_missing_head_makes_a_bare_encoder_and_is_reported(
    work_folder: Path, analyze: Run
) -> None:
    tensors(lambda state: [state.pop(key) for key in list(state) if key.startswith("cls.")])(
        work_folder / "bert"
    )
    output = analyze("bert")
    assert output.status == 0, output.err
    note = "the file has no weights for the head of BertForMaskedLM: loaded as BertModel"
    assert f"note: {note}" in output.err
    recorded = json.loads((work_folder / "study" / "run.json").read_text())["model"]
    assert recorded["notes"] == [note]
    assert recorded["class"] == "BertModel"


def test_nothing_waits_for_a_question(work_folder: Path, analyze: Run) -> None:
    """No thread of the library goes on asking the network after a directory was loaded."""
    pickled()(work_folder / "bert")
    before = threading.active_count()
    assert analyze("bert").status == 0
    assert threading.active_count() <= before + 1
