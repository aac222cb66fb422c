"""The compiled pass over attention rows: softmax and all sums of a row while it is in the processor's cache.

`fold` turns scores into weights in place, row by row, and adds each row to the sums that statistics need. It visits
each row once, instead of passing over the entire map for each quantity. A row of 128 weights has 512 bytes, so all
quantities of a row are computed from the first-level cache.

Accuracy: `_exp` has a relative error below 1e-6 in float32. Sums over rows are float32 within a block of BLOCK rows and
float64 beyond, so that their error does not grow with the length of a text.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

BLOCK = 64  # rows whose sums are float32
NEVER = -np.inf  # penalty that is added to the scores of special keys

_LOWEST = np.float32(-87.0)  # exp of less is below the smallest normal float32: 0
_ZERO, _ONE = np.float32(0.0), np.float32(1.0)
_LOG2_E = np.float32(1.4426950408889634)
# Adding 1.5 * 2**23 rounds a float32 to an integer, which is then in the lowest bits of its representation.
_ROUND, _ROUND_BITS = np.float32(12582912.0), np.int32(0x4B400000)
_BIAS, _MANTISSA = (
    np.int32(127),
    np.int32(23),
)  # of a float32: bias of the exponent, bits of the mantissa
# ln 2 in two parts: the first has few digits, so that its multiples are exact (Cody and Waite).
_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
# Coefficients of the minimax polynomial of (exp(r) - 1 - r) / r**2 for |r| <= ln(2) / 2 (Cephes, expf).
_P0, _P1, _P2 = (
    np.float32(1.9875691500e-4),
    np.float32(1.3981999507e-3),
    np.float32(8.3334519073e-3),
)
_P3, _P4, _P5 = (
    np.float32(4.1665795894e-2),
    np.float32(1.6666665459e-1),
    np.float32(5.0000001201e-1),
)

# Sums may be reassociated, which vectorises them; NaN and infinity keep their meaning.
_FAST = {"contract", "reassoc", "nsz", "arcp"}


@intrinsic  # type: ignore[untyped-decorator]
def _bits(typing_context: Any, value: Any) -> Any:
    """The representation of a float32 as an int32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(32))

    return types.int32(types.float32), generate


