"""Options of `models show`."""

from __future__ import annotations

from dataclasses import dataclass

from headscope.config.option import Config
from headscope.config.shared import Run


@dataclass(frozen=True)
class ShowModelConfig(Config):
    """How a model reads texts, as its files state."""

    command = "models show"
    examples = ("headscope models show minilm", "headscope models show minilm --json")
    python = "headscope.show_model"
    uses = {Run: ("revision",)}
    helps = {"revision": "Branch, tag or commit of a hub model"}
