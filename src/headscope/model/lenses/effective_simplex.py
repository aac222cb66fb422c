"""Effective attention whose rows still sum to 1, as attention weights on the simplex do (see `effective`)."""

from __future__ import annotations

from headscope.model.lenses._base import RANK, ROWS
from headscope.model.lenses.effective import EffectiveLens


class SimplexLens(EffectiveLens):
    name = "effective-simplex"
    gives = frozenset({ROWS, RANK})
    with_ones = True
