"""Test once, in a child process, whether bfloat16 products work on this CPU.

Some virtualised CPUs report AMX or AVX-512 bfloat16 instructions that fault when oneDNN uses them. The fault is a
signal that ends the process and cannot be handled as an exception, so the test runs in a child process. Its result is
stored in the cache directory:

    <cache>/bfloat16.json    {"key": sha256 of CPU, torch version and oneDNN variables, "state": "works"}

If products fault, oneDNN is switched off for the rest of the process. A limited instruction set
(ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16) would be faster, but it has no effect after torch's first call of oneDNN.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from headscope.errors import HeadscopeError, note
from headscope.model.zoo import cache_directory

STATES = {
    "works": "works",
    "faults": "faults in oneDNN on this CPU; computed without oneDNN, which is slower",
    "untested": "could not be tested on this CPU; computed without oneDNN, which is slower",
    "unusable": "faults on this CPU, with and without oneDNN; use float32",
}
STUB = "HEADSCOPE_BFLOAT16_PROBE"  # environment variable with a state that replaces the test, for headscope's tests
RISKY = {"amx_bf16", "amx_tile", "avx512_bf16"}  # CPU flags of the instructions that may fault
VARIABLES = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "ONEDNN_CPU_ISA_HINTS", "DNNL_CPU_ISA_HINTS")
SECONDS = 300  # a child process that takes longer is assumed to hang
PRODUCTS = """
import sys, torch
torch.backends.mkldnn.enabled = sys.argv[1] == "on"
x = torch.ones(2, 600, 64, dtype=torch.bfloat16, requires_grad=True)
y = torch.nn.Linear(64, 64, dtype=torch.bfloat16)(x)
z = torch.nn.functional.scaled_dot_product_attention(y[:, None], y[:, None], y[:, None])[:, 0]
torch.bmm(z, y.transpose(1, 2)).float().sum().backward()
"""  # forward and backward: a linear layer, fused attention and a batched product
FIX = "For full speed set ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16 before Python starts, or use float32"


def prepare_bfloat16(*values: Tensor) -> None:
    """Make bfloat16 safe (`ensure_bfloat16`) if one of these tensors is a bfloat16 tensor on the CPU."""
    if any(value.dtype == torch.bfloat16 and value.device.type == "cpu" for value in values):
        ensure_bfloat16()


def ensure_bfloat16() -> None:
    """Switch oneDNN off, with a warning, if bfloat16 products fault; raise if they fault even without oneDNN."""
    state = bfloat16_state()
    if state == "unusable":
        raise HeadscopeError(f"bfloat16 {STATES[state]}", where="`dtype`")
    if state != "works" and torch.backends.mkldnn.enabled:
        torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
        note(f"bfloat16 {STATES[state]}. {FIX}.")


@cache
def bfloat16_state() -> str:
    """One of `STATES`: from the variable `STUB`, from the cache directory, or from a test in a child process."""
    if stub := os.environ.get(STUB):
        if stub not in STATES:
            raise HeadscopeError(f"must be one of {', '.join(STATES)}, got {stub}", where=STUB)
        return stub
    cpu = describe_cpu()
    if not RISKY & set(cpu.get("flags", "").split()):
        return "works"
    file, key = cache_directory() / "bfloat16.json", _key(cpu)
    with suppress(OSError, ValueError):
        remembered = json.loads(file.read_text("utf-8"))
        if remembered["key"] == key and remembered["state"] in STATES:
            return str(remembered["state"])
    state = probe()
    if state != "untested":
        with suppress(OSError):  # if the cache cannot be written, the next process tests again
            _remember(file, {"key": key, "state": state})
    return state


def probe() -> str:
    """Run the products in a child process; if a signal ends it, run them again without oneDNN."""
    status = run_child("on")
    if status == 0:
        return "works"
    # A signal gives a negative status on POSIX, and 0xC0000000 or more on Windows.
    if status is None or 0 <= status < 0xC0000000:
        return "untested"
    return "faults" if run_child("off") == 0 else "unusable"


def run_child(onednn: str) -> int | None:
    """The exit status of the products with oneDNN "on" or "off"; None if the child did not start or did not end."""
    try:
        # -P: do not import a torch.py from the working directory
        command = [sys.executable, "-P", "-c", PRODUCTS, onednn]
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS
        ).returncode
    except (OSError, subprocess.TimeoutExpired):
        return None


def describe_cpu(file: Path = Path("/proc/cpuinfo")) -> dict[str, str]:
    """The fields of the first processor in /proc/cpuinfo; empty on systems other than Linux."""
    try:
        first = file.read_text("utf-8", errors="replace").partition("\n\n")[0]
    except OSError:
        return {}
    fields = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in fields}


def _key(cpu: dict[str, str]) -> str:
    """A hash of everything that the result of the test depends on."""
    facts = [cpu.get(name, "") for name in ("model name", "microcode", "flags")]
    facts += [platform.release(), torch.__version__]
    facts += [os.environ.get(name, "") for name in VARIABLES]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()


def _remember(file: Path, record: dict[str, str]) -> None:
    """Write a record to the cache, by a rename, so that other processes never read half a file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f"{file.name}.{os.getpid()}")
    temporary.write_text(json.dumps(record), "utf-8")
    temporary.replace(file)
