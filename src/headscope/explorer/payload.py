"""Maps as bytes: what the page draws, one request a layer.

One form for whole maps, thumbnails and differences, all numbers little-endian:

    4 bytes   "HSM1"
    uint32    what the codes are: 0 weights, 1 numbers with a sign (differences, some lenses)
    uint32    maps, rows (queries), columns (keys) of each: three numbers
    uint16    layer and head of each map: two numbers a map
    float32   the largest of each row, maps x rows
    uint8     the codes, maps x rows x columns (int8 for signed ones)

A weight is largest · (code / 255)², as on the look page; one with a sign is largest · sign(code) · (code / 127)²,
where `largest` is that of its row without the signs.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headscope.report.look_maps import quantised

MAGIC = b"HSM1"
WEIGHTS, SIGNED = 0, 1
THUMBNAIL = 48  # cells a side at most

Place = tuple[int, int]  # layer, head


def packed(places: Sequence[Place], weights: NDArray[np.float32], *, signed: bool = False) -> bytes:
    """Maps [map, query, key] with the layer and head of each."""
    if not signed:
        return _written(WEIGHTS, places, *quantised(weights))
    largest = np.abs(weights).max(axis=-1).astype("<f4")
    share = weights / np.where(largest > 0, largest, np.float32(1))[..., None]
    return _written(SIGNED, places, largest, np.rint(127 * np.sign(share) * np.sqrt(np.abs(share))).astype(np.int8))


def thumbnails(weights: NDArray[np.float32], side: int = THUMBNAIL) -> NDArray[np.float32]:
    """Maps [map, query, key] of at most `side` cells each way: a cell is the largest of its block, signs aside.

    Means would let a thin diagonal fade, which is what one looks for in a thumbnail.
    """
    for axis in (1, 2):
        length = weights.shape[axis]
        if length > side:
            starts = np.arange(side) * length // side
            most, least = (one.reduceat(weights, starts, axis=axis) for one in (np.maximum, np.minimum))
            weights = np.where(most >= -least, most, least)
    return weights


def _written(kind: int, places: Sequence[Place], largest: NDArray[np.float32], codes: NDArray[np.generic]) -> bytes:
    head = struct.pack("<4s4I", MAGIC, kind, *codes.shape)
    return b"".join([head, np.array(places, dtype="<u2").tobytes(), largest.tobytes(), codes.tobytes()])
