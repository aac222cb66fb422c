"""Maps as pages get them, read as docs/reference/explorer.md describes the bytes."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Maps:
    """Maps as they came: values [map, row, column] of the heads at `places`, and each row's largest."""

    places: list[tuple[int, int]]
    values: NDArray[np.float64]
    largest: NDArray[np.float64]
    is_signed: bool

    @classmethod
    def of(cls, body: bytes) -> Maps:
        magic, kind, count, rows, columns = struct.unpack_from("<4sIIII", body)
        assert magic == b"HSM1"
        at = 20
        numbers = struct.unpack_from(f"<{2 * count}H", body, at)
        at += 4 * count
        largest = np.frombuffer(body, "<f4", count * rows, at).reshape(count, rows).astype(float)
        at += 4 * count * rows
        codes = np.frombuffer(body, "i1" if kind else "u1", count * rows * columns, at).astype(
            float
        )
        assert len(body) == at + len(codes), "nothing is left over"
        codes = codes.reshape(count, rows, columns)
        share = np.sign(codes) * (codes / 127) ** 2 if kind else (codes / 255) ** 2
        places = list(zip(numbers[::2], numbers[1::2], strict=True))
        return cls(places, largest[..., None] * share, largest, bool(kind))
