"""Ablation modes: what replaces the output of an ablated head. One mode per file; files need no registration.

A file defines `MODE`, a subclass of `AblationMode`. Its name is the name of the mode in `importance --mode`.
`config/names` lists the files without importing them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib import import_module
from typing import ClassVar

from torch import Tensor

from headscope.config.checks import check_choice
from headscope.config.names import MODES
from headscope.heads import Head
from headscope.model.attention_model import AttentionModel
from headscope.model.edits import Edit
from headscope.tasks.base import Task
from headscope.tasks.prepared import Prepared


class AblationMode(ABC):
    """Replaces ablated heads of one model, on one set of examples.

    is_zero   whether ablated heads add nothing to the residual stream
    stacks    the stacks whose heads can be replaced; None: all
    patterns  the fixed pattern of each head, if the mode uses patterns
    """

    is_zero: ClassVar[bool] = False
    stacks: ClassVar[tuple[str, ...] | None] = None

    def __init__(self, patterns: Mapping[Head, str]) -> None:
        """patterns: the fixed pattern of each head, if these were chosen on other examples; else empty."""
        self.patterns = dict(patterns)

    def prepare(  # noqa: B027 (optional)
        self, model: AttentionModel, task: Task, prepared: Prepared, batch_size: int
    ) -> None:
        """Compute statistics that the mode needs from the examples, such as mean outputs."""

    def replaces(self, head: Head) -> bool:
        """Whether the mode can replace this head."""
        return True

    def constant(self, head: Head) -> Tensor | None:
        """[head width]: the output, before projection, that replaces the head's; None if it depends on the input."""
        return None

    @abstractmethod
    def edit(self, heads: tuple[Head, ...]) -> Edit:
        """The edit that replaces these heads."""


def mode_class(name: str) -> type[AblationMode]:
    check_choice(name, MODES, "`mode`", "is not an ablation mode")
    mode: type[AblationMode] = import_module(f"{__name__}.{name.replace('-', '_')}").MODE
    return mode
