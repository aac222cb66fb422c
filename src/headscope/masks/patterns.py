"""Masks and the named patterns: functions of a length that give which position (row) may attend to which (column).

With their defaults, patterns of SparseBERT's table have the sparsities printed there for 128 positions. The parameters
of longformer and bigbird were not published.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from headscope.heads import Head, Site

Positions = tuple[str, ...]  # numbers from 0, or first, middle, last
Pattern = Callable[..., Tensor]

PATTERNS: dict[str, Pattern] = {}


@dataclass(frozen=True)
class Mask:
    """Which position may attend to which, at any length.

    make   from a length and a site to bool [head, position, position], or [1, …] if it is the same for all heads
    per    whether there is a mask per model, layer or head
    check  raises an error for heads of a model that the mask is not for
    """

    name: str
    make: Callable[[int, Site | None], Tensor]
    per: str = "model"
    check: Callable[[Iterable[Head]], None] = lambda heads: None

    def at(self, length: int, site: Site | None = None) -> Tensor:
        """Bool [head or 1, length, length]: True where the row's position may attend to the column's."""
        return self.make(length, site)


def pattern(make: Pattern) -> Pattern:
    """Register a pattern by its name, with hyphens."""
    PATTERNS[make.__name__.replace("_", "-")] = make
    return make


@pattern
def dense(length: int) -> Tensor:
    """All to all."""
    return torch.ones(length, length, dtype=torch.bool)


@pattern
def diagonal(length: int) -> Tensor:
    """To itself only."""
    return _distance(length) == 0


@pattern
def no_diagonal(length: int) -> Tensor:
    """To all but itself."""
    return _distance(length) != 0


@pattern
def window(length: int, width: int = 4) -> Tensor:
    """To itself and the `width` positions on either side."""
    return _distance(length) <= width


@pattern
def first_and_last(length: int) -> Tensor:
    """The first and the last position attend to all, and all attend to them."""
    return _open(length, ("first", "last"))


@pattern
def strided(length: int, stride: int = 4) -> Tensor:
    """A window of `stride`, and every position a multiple of it away (Child et al. 2019, both heads, both ways)."""
    distance = _distance(length)
    return (distance <= stride) | (distance % stride == 0)


@pattern
def fixed(length: int, stride: int = 4, summary: int = 1) -> Tensor:
    """The block of `stride` positions, and the last `summary` positions of every block (Child et al. 2019)."""
    position = torch.arange(length)
    same_block = position[:, None] // stride == position[None, :] // stride
    return same_block | (position % stride >= stride - summary)[None, :]


@pattern
def longformer(length: int, width: int = 5, globals: Positions = ("first", "middle")) -> Tensor:
    """A window, and global positions that see all and are seen by all (Beltagy et al. 2020).

    Global positions beyond the end of a text are ignored.
    """
    return window(length, width) | _open(length, globals)


@pattern
def logsparse(length: int) -> Tensor:
    """Itself, and the positions 1, 2, 4, 8 … away on either side (Li et al. 2019)."""
    distance = _distance(length)
    return (distance & (distance - 1) == 0) | (distance == 0)


@pattern
def bigbird(
    length: int, width: int = 1, globals: Positions = ("first",), random: int = 4, seed: int = 0
) -> Tensor:
    """A window, global positions, and `random` keys for every query, drawn with replacement (Zaheer et al. 2020).

    With the seed 0, 1,126 pairs of 128 positions are open, 93.13 % forbidden; over seeds 93.16 %.
    """
    keys = torch.randint(length, (length, random), generator=_generator(seed, length))
    drawn = torch.zeros(length, length).scatter(1, keys, 1.0).bool()
    return longformer(length, width, globals) | drawn


@pattern
def star(length: int) -> Tensor:
    """Neighbours, and the first position as a relay between all (Guo et al. 2019)."""
    return window(length, 1) | _open(length, ("first",))


@pattern
def random(length: int, keep: float = 0.5, drop: int = 0, seed: int = 0) -> Tensor:
    """Keys by chance: the share `keep` of them for every query, or all but `drop`; one always stays."""
    count = length - drop if drop else round(keep * length)
    order = torch.rand(length, length, generator=_generator(seed, length)).argsort(dim=1)
    return order < max(count, 1)


def _distance(length: int) -> Tensor:
    position = torch.arange(length)
    return (position[:, None] - position[None, :]).abs()


def _open(length: int, positions: Positions) -> Tensor:
    """The rows and columns of these positions."""
    names = {"first": 0, "middle": length // 2, "last": length - 1}
    indices = [names[name] if name in names else int(name) for name in positions]
    is_open = torch.zeros(length, dtype=torch.bool)
    is_open[[index for index in indices if index < length]] = True
    return is_open[:, None] | is_open[None, :]


def _generator(seed: int, length: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed * 1_000_003 + length)
