"""Whether bfloat16 products work on this CPU, tested once in a child process.

Some virtualised CPUs report AMX or AVX-512 bfloat16 instructions that fault when oneDNN uses them. The fault is a
signal, which no exception handler sees, so the test runs in a child process. Its result is kept in the cache directory:

    <cache>/bfloat16.json    {"key": sha256 of CPU, torch version and oneDNN variables, "state": "works"}

Where products fault, oneDNN is switched off for the whole process. A limited instruction set
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
STUB = "HEADSCOPE_BFLOAT16_PROBE"  # a state instead of the test, for tests of what follows from it
RISKY = {"amx_bf16", "amx_tile", "avx512_bf16"}  # CPU flags of the instructions that may fault
VARIABLES = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "ONEDNN_CPU_ISA_HINTS", "DNNL_CPU_ISA_HINTS")
SECONDS = 300  # a child that takes longer hangs
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
    """Make bfloat16 safe if one of these parameters is in it, on the CPU."""
    if any(value.dtype == torch.bfloat16 and value.device.type == "cpu" for value in values):
        ensure_bfloat16()


def ensure_bfloat16() -> None:
    """Switch oneDNN off, with a warning, if bfloat16 products fault; an error if that does not help."""
    state = bfloat16_state()
    if state == "unusable":
        raise HeadscopeError(f"bfloat16 {STATES[state]}", where="`dtype`")
    if state != "works" and torch.backends.mkldnn.enabled:
        torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
        note(f"bfloat16 {STATES[state]}. {FIX}.")


@cache
def bfloat16_state() -> str:
    """One of `STATES`: from the stub, from the cache directory, or from a child process."""
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
        with suppress(OSError):  # without a cache it is tested again next time
            _remember(file, {"key": key, "state": state})
    return state


def probe() -> str:
    """Run the products in a child process; if it dies, once more without oneDNN."""
    status = run_child("on")
    if status == 0:
        return "works"
    if status is None or 0 <= status < 0xC0000000:  # not ended by a signal (POSIX; Windows)
        return "untested"
    return "faults" if run_child("off") == 0 else "unusable"


def run_child(onednn: str) -> int | None:
    """The exit status of the products with oneDNN "on" or "off"; None if the child did not start or did not end."""
    try:
        # -P: a torch.py in the working directory is not torch
        command = [sys.executable, "-P", "-c", PRODUCTS, onednn]
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS
        ).returncode
    except (OSError, subprocess.TimeoutExpired):
        return None


def describe_cpu(file: Path = Path("/proc/cpuinfo")) -> dict[str, str]:
    """The first processor's fields in Linux' cpuinfo; empty on other systems."""
    try:
        first = file.read_text("utf-8", errors="replace").partition("\n\n")[0]
    except OSError:
        return {}
    fields = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in fields}


def _key(cpu: dict[str, str]) -> str:
    parts = [cpu.get(name, "") for name in ("model name", "microcode", "flags")]
    parts += [platform.release(), torch.__version__]
    parts += [os.environ.get(name, "") for name in VARIABLES]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _remember(file: Path, record: dict[str, str]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f"{file.name}.{os.getpid()}")
    temporary.write_text(json.dumps(record), "utf-8")
    temporary.replace(file)
