"""The byte format in which a page receives maps, one layer at a time.

The maps come from the explorer's server or are embedded in the page. Entire maps, thumbnails and differences have the
same format. All numbers are little-endian:

    4 bytes   "HSM1"
    uint32    type of the codes: 0 weights, 1 numbers with a sign (differences, some lenses)
    uint32    three numbers: maps, rows (queries) per map, columns (keys) per map
    uint16    two numbers per map: its layer and its head
    float32   the largest absolute value of each row, maps x rows
    uint8     the codes, maps x rows x columns (int8 for numbers with a sign)

A weight is largest · (code / 255)², with the `largest` of its row. The error of a weight w in a row with largest m is
at most √(w·m)/255 + m/(4·255²). This is never more than 0.004 of m, and far less near 0. A number with a sign is
largest · sign(code) · (code / 127)².
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
    """Encode maps [map, query, key]; `places` has the layer and head of each."""
    sizes = np.abs(weights)
    largest = sizes.max(axis=-1).astype("<f4")  # [map, query]
    roots = np.sqrt(sizes / np.where(largest > 0, largest, np.float32(1))[..., None])
    most, signs = (127, np.sign(weights)) if signed else (255, np.float32(1))
    codes = np.rint(most * signs * roots).astype(np.int8 if signed else np.uint8)
    header = struct.pack("<4s4I", MAGIC, SIGNED if signed else WEIGHTS, *codes.shape)
    heads = np.array(places, dtype="<u2")
    return b"".join([header, heads.tobytes(), largest.tobytes(), codes.tobytes()])
