"""The maps of a look page: in the form in which the explorer's server answers, deflated, as text.

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

    weights  [layer, head, query, key]; a head that is not there (it was cut) is NaN throughout
    """

    stack: str
    query: TokenAxis
    key: TokenAxis
    weights: NDArray[np.float32] = field(repr=False)

    def __post_init__(self) -> None:
        expected = (len(self.query.tokens), len(self.key.tokens))
        if self.weights.ndim != 4 or self.weights.shape[2:] != expected:
            raise ValueError(
                f"weights {self.weights.shape}: expected [layer, head, {expected[0]}, {expected[1]}]"
            )

    @property
    def there(self) -> list[list[int]]:
        """For each layer the heads that are there."""
        return [
            [head for head, weights in enumerate(layer) if not np.isnan(weights).all()]
            for layer in self.weights
        ]


@dataclass(frozen=True)
class LensView:
    """What is looked at: the maps of all stacks.

    name    raw, norm, rollout …
    stacks  their maps
    how     in a sentence or two, what a number means; nothing for raw attention
    shares  whether a number is a share: from 0 to 1, a row's sum at most 1
    forms   what the second axis of the maps is, where it is not heads
    layers  what the first axis is called, where it is not the layers counted from 0
    """

    name: str
    stacks: tuple[StackMaps, ...]
    how: str = ""
    shares: bool = True
    forms: tuple[str, ...] | None = None
    layers: tuple[str, ...] | None = None

    @cached_property
    def is_signed(self) -> bool:
        return not self.shares and any(bool((one.weights < 0).any()) for one in self.stacks)

    def payload(self) -> dict[str, object]:
        """What the page is told about this lens: as the explorer's server tells it, and the maps of every layer."""
        for one in self.stacks:
            self._check(one)
        places = [
            (one, i, head)
            for one in self.stacks
            for i, heads in enumerate(one.there)
            for head in heads
        ]
        largest = [
            float(f"{np.abs(one.weights[layer, head]).max():.5g}") for one, layer, head in places
        ]
        summary = [
            {
                "stack": one.stack,
                "layer": layer,
                "head": head,
                "largest": size,
                "entropy": None,
                "change": 0,
            }
            for (one, layer, head), size in zip(places, largest, strict=True)
        ]
        full = 1.0 if self.shares else max(largest, default=0.0) or 1.0
        told = {
            "name": self.name,
            "how": self.how,
            "shares": self.shares,
            "signed": self.is_signed,
            "full": full,
        }
        return {
            "lens": told | {"forms": self.forms, "layers": self.layers},
            "summary": summary,
            "maps": {one.stack: self._packed(one) for one in self.stacks},
        }

    def _packed(self, one: StackMaps) -> list[str | None]:
        """Of each layer the maps that are there, in one text; nothing where there are none."""
        texts = []
        for layer, heads in enumerate(one.there):
            maps = encode_maps(
                [(layer, head) for head in heads], one.weights[layer, heads], signed=self.is_signed
            )
            texts.append(
                base64.b64encode(zlib.compress(maps, 9)).decode("ascii") if heads else None
            )
        return texts

    def _check(self, one: StackMaps) -> None:
        """Refuse numbers that are none; half-precision softmax rows overshoot 1 by a little, anything more is wrong."""
        for layer, heads in enumerate(one.there):
            for head in heads:
                weights = one.weights[layer, head]
                is_finite = bool(np.isfinite(weights).all())
                fix = "If the model runs in half precision, load it in float32"
                if self.shares and not (is_finite and weights.min() >= 0 and weights.max() <= 1.01):
                    raise HeadscopeError(
                        f"{one.stack}.{layer}.{head} has weights that are not numbers from 0 to 1",
                        expected="attention weights, each row summing to 1",
                        fix=fix,
                    )
                if not is_finite:
                    raise HeadscopeError(
                        f"{one.stack}.{layer}.{head} is not finite through the lens {self.name}",
                        fix=fix,
                    )
