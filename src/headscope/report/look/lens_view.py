"""The maps of a look page: in the byte format of the explorer's server, compressed, in base64.

The browser unpacks a layer when it is drawn.
"""

from __future__ import annotations

import base64
import zlib
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from headscope.errors import HeadscopeError
from headscope.report.look.encoding import encode_maps
from headscope.report.look.token_axis import TokenAxis


@dataclass(frozen=True)
class StackMaps:
    """The maps of one stack through one lens.

    weights  [layer, head, query, key]; a pruned head is NaN throughout
    """

    stack: str
    query: TokenAxis
    key: TokenAxis
    weights: NDArray[np.float32] = field(repr=False)

    def __post_init__(self) -> None:
        expected = (len(self.query.tokens), len(self.key.tokens))
        if self.weights.ndim != 4 or self.weights.shape[2:] != expected:
            shape = f"[layer, head, {expected[0]}, {expected[1]}]"
            raise ValueError(f"weights {self.weights.shape}: expected {shape}")

    @cached_property
    def present(self) -> list[list[int]]:
        """For each layer the heads that the model has."""
        return [
            [head for head, weights in enumerate(layer) if not np.isnan(weights).all()]
            for layer in self.weights
        ]


@dataclass(frozen=True)
class LensView:
    """The maps of all stacks through one lens.

    name    raw, norm, rollout …
    stacks  their maps
    how     in a sentence or two, what a number means; nothing for raw attention
    shares  whether a number is a share: from 0 to 1, a row's sum at most 1
    forms   names along the second axis of the maps if it does not stand for heads
    layers  names along the first axis if it does not stand for the layers counted from 0
    """

    name: str
    stacks: tuple[StackMaps, ...]
    how: str = ""
    shares: bool = True
    forms: tuple[str, ...] | None = None
    layers: tuple[str, ...] | None = None

    @cached_property
    def is_signed(self) -> bool:
        return not self.shares and any(bool((maps.weights < 0).any()) for maps in self.stacks)

    def payload(self) -> dict[str, object]:
        """The description of this lens, as the explorer's server gives it, and the maps of every layer."""
        summary: list[dict[str, object]] = []
        largest = []
        for maps in self.stacks:
            for layer, heads in enumerate(maps.present):
                for head in heads:
                    weights = maps.weights[layer, head]
                    self._check(weights, f"{maps.stack}.{layer}.{head}")
                    largest.append(float(f"{np.abs(weights).max():.5g}"))
                    address = {"stack": maps.stack, "layer": layer, "head": head}
                    summary.append(
                        {**address, "largest": largest[-1], "entropy": None, "change": 0}
                    )
        lens = {
            "name": self.name,
            "how": self.how,
            "shares": self.shares,
            "signed": self.is_signed,
            "full": 1.0 if self.shares else max(largest, default=0.0) or 1.0,
            "forms": self.forms,
            "layers": self.layers,
        }
        maps_of = {maps.stack: self._pack(maps) for maps in self.stacks}
        return {"lens": lens, "summary": summary, "maps": maps_of}

    def _pack(self, maps: StackMaps) -> list[str | None]:
        """The maps of each layer as one text; None for a layer without heads."""
        texts: list[str | None] = []
        for layer, heads in enumerate(maps.present):
            places = [(layer, head) for head in heads]
            content = encode_maps(places, maps.weights[layer, heads], signed=self.is_signed)
            text = base64.b64encode(zlib.compress(content, 9)).decode("ascii")
            texts.append(text if heads else None)
        return texts

    def _check(self, weights: NDArray[np.float32], head: str) -> None:
        """Refuse invalid numbers; half-precision softmax rows exceed 1 by a little, anything more is wrong."""
        is_finite = bool(np.isfinite(weights).all())
        if self.shares and not (is_finite and weights.min() >= 0 and weights.max() <= 1.01):
            what = "attention weights must be from 0 to 1"
        elif not is_finite:
            what = f"numbers of the lens {self.name} must be finite"
        else:
            return
        got = f"{weights.min():.4g} to {weights.max():.4g}"
        fix = "If the model runs in half precision, load it in float32"
        raise HeadscopeError(f"{what}, got {got}", where=f"head {head}", fix=fix)
