"""The slow, obvious twin of pattern classes and fixed patterns: loops over rows, from the formulas.

Nothing is shared with `headscope.statistics`: scores are sums over cells, the divergence is the textbook one of two
Kullback-Leibler terms, and every fixed pattern is written out as a row of numbers.
"""

from __future__ import annotations

import math

from reference.surface import WITHIN_ONE_TEXT, Answer, Seen, summary

PATTERNS = ("vertical", "diagonal", "vertical-diagonal", "block", "heterogeneous")
SCORES = (
    "column-score",
    "band-score",
    "block-score",
    "block-beyond-offset",
    "vertical-score",
    "diagonal-score",
)
FIXED = ("current", "previous", "next", "left", "right", "end", "start", "uniform", "first")
NUMBERS = (
    "block-score",
    "block-beyond-offset",
    *(f"js-{name}" for name in FIXED),
)  # all others are shares
CAUSAL_STACK = "decoder"
SLACK = 1e-6
Scores = tuple[float, float, float | None, float | None, float | None, float]


def answers(
    stack: str, sequences: list[Seen], segments: list[list[int]] | None = None
) -> dict[str, Answer]:
    """Every row of one head, by name; `segments` of each sequence's tokens where they are known."""
    if stack not in WITHIN_ONE_TEXT:
        return {}
    is_causal = stack == CAUSAL_STACK
    segments_of = [None] * len(sequences) if segments is None else segments
    result: dict[str, list[float | None]] = {}
    for seen, parts in zip(sequences, segments_of, strict=True):
        six = scores(seen, parts, is_causal)
        output = pattern(six)
        numbers: dict[str, float | None] = {
            f"pattern-{name}": float(name == output) for name in PATTERNS
        }
        numbers |= dict(zip(SCORES, six, strict=True))
        numbers |= {f"js-{name}": fixed(seen, name, is_causal) for name in FIXED}
        for name, number in numbers.items():
            result.setdefault(name, []).append(number)
    means = {
        name: summary(numbers, is_share=name not in NUMBERS) for name, numbers in result.items()
    }
    return {name: answer for name, answer in means.items() if answer is not None}


# Pattern classes


def scores(seen: Seen, segments: list[int] | None, is_causal: bool) -> Scores:
    """In the order of SCORES; None where there is nothing to score."""
    special = ["special" in token for token in seen.key]
    up = sum(row[j] for row in seen.rows for j in range(len(row)) if special[j]) / len(seen.rows)
    along = 0.0
    for i, row in enumerate(seen.rows):
        for j in (i - 1, i, i + 1):
            if 0 <= j < len(row) and not special[j]:
                along += row[j]
    block, beyond = (
        _block(seen, special, segments, is_causal),
        _beyond_offset(seen, special, segments),
    )
    vertical = up if any(special) else None
    return _column(seen.rows), _band(seen.rows), block, beyond, vertical, along / len(seen.rows)


def _column(rows: list[list[float]]) -> float:
    length = len(rows)
    score = 0.0
    for j in range(length):
        quarters = []
        for quarter in range(4):
            cells = [rows[i][j] for i in range(length * quarter // 4, length * (quarter + 1) // 4)]
            if cells:
                quarters.append(sum(cells) / len(cells))
        score += max(min(quarters) - 1 / length, 0.0)
    return score


def _band(rows: list[list[float]]) -> float:
    length = len(rows)
    near = min(8, max(length // 8, 1))
    score = 0.0
    for offset in range(-near, near + 1):
        cells = [rows[i][i + offset] for i in range(length) if 0 <= i + offset < length]
        score += max(sum(cells) - len(cells) * 2 / length, 0.0) / length
    return score


def _block(
    seen: Seen, special: list[bool], segments: list[int] | None, is_causal: bool
) -> float | None:
    content = [j for j in range(len(seen.key)) if not special[j]]
    if segments is None or len({segments[j] for j in content}) < 2:
        return None
    excesses = []
    for i in content:
        mass = sum(seen.rows[i][j] for j in content)
        if mass < 1e-6:
            continue
        own = sum(seen.rows[i][j] for j in content if segments[j] == segments[i])
        visible = [j for j in content if j <= i] if is_causal else content
        fair = sum(segments[j] == segments[i] for j in visible) / len(visible)
        excesses.append(own / mass - fair)
    return sum(excesses) / len(excesses) if excesses else None


def _beyond_offset(seen: Seen, special: list[bool], segments: list[int] | None) -> float | None:
    content = [j for j in range(len(seen.key)) if not special[j]]
    if segments is None or len({segments[j] for j in content}) < 2:
        return None
    own = sum(seen.rows[i][j] for i in content for j in content if segments[i] == segments[j])
    total = sum(seen.rows[i][j] for i in content for j in content)
    pairs: dict[int, list[bool]] = {}
    for i in content:
        for j in content:
            pairs.setdefault(j - i, []).append(segments[i] == segments[j])
    guessed = everything = 0.0
    for i in content:
        for j in content:
            alike = pairs[j - i]
            guessed += seen.rows[i][j] * sum(alike) / len(alike)
            everything += seen.rows[i][j]
    return own / total - guessed / everything


def pattern(six: Scores) -> str:
    column, band, block, beyond = ((score or 0.0) + SLACK for score in six[:4])
    if block >= 0.3 and beyond >= 0.1 and column < 0.25 and band < 0.1:
        return "block"
    if column >= 0.08:
        return "vertical-diagonal" if band >= 0.1 else "vertical"
    return "diagonal" if band >= 0.25 else "heterogeneous"


# Fixed patterns


def fixed(seen: Seen, name: str, is_causal: bool) -> float | None:
    """Mean divergence over the rows in the middle of the four quarters."""
    if is_causal and name in ("next", "right", "end", "start"):
        return None
    n = len(seen.rows)
    rows = [math.floor((k + 0.5) * n / 4) for k in range(4)]
    return sum(divergence(seen.rows[i], fixed_row(name, i, n, is_causal)) for i in rows) / 4


def fixed_row(name: str, i: int, n: int, is_causal: bool) -> list[float]:
    cube = [float((j + 1) ** 3) for j in range(n)]
    cells = {
        "current": {i: 1.0},
        "previous": {i - 1: 1.0} if i > 0 else {0: 1.0},
        "next": {i + 1: 1.0} if i + 1 < n else {n - 1: 1.0},
        "left": {j: cube[j] for j in range(i - 1)} or {0: 1.0},
        "right": {j: cube[n - 1 - j] for j in range(i + 2, n)} or {n - 1: 1.0},
        "end": dict(enumerate(cube)),
        "start": dict(enumerate(reversed(cube))),
        "uniform": dict.fromkeys(range(i + 1 if is_causal else n), 1.0),
        "first": {0: 1.0},
    }[name]
    total = sum(cells.values())
    return [cells.get(j, 0.0) / total for j in range(n)]


def divergence(p: list[float], q: list[float]) -> float:
    def from_middle(item: list[float]) -> float:
        return sum(
            a * math.log(a / ((b + c) / 2)) for a, b, c in zip(item, p, q, strict=True) if a > 0
        )

    return (from_middle(p) + from_middle(q)) / 2
