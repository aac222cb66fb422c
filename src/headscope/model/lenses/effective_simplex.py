"""Effective attention whose rows keep their sum of 1, as weights stay on the simplex (see `effective`)."""

from __future__ import annotations

from headscope.model.lenses._base import RANK, ROWS
from headscope.model.lenses.effective import EffectiveLens


class SimplexLens(EffectiveLens):
    name = "effective-simplex"
    gives = frozenset({ROWS, RANK})
    with_ones = True
