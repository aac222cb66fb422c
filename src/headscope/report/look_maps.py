"""The maps of a look page and how they are stored.

A map is stored as one byte a cell: code = round(255 · √(weight / largest weight of its row)), beside each
row's largest weight as float32; then deflate and base64. Read back, a weight w in a row whose largest is m is
off by at most √(w·m)/255 + m/(4·255²): never more than 0.004 of m, far less near 0. Where a lens gives numbers below
0, the code is 128 ± round(127 · √(|w| / m)), and 127 stands in the place of 255. The browser unpacks a map when it
is drawn.
"""

from __future__ import annotations

import base64
import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headscope.errors import HeadscopeError
from headscope.report.look_sides import Side


@dataclass(frozen=True)
class StackMaps:
    """The maps of one stack through one lens.

    weights  [layer, head, query, key]; a head that is not there (it was cut) is NaN throughout
    """

    stack: str
    query: Side
    key: Side
    weights: NDArray[np.float32]

    def __post_init__(self) -> None:
        expected = (len(self.query.tokens), len(self.key.tokens))
        if self.weights.ndim != 4 or self.weights.shape[2:] != expected:
            raise ValueError(f"weights {self.weights.shape}: expected [layer, head, {expected[0]}, {expected[1]}]")

    def payload(self) -> dict[str, object]:
        """What the page is told about this stack's axes; `key` is None where both are the same tokens."""
        return {
            "stack": self.stack,
            "query": self.query.payload(),
            "key": None if self.key == self.query else self.key.payload(),
        }


@dataclass(frozen=True)
class Lens:
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

    def payload(self) -> dict[str, object]:
        """What the page is told about this lens."""
        everything = [one.weights[np.isfinite(one.weights)] for one in self.stacks]
        signed = any(bool((one < 0).any()) for one in everything) and not self.shares
        largest = max((float(np.abs(one).max()) for one in everything if one.size), default=0.0)
        return {
            "name": self.name,
            "how": self.how,
            "shares": self.shares,
            "signed": signed,
            "full": 1.0 if self.shares else largest or 1.0,
            "forms": self.forms,
            "layers": self.layers,
            "maps": {one.stack: self._grid(one, signed) for one in self.stacks},
        }

    def _grid(self, one: StackMaps, signed: bool) -> list[list[str | None]]:
        layers, heads = one.weights.shape[:2]
        return [[self._packed(one, layer, head, signed) for head in range(heads)] for layer in range(layers)]

    def _packed(self, one: StackMaps, layer: int, head: int, signed: bool) -> str | None:
        weights = one.weights[layer, head]
        if np.isnan(weights).all():
            return None
        # half-precision softmax rows overshoot 1 by a little; anything more is not attention
        if self.shares and not (np.isfinite(weights).all() and weights.min() >= 0 and weights.max() <= 1.01):
            raise HeadscopeError(
                f"{one.stack}.{layer}.{head} has weights that are not numbers from 0 to 1",
                expected="attention weights, each row summing to 1",
                mend="If the model runs in half precision, load it in float32",
            )
        if not np.isfinite(weights).all():
            raise HeadscopeError(
                f"{one.stack}.{layer}.{head} is not finite through the lens {self.name}",
                mend="If the model runs in half precision, load it in float32",
            )
        return pack(weights, signed=signed)


def quantised(weights: NDArray[np.float32], *, signed: bool = False) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    """Maps [..., query, key] in one byte a cell: each row's largest size [..., query], and the codes."""
    size = np.abs(weights)
    top = size.max(axis=-1).astype("<f4")
    share = size / np.where(top > 0, top, np.float32(1))[..., None]
    codes = 128 + np.sign(weights) * np.rint(127 * np.sqrt(share)) if signed else np.rint(255 * np.sqrt(share))
    return top, codes.astype(np.uint8)


def pack(weights: NDArray[np.float32], *, signed: bool = False) -> str:
    """One map [query, key] as the page stores it: row maxima, then codes, deflated, in base64."""
    top, codes = quantised(weights, signed=signed)
    return base64.b64encode(zlib.compress(top.tobytes() + codes.tobytes(), 9)).decode("ascii")
