"""Sums by head and offset over sequences of different lengths."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray


# Offsets further away than this are not counted one by one: at 32,768 tokens they would take a gigabyte.
MOST_OFFSET = 2048
PENDING_CELLS = 1_000_000  # values that wait to be added


class OffsetSums:
    """Sum and sum of squares [head, offset] over sequences.

    Offsets are -R … R. R grows with the longest sequence, up to MOST_OFFSET.
    """

    def __init__(self) -> None:
        self.count = 0
        self.total: NDArray[np.float64] = np.zeros((0, 1))
        self.total_of_squares: NDArray[np.float64] = np.zeros((0, 1))
        self._pending: list[Tensor] = []

    def add(self, values: Tensor) -> None:
        """Add values [sequence, head, offset], all sequences of one length."""
        if self._pending and self._pending[0].shape[-1] != values.shape[-1]:
            self.settle()
        self._pending.append(values)
        # Many chunks are added at once, to save time
        if len(self._pending) >= 64 or values.numel() * len(self._pending) > PENDING_CELLS:
            self.settle()

    def settle(self) -> None:
        """Add the pending values to the sums."""
        if self._pending:
            values = torch.cat(self._pending).double()
            self._pending = []
            self._absorb(values)

    def _absorb(self, values: Tensor) -> None:
        values = near_offsets(values)
        self.count += len(values)
        self.total = add_centred(self.total, values.sum(dim=0).cpu().numpy())
        squares = values.square().sum(dim=0).cpu().numpy()
        self.total_of_squares = add_centred(self.total_of_squares, squares)

    def merge(self, other: OffsetSums) -> None:
        self.settle()
        other.settle()
        self.count += other.count
        self.total = add_centred(self.total, other.total)
        self.total_of_squares = add_centred(self.total_of_squares, other.total_of_squares)

    def mean(self) -> NDArray[np.float64]:
        """[head, offset]"""
        self.settle()
        return self.total / max(self.count, 1)

    def __getstate__(self) -> dict[str, Any]:
        self.settle()
        return self.__dict__.copy()


def near_offsets(values: Tensor) -> Tensor:
    """Values […, offset] without those beyond MOST_OFFSET."""
    middle = values.shape[-1] // 2
    return values[..., max(middle - MOST_OFFSET, 0) : middle + MOST_OFFSET + 1]


def add_centred(left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    """Add two arrays [head, offset] of different widths, aligned at offset 0 in the middle."""
    narrow, wide = sorted((left, right), key=lambda sums: sums.shape[1])
    if not len(narrow):
        return wide.copy()
    if not len(wide):
        wide = np.zeros((len(narrow), wide.shape[1]))
    side = (wide.shape[1] - narrow.shape[1]) // 2
    return wide + np.pad(narrow, ((0, 0), (side, side)))
