"""bfloat16 on CPUs whose instructions fault: tested in a child process, remembered, computed without oneDNN."""

from __future__ import annotations

import copy
import inspect
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from transformers import BertModel, PreTrainedModel
from typer.testing import CliRunner

import headscope
from headscope import commands
from headscope.commands._configs import CONFIGS
from headscope.config.shared import Run
from headscope.errors import HeadscopeError, HeadscopeWarning
from headscope.masks.open_model import load_model
from headscope.model import bfloat16, zoo
from headscope.model.attention_model import AttentionModel
from tiny import tiny
from worded import saved

DIES = "import os, signal, sys\n"
FAULTS = (
    DIES + 'sys.argv[1] == "off" or os.kill(os.getpid(), signal.SIGILL)'
)  # dies with oneDNN, works without
NEVER_WORKS = DIES + "os.kill(os.getpid(), signal.SIGILL)"
NO_TORCH = "raise ImportError"
INTEL = {"model name": "Intel(R) Xeon(R)", "flags": "fpu avx512f avx512_bf16 amx_bf16 amx_tile"}


@pytest.fixture(autouse=True)
def untouched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Nothing is known of this CPU, and oneDNN is as it was afterwards."""
    enabled = torch.backends.mkldnn.enabled
    monkeypatch.delenv(bfloat16.STUB, raising=False)
    monkeypatch.setenv("HEADSCOPE_CACHE", str(tmp_path / "cache"))
    bfloat16.bfloat16_state.cache_clear()
    yield
    bfloat16.bfloat16_state.cache_clear()
    torch.backends.mkldnn.enabled = enabled


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Set the probe's answer; oneDNN is on, as in a new process."""

    def state(name: str) -> None:
        monkeypatch.setenv(bfloat16.STUB, name)
        torch.backends.mkldnn.enabled = True

    return state


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The child processes of an Intel CPU with AMX: what each was asked. Without a PRODUCTS of its own it works."""
    requested: list[str] = []
    real = bfloat16.run_child

    def run_child(onednn: str) -> int | None:
        requested.append(onednn)
        return real(onednn)

    monkeypatch.setattr(bfloat16, "describe_cpu", lambda: INTEL)
    monkeypatch.setattr(bfloat16, "run_child", run_child)
    monkeypatch.setattr(bfloat16, "PRODUCTS", "")
    return requested


# The probe


def test_the_real_products_run_in_a_child() -> None:
    assert bfloat16.probe() in ("works", "faults")  # by machine; a fallback exists in both cases


@pytest.mark.parametrize(
    ("products", "state", "children"),
    [
        ("", "works", ["on"]),
        (FAULTS, "faults", ["on", "off"]),
        (NEVER_WORKS, "unusable", ["on", "off"]),
        (NO_TORCH, "untested", ["on"]),
    ],
)
def test_how_the_child_ends_is_the_state(
    products: str,
    state: str,
    children: list[str],
    starts: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bfloat16, "PRODUCTS", products)
    assert bfloat16.bfloat16_state() == state
    assert starts == children


def test_a_child_that_cannot_start_is_no_proof(
    starts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert bfloat16.bfloat16_state() == "untested"
    assert not list(zoo.cache_directory().glob("*"))


def test_the_result_is_remembered_by_the_next_process(
    starts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bfloat16, "PRODUCTS", FAULTS)
    for _ in range(2):
        bfloat16.bfloat16_state.cache_clear()
        assert bfloat16.bfloat16_state() == "faults"
    assert starts == ["on", "off"]
    assert [file.name for file in zoo.cache_directory().iterdir()] == ["bfloat16.json"]


@pytest.mark.parametrize("change", ["variable", "torch", "cpu", "damage"])
def test_what_may_change_the_result_starts_another_test(
    change: str, starts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bfloat16.bfloat16_state()
    bfloat16.bfloat16_state.cache_clear()
    if change == "variable":
        monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
    elif change == "torch":
        monkeypatch.setattr(torch, "__version__", "99.0")
    elif change == "cpu":
        monkeypatch.setattr(bfloat16, "describe_cpu", lambda: {**INTEL, "flags": "amx_bf16"})
    else:
        (zoo.cache_directory() / "bfloat16.json").write_text("[")
    assert bfloat16.bfloat16_state() == "works"
    assert starts == ["on", "on"]


def test_a_cache_that_cannot_be_written_costs_only_another_test(
    starts: list[str], tmp_path: Path
) -> None:
    (tmp_path / "cache").write_text("a file")
    assert bfloat16.bfloat16_state() == "works"


@pytest.mark.parametrize("flags", ["fpu avx512f", ""])
def test_no_child_where_the_instructions_are_absent(
    flags: str, starts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bfloat16, "describe_cpu", lambda: {"flags": flags} if flags else {})
    assert bfloat16.bfloat16_state() == "works"
    assert not starts


def test_the_first_processor_of_cpuinfo_is_read(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text(
        "processor\t: 0\nmodel name\t: A: b\nflags\t\t: fpu amx_bf16\n\nprocessor\t: 1\nflags\t\t: fpu\n"
    )
    assert bfloat16.describe_cpu(file) == {
        "processor": "0",
        "model name": "A: b",
        "flags": "fpu amx_bf16",
    }
    assert bfloat16.describe_cpu(tmp_path / "absent") == {}


def test_an_unknown_stub_is_refused(stub: Callable[[str], None]) -> None:
    stub("maybe")
    with pytest.raises(
        HeadscopeError,
        match=r"^HEADSCOPE_BFLOAT16_PROBE: must be one of works, faults, .*got maybe\.$",
    ):
        bfloat16.bfloat16_state()


# The fallback


def test_without_onednn_no_call_reaches_it() -> None:
    """oneDNN itself reports each of its calls; the same products with it are reported."""
    environment = {**os.environ, "ONEDNN_VERBOSE": "1"}
    run = [sys.executable, "-c", bfloat16.PRODUCTS]
    without = subprocess.run(
        [*run, "off"], capture_output=True, text=True, env=environment, check=True
    )
    assert "onednn_verbose" not in without.stdout
    if torch.backends.mkldnn.is_available():
        with_it = subprocess.run([*run, "on"], capture_output=True, text=True, env=environment)
        assert "onednn_verbose" in with_it.stdout or with_it.returncode < 0


def onednn_during_products(model: PreTrainedModel) -> list[bool]:
    """Whether oneDNN is on whenever one of the model's linear layers is called."""
    seen: list[bool] = []
    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_pre_hook(
                lambda *_: seen.append(bool(torch.backends.mkldnn.enabled))
            )
    return seen


