"""The lenses by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headscope.config.checks import lenses_named
from headscope.errors import HeadscopeError
from headscope.model.attention import Attention
from headscope.model.lenses.base import ROWS, SIGN, Lens
from headscope.model.lenses.effective import EffectiveLens, SimplexLens
from headscope.model.lenses.gradient import GradientLens
from headscope.model.lenses.norm import NormLens

if TYPE_CHECKING:
    from torch import Tensor

    from headscope.model.attention_model import AttentionModel


class RawLens(Lens):
    """Attention as it is."""

    name = "raw"
    gives = frozenset({ROWS, SIGN})

    def seen(self, attention: Attention, gradient: Tensor | None = None) -> Attention:
        return attention


LENSES: dict[str, type[Lens]] = {
    kind.name: kind for kind in (RawLens, EffectiveLens, SimplexLens, NormLens, GradientLens)
}


def lens_named(name: str, model: AttentionModel) -> Lens:
    """The lens of this name for a model."""
    if not isinstance(name, str):
        raise HeadscopeError(
            f"{name!r} is not the name of one lens", where="lens", fix="Open one within another"
        )
    (known,) = lenses_named([name], where="lens")
    return LENSES[known](model)
