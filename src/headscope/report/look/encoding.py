"""Maps as bytes, as pages draw them: a layer at a time, from the explorer's server or from the page itself.

One form for whole maps, thumbnails and differences, all numbers little-endian:

    4 bytes   "HSM1"
    uint32    what the codes are: 0 weights, 1 numbers with a sign (differences, some lenses)
    uint32    maps, rows (queries), columns (keys) of each: three numbers
    uint16    layer and head of each map: two numbers a map
    float32   the largest of each row, maps x rows
    uint8     the codes, maps x rows x columns (int8 for signed ones)

A weight is largest · (code / 255)²: a weight w in a row whose largest is m is off by at most √(w·m)/255 + m/(4·255²),
never more than 0.004 of m, far less near 0. One with a sign is largest · sign(code) · (code / 127)², where `largest` is
that of its row without the signs.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

MAGIC = b"HSM1"
WEIGHTS, SIGNED = 0, 1

Place = tuple[int, int]  # layer, head


def encode_maps(
    places: Sequence[Place], weights: NDArray[np.float32], *, signed: bool = False
) -> bytes:
    """Maps [map, query, key] with the layer and head of each."""
    sizes = np.abs(weights)
    largest = sizes.max(axis=-1).astype("<f4")  # [map, query]
    roots = np.sqrt(sizes / np.where(largest > 0, largest, np.float32(1))[..., None])
    most, signs = (127, np.sign(weights)) if signed else (255, np.float32(1))
    codes = np.rint(most * signs * roots).astype(np.int8 if signed else np.uint8)
    header = struct.pack("<4s4I", MAGIC, SIGNED if signed else WEIGHTS, *codes.shape)
    heads = np.array(places, dtype="<u2")
    return b"".join([header, heads.tobytes(), largest.tobytes(), codes.tobytes()])
