"""The lenses by name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headscope.errors import HeadscopeError, choices, names_in
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

TOKEN_MAPS = ("rollout", "flow", "gradient-rollout", "relevance", "value-zeroing", "knock-out")  # of all heads together


def lenses_named(names: str | Iterable[str], where: str = "--lens") -> tuple[str, ...]:
    """Names of lenses, each once and in the order given: "raw,norm" or a list of them."""
    asked = names_in(names, "lens")
    for name in asked:
        if name in TOKEN_MAPS:
            raise HeadscopeError(
                f'"{name}" is a map of tokens over all heads, no lens on a head',
                where=where,
                expected=f"some of {', '.join(LENSES)}",
                mend=f'See it by headscope look --lens {name}, or headscope.token_map(model, text, by="{name}")',
            )
        if name not in LENSES:
            raise HeadscopeError(f'"{name}" is no lens', where=where, expected=choices(name, LENSES))
    if not asked:
        raise HeadscopeError("no lens is named", where=where, expected=f"some of {', '.join(LENSES)}")
    return tuple(dict.fromkeys(asked))


def lens_named(name: str, model: AttentionModel) -> Lens:
    """The lens of this name for a model."""
    if not isinstance(name, str):
        raise HeadscopeError(f"{name!r} is not the name of one lens", where="lens", mend="Open one within another")
    (known,) = lenses_named([name], where="lens")
    return LENSES[known](model)