@intrinsic  # type: ignore[untyped-decorator]
def _from_bits(typing_context: Any, value: Any) -> Any:
    """The float32 with the representation of an int32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), generate


def _compiled(function: Any, **options: Any) -> Any:
    """The function, compiled at its first call; the result is stored on disk if a directory can be written."""
    try:
        return njit(nogil=True, error_model="numpy", cache=True, **options)(function)
    except RuntimeError:  # neither the package's directory nor the user's cache can be written
        return njit(nogil=True, error_model="numpy", **options)(function)


# Without "reassoc": the compiler would simplify `x + _ROUND - _ROUND` to x.
def _exp_of(x):  # type: ignore[no-untyped-def]
    """exp(x) for -87 <= x <= 0, without a branch, so that loops over it are vectorised."""
    rounded = x * _LOG2_E + _ROUND
    power = rounded - _ROUND
    rest = x - power * _LN2_HIGH - power * _LN2_LOW
    p = _P0 * rest + _P1
    p = p * rest + _P2
    p = p * rest + _P3
    p = p * rest + _P4
    p = p * rest + _P5
    p = p * rest * rest + rest + _ONE
    return p * _from_bits((_bits(rounded) - _ROUND_BITS + _BIAS) << _MANTISSA)


_exp = _compiled(_exp_of, fastmath={"contract"})


def _extremes_of(row, penalty):  # type: ignore[no-untyped-def]
    """The largest score of a row, and the largest of a content key (-inf if there is none)."""
    largest, content = row[0], row[0] + penalty[0]
    for k in range(len(row)):
        largest = max(largest, row[k])
        content = max(content, row[k] + penalty[k])
    return largest, content


_extremes = _compiled(_extremes_of, fastmath=_FAST)


def _extremes_of_four(rows, penalty, extremes):  # type: ignore[no-untyped-def]
    """The same for four rows at once: faster, because the four chains of comparisons are independent."""
    r0, r1, r2, r3 = rows[0], rows[1], rows[2], rows[3]
    a0, a1, a2, a3 = r0[0], r1[0], r2[0], r3[0]
    first = penalty[0]
    b0, b1, b2, b3 = a0 + first, a1 + first, a2 + first, a3 + first
    for k in range(rows.shape[1]):
        p = penalty[k]
        x0, x1, x2, x3 = r0[k], r1[k], r2[k], r3[k]
        a0, a1, a2, a3 = max(a0, x0), max(a1, x1), max(a2, x2), max(a3, x3)
        b0, b1, b2, b3 = max(b0, x0 + p), max(b1, x1 + p), max(b2, x2 + p), max(b3, x3 + p)
    extremes[0, 0], extremes[1, 0], extremes[2, 0], extremes[3, 0] = a0, a1, a2, a3
    extremes[0, 1], extremes[1, 1], extremes[2, 1], extremes[3, 1] = b0, b1, b2, b3


_extremes_4 = _compiled(_extremes_of_four, fastmath=_FAST)


def _softmax_of(row, largest):  # type: ignore[no-untyped-def]
    """Turn scores into weights in place; returns the sum of exp(score - largest), and the mean of score - largest."""
    total, product = _ZERO, _ZERO
    for k in range(len(row)):
        shifted = row[k] - largest
        bounded = max(shifted, _LOWEST)
        power = _exp(bounded)
        power = _ZERO if shifted < _LOWEST else power
        row[k] = power
        total += power
        product += power * bounded
    inverse = _ONE / total
    for k in range(len(row)):
        row[k] *= inverse
    return total, product * inverse


_softmax = _compiled(_softmax_of, fastmath=_FAST)


def _count_argmax_of(row, penalty, largest, counts):  # type: ignore[no-untyped-def]
    """Add 1 at the key with the largest content score, divided among ties; counts[0] is the first key of the row."""
    ties, index = np.int32(0), np.int32(0)
    for k in range(len(row)):
        is_largest = row[k] + penalty[k] == largest
        ties += np.int32(1) if is_largest else np.int32(0)
        index += np.int32(k) if is_largest else np.int32(0)
    if ties == 1:
        counts[index] += 1.0
    else:
        for k in range(len(row)):
            if row[k] + penalty[k] == largest:
                counts[k] += 1.0 / ties


_count_argmax = _compiled(_count_argmax_of, fastmath=_FAST)


def _first_of(row, penalty, largest):  # type: ignore[no-untyped-def]
    """The first key whose score, with its penalty, is the largest one; 0 if no key is allowed."""
    if largest > NEVER:
        for k in range(len(row)):
            if row[k] + penalty[k] == largest:
                return k
    return 0


_first = _compiled(_first_of)


def _add_of(row, target):  # type: ignore[no-untyped-def]
    for k in range(len(row)):
        target[k] += row[k]


_add = _compiled(_add_of, fastmath=_FAST)


def _flush_of(source, target):  # type: ignore[no-untyped-def]
    """Move float32 sums into float64 ones."""
    for k in range(len(source)):
        target[k] += source[k]
        source[k] = _ZERO


_flush = _compiled(_flush_of)


def _segment_masses_of(row, first, second):  # type: ignore[no-untyped-def]
    a, b = _ZERO, _ZERO
    for k in range(len(row)):
        a += row[k] * first[k]
        b += row[k] * second[k]
    return a, b


_segment_masses = _compiled(_segment_masses_of, fastmath=_FAST)


def _weighted_of(row, content, factors):  # type: ignore[no-untyped-def]
    total = _ZERO
    for k in range(len(row)):
        total += row[k] * content[k] * factors[k]
    return total


_weighted = _compiled(_weighted_of, fastmath=_FAST)


def _fold(scores, strip, query, key, tokens, wanted, heads, sums):  # type: ignore[no-untyped-def]
    """Scores [sequence, head, row, key] become weights in place; real rows are added to the sums.

    strip   (first row of the strip, whether rows see only keys up to their own, whether queries and keys are one text,
            whether sums by segment are wanted, whether maps by position are)
    query   first real row and number of real rows of each sequence, [2, sequence]
    key     the same for keys
    tokens  (penalty [sequence, key]: 0 or -inf; content [sequence, key]: 1 or 0; content_rows [sequence, query];
            own [sequence, segment, key]; alike [sequence, offset])
    wanted  (rows to copy [sequence, number], -1 for none; whether the largest weights are located [sequence])
    heads   (first, last + 1) to work on
    sums    see `RowSums`; positions of tokens are counted from the first real token of a sequence
    """
    start, is_causal, is_one_text, has_segments, has_positions = strip
    penalty, content, content_rows, own, alike = tokens
    (
        row_max,
        content_max,
        entropy,
        quarters,
        offsets,
        argmax,
        diagonal,
        segments,
        near,
        by_offset,
        rows,
        argmaxima,
        maps,
    ) = sums
    copied, located = wanted
    count_rows = scores.shape[2]
    longest = penalty.shape[1]
    columns, shifted = np.zeros(longest, np.float32), np.zeros(2 * longest - 1, np.float32)
    extremes, no_penalty = np.zeros((4, 2), np.float32), np.zeros(longest, np.float32)
    for s in range(scores.shape[0]):
        first_query, queries = query[0, s], query[1, s]
        first_key, keys = key[0, s], key[1, s]
        penalty_s, content_s = penalty[s, :keys], content[s, :keys]
        text_has_content = content_s.max() > _ZERO
        for h in range(heads[0], heads[1]):
            prepared = 0  # rows whose extremes are known
            used = 0  # rows in the block so far
            block_first = 0
            for r in range(count_rows):
                full = scores[s, h, r]
                i = start + r - first_query  # position of the query in its text
                visible = min(keys, i + 1) if is_causal else keys
                row = full[first_key : first_key + visible]
                full[:first_key] = _ZERO
                full[first_key + visible :] = _ZERO
                if i < 0 or i >= queries:  # padding: its output is computed, but not counted
                    largest, _ = _extremes(row, penalty_s)
                    _softmax(row, largest)
                    continue
                if is_causal:
                    largest, of_content = _extremes(row, penalty_s)
                else:
                    if prepared == 0:
                        if r + 4 <= count_rows:
                            four = scores[s, h, r : r + 4, first_key : first_key + keys]
                            _extremes_4(four, penalty_s, extremes)
                            prepared = 4
                        else:
                            extremes[3, 0], extremes[3, 1] = _extremes(row, penalty_s)
                            prepared = 1
                    largest, of_content = extremes[4 - prepared, 0], extremes[4 - prepared, 1]
                    prepared -= 1
                has_content = of_content > NEVER
                if is_one_text and content_rows[s, i] and has_content:
                    _count_argmax(row, penalty_s, of_content, argmax[s, h, longest - 1 - i :])
                if located[s]:
                    argmaxima[s, h, 0, i] = _first(row, no_penalty, largest)
                    argmaxima[s, h, 1, i] = _first(row, penalty_s, of_content)
                total, mean = _softmax(row, largest)
                row_max[s, h, i] = _ONE / total
                entropy[s, h, i] = math.log(total) - mean
                difference = max(of_content - largest, _LOWEST)
                is_positive = has_content and of_content - largest >= _LOWEST
                share = _exp(difference) / total if is_positive else _ZERO
                # As if hidden keys had a weight of 0; below 0 if the text has no content at all
                content_max[s, h, i] = share if has_content or text_has_content else -_ONE
                _add(row, columns)
                if is_one_text:
                    _add(row, shifted[longest - 1 - i :])
                    diagonal[s, h, i] = row[i]
                    mass = row[i] * content_s[i]
                    if i > 0:
                        mass += row[i - 1] * content_s[i - 1]
                    if i + 1 < visible:
                        mass += row[i + 1] * content_s[i + 1]
                    near[s, h] += mass
                if has_segments:
                    masses = _segment_masses(row, own[s, 0], own[s, 1])
                    segments[s, h, 0, i], segments[s, h, 1, i] = masses
                    if content_rows[s, i]:
                        by_offset[s, h] += _weighted(row, content_s, alike[s, longest - 1 - i :])
                if has_positions and i < maps.shape[1]:
                    _add(row[: maps.shape[2]], maps[h, i])
                for w in range(copied.shape[1]):
                    if copied[s, w] == i:
                        rows[s, h, w, :visible] = row
                used += 1
                quarter = 0
                while (quarter + 1) * queries // 4 <= i:
                    quarter += 1
                is_last = i + 1 == queries or r + 1 == count_rows
                if used == BLOCK or is_last or (quarter + 1) * queries // 4 == i + 1:
                    block_first = i + 1 - used
                    _flush(columns[:visible], quarters[s, h, quarter, :visible])
                    if is_one_text:
                        # Offsets that these rows can reach: from the first key of the last one to the last of the first
                        low, high = longest - 1 - i, longest - 1 - block_first + visible
                        _flush(shifted[low:high], offsets[s, h, low:high])
                    used = 0


fold = _compiled(_fold)
