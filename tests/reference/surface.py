"""The slow, obvious twin of the surface statistics: loops over the library's own attentions, from the formulas.

Nothing here is shared with `headscope.statistics`: weights come from `output_attentions=True` of an eager copy,
padding and token classes from the inputs and the tokenizer, and every sum is a Python loop in float64.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reference import intervals

Map = NDArray[np.float64]
MAP_POSITIONS = 128  # maps by position end here
WITHIN_ONE_TEXT = ("encoder", "decoder")


@dataclass(frozen=True)
class Seen:
    """What one head did to one sequence: rows of weights, and what the tokens of both sides are."""

    rows: list[list[float]]
    query: list[set[str]]
    key: list[set[str]]
    within_one_text: bool = True


@dataclass(frozen=True)
class Answer:
    """Mean, interval and count over sequences."""

    value: float
    low: float
    high: float
    count: int


def kinds(ids: Iterable[int] | None, tokenizer: Any, length: int) -> list[set[str]]:
    """What each token is, as the tokenizer says."""
    if ids is None:
        return [set() for _ in range(length)]
    words = {i: word for word, i in tokenizer.get_vocab().items()}
    separator = tokenizer.eos_token_id if tokenizer.sep_token_id is None else tokenizer.sep_token_id
    actual = []
    for token in ids:
        kind = {"token"}
        if token in tokenizer.all_special_ids:
            kind.add("special")
        if token == tokenizer.cls_token_id:
            kind.add("cls")
        if token == separator:
            kind.add("sep")
        word = words.get(token, "")
        if word[:1] in ("▁", "Ġ"):
            word = word[1:]
        if word in (".", ","):
            kind.add("punctuation")
        actual.append(kind)
    return actual


# One number for one sequence; None where there is no answer.


def _offset_share(offset: int) -> Callable[[Seen], float | None]:
    def share(seen: Seen) -> float:
        total = 0.0
        for i, row in enumerate(seen.rows):
            if 0 <= i + offset < len(row):
                total += row[i + offset]
        return total / len(seen.rows)

    return share


def _mass(kind: str) -> Callable[[Seen], float | None]:
    def mass(seen: Seen) -> float:
        total = 0.0
        for row in seen.rows:
            for weight, token in zip(row, seen.key, strict=True):
                if kind in token:
                    total += weight
        return total / len(seen.rows)

    return mass


def _entropy_of(row: list[float]) -> float:
    return -sum(weight * math.log(weight) for weight in row if weight > 0)


def entropy(seen: Seen) -> float | None:
    return sum(_entropy_of(row) for row in seen.rows) / len(seen.rows)


def entropy_share(seen: Seen) -> float | None:
    shares = []
    for row in seen.rows:
        keys = sum(
            weight > 0 for weight in row
        )  # others are masked: no weight of these models underflows
        if keys > 1:
            shares.append(_entropy_of(row) / math.log(keys))
    return sum(shares) / len(shares) if shares else None


def cls_entropy(seen: Seen) -> float | None:
    for row, token in zip(seen.rows, seen.query, strict=True):
        if "cls" in token:
            return _entropy_of(row)
    return None


def confidence(seen: Seen) -> float | None:
    return sum(max(row) for row in seen.rows) / len(seen.rows)


def confidence_content(seen: Seen) -> float | None:
    largest = [
        max(weight for weight, token in zip(row, seen.key, strict=True) if "special" not in token)
        for row, looking in zip(seen.rows, seen.query, strict=True)
        if "special" not in looking and any("special" not in token for token in seen.key)
    ]
    return sum(largest) / len(largest) if largest else None


def distance(seen: Seen) -> float | None:
    total = 0.0
    for i, row in enumerate(seen.rows):
        for j, weight in enumerate(row):
            total += weight * abs(i - j)
    return total / len(seen.rows)


def argmax_credit(seen: Seen) -> tuple[dict[int, float], int]:
    """For each offset, how many content rows have their largest content weight there; and how many rows there are."""
    credit: dict[int, float] = defaultdict(float)
    rows = 0
    for i, row in enumerate(seen.rows):
        content = [j for j in range(len(row)) if "special" not in seen.key[j]]
        if "special" in seen.query[i] or not content:
            continue
        rows += 1
        top = max(row[j] for j in content)
        winners = [j for j in content if row[j] == top]
        for j in winners:
            credit[j - i] += 1 / len(winners)
    return dict(credit), rows


def first(seen: Seen) -> float | None:
    """Mass on the first key; within one text the first row is not asked."""
    rows = seen.rows[1:] if seen.within_one_text else seen.rows
    if not rows or len(seen.key) < 2:
        return None
    return sum(row[0] for row in rows) / len(rows)


def sink_columns(seen: Seen) -> dict[int, float]:
    """Mean weight of each key over the other rows that see it (a weight of exactly 0 is forbidden), if enough do."""
    seen_by = {}
    for j in range(len(seen.key)):
        others = [
            row[j] for i, row in enumerate(seen.rows) if not (seen.within_one_text and i == j)
        ]
        seen_by[j] = [weight for weight in others if weight > 0]
    most = max(len(weights) for weights in seen_by.values())
    enough = max(8, most / 4)
    return {
        j: sum(weights) / len(weights) for j, weights in seen_by.items() if len(weights) >= enough
    }


def sink(seen: Seen) -> float | None:
    columns = sink_columns(seen) if len(seen.key) > 1 else {}
    return max(columns.values()) if columns else None


PER_SEQUENCE: dict[str, Callable[[Seen], float | None]] = {
    "self": _offset_share(0),
    "previous": _offset_share(-1),
    "next": _offset_share(1),
    "cls": _mass("cls"),
    "sep": _mass("sep"),
    "punctuation": _mass("punctuation"),
    "special": _mass("special"),
    "entropy": entropy,
    "cls-entropy": cls_entropy,
    "entropy-share": entropy_share,
    "confidence": confidence,
    "confidence-content": confidence_content,
    "distance": distance,
    "first": first,
    "sink": sink,
}
COMPARE_POSITIONS = (
    "self",
    "previous",
    "next",
    "distance",
    "argmax-share",
    "argmax-offset",
    "positional-share",
)
CLASSES = ("cls", "sep", "punctuation", "special")
NUMBERS = ("entropy", "cls-entropy", "distance")  # all others are shares


def summary(values: Iterable[float | None], *, is_share: bool) -> Answer | None:
    """Mean and 95 % interval of the values there are."""
    present = [value for value in values if value is not None]
    if not present:
        return None
    mean = sum(present) / len(present)
    if len(present) == 1:
        return Answer(mean, math.nan, math.nan, 1)
    if is_share:
        return Answer(mean, *intervals.of_shares(present), len(present))
    deviation = math.sqrt(sum((value - mean) ** 2 for value in present) / (len(present) - 1))
    half = 1.96 * deviation / math.sqrt(len(present))
    return Answer(mean, mean - half, mean + half, len(present))


def answers(stack: str, sequences: list[Seen]) -> dict[str, Answer]:
    """Every statistic of one head but those of the argmax."""
    result = {}
    for name, measure in PER_SEQUENCE.items():
        if name in COMPARE_POSITIONS and stack not in WITHIN_ONE_TEXT:
            continue
        if name in ("first", "sink") and stack == "query":
            continue
        # A text without full stops has 0 of them; a model without a vocabulary has no such thing.
        needed = "token" if name == "punctuation" else name
        if name in CLASSES and not any(needed in token for seen in sequences for token in seen.key):
            continue
        answer = summary((measure(seen) for seen in sequences), is_share=name not in NUMBERS)
        if answer is not None:
            result[name] = answer
    return result


def argmax_offsets(sequences: list[Seen]) -> list[int]:
    """The most frequent offset over all content rows; several if they are equally frequent; none without content."""
    total: dict[int, float] = defaultdict(float)
    for seen in sequences:
        for offset, credit in argmax_credit(seen)[0].items():
            total[offset] += credit
    return [offset for offset, credit in total.items() if credit > max(total.values()) - 1e-9]


def argmax_share(sequences: list[Seen], offset: int) -> Answer | None:
    """How often the largest weight is at this offset."""
    shares = []
    for seen in sequences:
        credit, rows = argmax_credit(seen)
        shares.append(credit.get(offset, 0.0) / rows if rows else None)
    return summary(shares, is_share=True)


def positional_share(sequences: list[Seen], offset: int) -> Answer | None:
    """How often the largest weight is at this offset, of the content rows that have a content token there."""
    shares = []
    for seen in sequences:
        length = len(seen.key)
        rows = 0
        for i in range(length):
            present = 0 <= i + offset < length and "special" not in seen.key[i + offset]
            if present and "special" not in seen.query[i]:
                rows += 1
        shares.append(argmax_credit(seen)[0].get(offset, 0.0) / rows if rows else None)
    return summary(shares, is_share=True)


def position_map(sequences: list[Seen]) -> Map:
    """[query, key] by absolute position: the mean over the sequences that have both; NaN where none has."""
    queries = min(max(len(seen.rows) for seen in sequences), MAP_POSITIONS)
    keys = min(max(len(seen.key) for seen in sequences), MAP_POSITIONS)
    result = np.full((queries, keys), np.nan)
    for i in range(queries):
        for j in range(keys):
            present = [
                seen.rows[i][j] for seen in sequences if i < len(seen.rows) and j < len(seen.key)
            ]
            if present:
                result[i, j] = sum(present) / len(present)
    return result


def offset_map(sequences: list[Seen]) -> Map:
    """[offset] from -(n-1) to n-1: mean over sequences of the mass at the offset, a share of the sequence's rows."""
    longest = max(len(seen.rows) for seen in sequences)
    result = np.zeros(2 * longest - 1)
    for seen in sequences:
        for i, row in enumerate(seen.rows):
            for j, weight in enumerate(row):
                result[j - i + longest - 1] += weight / len(seen.rows) / len(sequences)
    return result