def test_loading_switches_onednn_off_with_one_line(
    stub: Callable[[str], None], tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    folder = saved(tmp_path / "bert", BertModel)
    stub("faults")
    headscope.load(folder)
    assert torch.backends.mkldnn.enabled
    assert not [one for one in recwarn if one.category is HeadscopeWarning]
    for _ in range(2):
        headscope.load(folder, dtype="bfloat16", device="cpu")
    assert not torch.backends.mkldnn.enabled
    [warning] = [one for one in recwarn if one.category is HeadscopeWarning]
    assert str(warning.message) == (
        "bfloat16 faults in oneDNN on this CPU; computed without oneDNN, which is slower. For full speed set "
        "ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16 before Python starts, or use float32."
    )


def test_a_live_model_is_safe_before_its_first_product(stub: Callable[[str], None]) -> None:
    module = copy.deepcopy(tiny("bert").model).bfloat16()
    seen = onednn_during_products(module)
    stub("faults")
    AttentionModel(module, tiny("bert").tokenizer)
    assert seen
    assert not any(seen)


def test_a_model_that_is_partly_bfloat16_is_safe_too(stub: Callable[[str], None]) -> None:
    module = copy.deepcopy(tiny("bert").model)
    module.encoder.layer[1].output.dense.bfloat16()
    stub("faults")
    with pytest.raises(RuntimeError, match="dtype"):
        AttentionModel(module, tiny("bert").tokenizer)
    assert not torch.backends.mkldnn.enabled


@pytest.mark.parametrize("use", ["call", "watch", "self_check"])
def test_a_model_that_is_cast_later_is_safe(use: str, stub: Callable[[str], None]) -> None:
    model = tiny("bert")
    seen = onednn_during_products(model.model)
    stub("faults")
    model.model.to(torch.bfloat16)
    with torch.inference_mode():
        if use == "call":
            model(input_ids=torch.tensor([[3, 8, 9, 4]]))
        elif use == "watch":
            with model.watched(lambda attention: None):
                model.model(input_ids=torch.tensor([[3, 8, 9, 4]]))
        else:
            model.self_check()
    assert seen
    assert not any(seen)


def test_results_without_onednn_are_the_same_up_to_rounding(stub: Callable[[str], None]) -> None:
    bfloat16.ensure_bfloat16()  # as it is on this machine
    model = AttentionModel(copy.deepcopy(tiny("bert").model).bfloat16(), tiny("bert").tokenizer)
    ids = torch.tensor([[3, 8, 9, 10, 4]])
    with torch.inference_mode():
        local = model(input_ids=ids)[0].float()
        torch.backends.mkldnn.enabled = False
        without = model(input_ids=ids)[0].float()
    assert (local - without).abs().mean() < 0.02 * local.abs().mean()


def test_where_nothing_helps_bfloat16_is_refused_and_float32_is_not(
    stub: Callable[[str], None], tmp_path: Path
) -> None:
    folder = saved(tmp_path / "bert", BertModel)
    stub("unusable")
    with pytest.raises(
        HeadscopeError, match=r"^`dtype`: bfloat16 faults on this CPU, with and without oneDNN; use"
    ):
        headscope.load(folder, dtype="bfloat16", device="cpu")
    assert headscope.load(folder).heads


# The command line


def commands_with_dtype() -> tuple[list[str], list[str]]:
    """The commands whose file has the option, and those that have it from their config."""
    files = Path(commands.__file__).parent.glob("[a-z]*.py")
    own = sorted(file.stem for file in files if "Dtype" in file.read_text("utf-8"))
    mains = {
        name: next(config for config in configs.values() if config.command)
        for name, configs in CONFIGS.items()
    }
    made = [name for name, main in mains.items() if "dtype" in main.uses.get(Run, ())]
    return own, sorted(made)


def test_every_command_with_a_dtype_loads_by_the_same_function() -> None:
    """`load` is where the probe is, so a command must hand it the dtype, and build no model of its own."""
    own, made = commands_with_dtype()
    assert {"analyze", "prune", "importance", "look", "serve"} <= {*own, *made}
    for name in own:
        source = (Path(commands.__file__).parent / f"{name}.py").read_text("utf-8")
        assert "load_aloud(" in source or " load(" in source or "**how" in source, name
        assert "from_pretrained" not in source, name
    for name in made:  # these are given the model's name, and `open_model` loads it
        source = (Path(commands.__file__).parent / f"{name.replace('-', '_')}.py").read_text()
        assert " load(" not in source, name
        assert "from_pretrained" not in source, name
    assert "dtype=run.dtype" in inspect.getsource(load_model)


def run_command(*words: str, state: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, bfloat16.STUB: state, "HEADSCOPE_OFFLINE": "1"}
    command = [sys.executable, "-m", "headscope", *words]
    return subprocess.run(
        command, capture_output=True, text=True, env=environment, stdin=subprocess.DEVNULL
    )


def test_a_command_warns_in_one_line_and_goes_on(tmp_path: Path) -> None:
    model, page = saved(tmp_path / "bert", BertModel), tmp_path / "page.html"
    done = run_command(
        "look", str(model), "the old cat", "--dtype", "bfloat16", "--out", str(page), state="faults"
    )
    assert done.returncode == 0, done.stderr
    [line] = [line for line in done.stderr.splitlines() if "oneDNN" in line]
    assert line.startswith(
        "headscope: warning: bfloat16 faults in oneDNN on this CPU; computed without oneDNN"
    )
    assert page.exists()


def test_a_command_refuses_in_one_line_where_nothing_helps(
    stub: Callable[[str], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    model, page = saved(tmp_path / "bert", BertModel), tmp_path / "page.html"
    stub("unusable")
    words = [
        "look",
        str(model),
        "the old cat",
        "--dtype",
        "bfloat16",
        "--device",
        "cpu",
        "--out",
        str(page),
    ]
    monkeypatch.setattr(sys, "argv", ["headscope", *words])
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit) as stop:
        commands.main()
    assert stop.value.code == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("headscope: --dtype: bfloat16 faults on this CPU")
    assert not page.exists()


@pytest.mark.parametrize(
    ("state", "words"), [("works", "bfloat16  works"), ("faults", "computed without oneDNN")]
)
def test_the_doctor_shows_the_state(
    state: str, words: str, stub: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    stub(state)
    monkeypatch.setattr(zoo, "find", lambda name: None)
    shown = CliRunner().invoke(commands.app, ["doctor"]).stdout
    assert words in next(line for line in shown.splitlines() if line.startswith("bfloat16"))


@pytest.mark.skipif(os.name == "nt", reason="no such signal")
def test_a_command_that_dies_by_a_signal_names_it() -> None:
    dying = "commands.app = lambda **options: os.kill(os.getpid(), signal.SIGILL)"
    source = f"import os, signal\nfrom headscope import commands\n{dying}\ncommands.main()"
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    assert done.returncode == -signal.SIGILL
    assert "Fatal Python error: Illegal instruction" in done.stderr
    assert "commands/__init__.py" in done.stderr
