"""Options of `headscope.load`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headscope.config.option import Config
from headscope.config.shared import Reading, Run


@dataclass(frozen=True)
class LoadConfig(Config):
    """How a model is loaded.

    model_class  a transformers class or its name, instead of the one that the checkpoint names
    labels       the classes of a new classifier, with a `model_class` that has one
    """

    command = "load"
    uses = {
        Reading: ("pooling", "prompt", "mask", "open_special"),
        Run: ("revision", "device", "dtype"),
    }

    model_class: Any = None
    labels: tuple[str, ...] = ()
