"""Uniform: an ablated head attends equally to every key it may attend to."""

from __future__ import annotations

from headscope.ablation.modes import AblationMode
from headscope.heads import Head
from headscope.model.edits import Uniform


class UniformMode(AblationMode):
    def edit(self, heads: tuple[Head, ...]) -> Uniform:
        return Uniform(heads)


MODE = UniformMode
