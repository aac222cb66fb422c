"""Sums of one number for each head and offset, over sequences of any length."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray


class OffsetSums:
    """Sum and sum of squares [head, offset] over sequences; offsets -R … R, R grows as needed."""

    def __init__(self) -> None:
        self.count = 0
        self.total: NDArray[np.float64] = np.zeros((0, 1))
        self.total_of_squares: NDArray[np.float64] = np.zeros((0, 1))
        self._pending: list[Tensor] = []

    def add(self, values: Tensor) -> None:
        """values [sequence, head, offset], all sequences of one length."""
        if self._pending and self._pending[0].shape[-1] != values.shape[-1]:
            self.settle()
        self._pending.append(values)
        if len(self._pending) >= 64:
            self.settle()

    def settle(self) -> None:
        if not self._pending:
            return
        values = torch.cat(self._pending).double()
        self._pending = []
        self._take(len(values), values.sum(dim=0).cpu().numpy(), values.square().sum(dim=0).cpu().numpy())

    def _take(self, count: int, total: NDArray[np.float64], total_of_squares: NDArray[np.float64]) -> None:
        width = max(self.total.shape[1], total.shape[1])
        self.count += count
        self.total = widened(self.total, len(total), width) + widened(total, len(total), width)
        self.total_of_squares = widened(self.total_of_squares, len(total), width) + widened(
            total_of_squares, len(total), width
        )

    def merge(self, other: OffsetSums) -> None:
        self.settle()
        other.settle()
        if other.count:
            self._take(other.count, other.total, other.total_of_squares)

    def mean(self) -> NDArray[np.float64]:
        """[head, offset]"""
        self.settle()
        return self.total / max(self.count, 1)

    def __getstate__(self) -> dict[str, Any]:
        self.settle()
        return self.__dict__.copy()


def widened(values: NDArray[np.float64], heads: int, width: int) -> NDArray[np.float64]:
    """[head, offset] with zeros added on both sides until there are `width` offsets."""
    result = np.zeros((heads, width))
    if len(values):
        side = (width - values.shape[1]) // 2
        result[:, side : width - side] = values
    return result
