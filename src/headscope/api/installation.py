"""The installation: versions, devices, families, and the self-check of downloaded models."""

from __future__ import annotations

from typing import Any

import torch

from headscope.errors import HeadscopeError
from headscope.model import zoo
from headscope.model.bfloat16 import STATES, bfloat16_state
from headscope.model.families import families
from headscope.model.fold import has_numba
from headscope.model.load import load
from headscope.study.run_record import versions

COMPILED = "compiled (numba)"
NOT_COMPILED = "not compiled, so statistics are slower: pip install numba"


def describe_installation() -> dict[str, Any]:
    """What `headscope doctor` prints, by name."""
    gpus = (f"cuda:{i} ({torch.cuda.get_device_name(i)})" for i in range(torch.cuda.device_count()))
    return {
        "versions": versions(),
        "devices": ["cpu", *gpus, *(["mps"] if torch.backends.mps.is_available() else [])],
        "threads": torch.get_num_threads(),
        "bfloat16": STATES[bfloat16_state()],
        "row_sums": COMPILED if has_numba() else NOT_COMPILED,
        "families": list(families()),
        "cache": str(zoo.cache_directory()),
        "models": {name: _check_model(name) for name in zoo.MODELS},
    }


def _check_model(name: str) -> str:
    """The result of a model's self-check, if it is downloaded."""
    if zoo.find(name) is None:
        return f"not downloaded (headscope models fetch {name})"
    try:
        model = load(name)
        return f"{len(model.heads)} heads, self-check: outputs differ by {model.self_check():.0e}"
    except HeadscopeError as error:
        return str(error)
