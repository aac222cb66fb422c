"""Zero: an ablated head adds nothing to the residual stream."""

from __future__ import annotations

from headscope.ablation.modes import AblationMode
from headscope.heads import Head
from headscope.model.edits import Ablate


class ZeroMode(AblationMode):
    is_zero = True

    def edit(self, heads: tuple[Head, ...]) -> Ablate:
        return Ablate(heads)


MODE = ZeroMode
