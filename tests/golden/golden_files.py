"""Golden files: text stored next to the tests, compared exactly except for the numbers in it.

    Golden(update=False).check("help/analyze.txt", text)

Numbers are found by a regular expression and compared with a tolerance; the text between them must be equal.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
RTOL, ATOL = 1e-5, 1e-7
TRAINED_ATOL = 1e-5  # after training in float32
FEW_DIGITS = 6  # a number with more digits was not rounded for a reader
MASKED = "<masked>"

# A decimal number that is not part of a name: `0.25` and `1e-05`, but not the `0.1` of `encoder.0.1` or `v0.1.0`.
NUMBER = re.compile(r"(?<![\w.])[-−+]?(?:\d+\.\d+(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+)(?!\w|\.\d)")


@dataclass(frozen=True)
class Golden:
    """The stored files. update: write them instead of comparing."""

    update: bool = False
    folder: Path = FOLDER

    def check(self, name: str, text: str, *, atol: float = ATOL) -> None:
        path = self.folder / name
        text = text.rstrip("\n") + "\n"
        stored = path.read_text("utf-8") if path.exists() else None
        if self.update:
            # Numbers within the tolerance keep their stored digits, so that a diff shows only what changed.
            if stored is None or differences(stored, text, atol=atol):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, "utf-8")
            return
        assert stored is not None, f"{path}: no golden file. Create it with --update-golden."
        lines = differences(stored, text, atol=atol)
        message = "\n".join(lines[:40])
        assert not lines, (
            f"{name} differs (read the difference, then run with --update-golden):\n{message}"
        )

    def check_names(self, folder: str, names: set[str]) -> None:
        """The folder holds these files and no others."""
        stored = {path.name for path in (self.folder / folder).iterdir() if path.is_file()}
        if self.update:
            for name in stored - names:
                (self.folder / folder / name).unlink()
            return
        assert stored == names, (
            f"{folder}: golden files without a result, or results without a golden file"
        )


def differences(stored: str, actual: str, *, atol: float = ATOL) -> list[str]:
    """Differing lines as `-stored` and `+actual`, with line numbers; empty if the texts agree."""
    found = []
    pairs = zip_longest(stored.splitlines(), actual.splitlines())
    for number, (before, after) in enumerate(pairs, start=1):
        if before is None or after is None or not agree(before, after, atol=atol):
            found += [f"{number}: -{before}"] if before is not None else []
            found += [f"{number}: +{after}"] if after is not None else []
    return found


def agree(stored: str, actual: str, *, atol: float = ATOL) -> bool:
    """Whether two lines have the same text and, within the tolerance, the same numbers."""
    if stored == actual:
        return True
    if NUMBER.split(stored) != NUMBER.split(actual):
        return False
    pairs = zip(NUMBER.findall(stored), NUMBER.findall(actual), strict=True)
    return all(a == b or _close(a, b, atol) for a, b in pairs)


def _close(stored: str, actual: str, atol: float) -> bool:
    a, b = (float(number.replace("−", "-")) for number in (stored, actual))
    tolerance = max(atol, RTOL * max(abs(a), abs(b)))
    if _is_rounded(stored) and _is_rounded(actual):
        tolerance = max(tolerance, 1.01 * max(_last_digit(stored), _last_digit(actual)))
    return math.isclose(a, b, rel_tol=0.0, abs_tol=tolerance)


def _is_rounded(number: str) -> bool:
    """Few digits, two or more of them decimals: `0.1` may be the name of a head, which has no tolerance."""
    mantissa = re.split("[eE]", number)[0]
    digits = re.sub(r"\D", "", mantissa).lstrip("0")
    return len(digits) <= FEW_DIGITS and (
        "e" in number.lower() or len(mantissa.partition(".")[2]) > 1
    )


def _last_digit(number: str) -> float:
    mantissa, _, exponent = number.lower().partition("e")
    return float(10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2])))


# JSON


def as_text(value: Any) -> str:
    """JSON with sorted keys; a list of plain values is one line."""
    return "\n".join(_lines(value, ""))


def _lines(value: Any, indent: str) -> Iterator[str]:
    if isinstance(value, dict) and value:
        yield "{"
        for key in sorted(value):
            first, *rest = _lines(value[key], indent + " ")
            yield f"{indent} {json.dumps(key, ensure_ascii=False)}: {first}"
            yield from rest
        yield f"{indent}}}"
    elif isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        yield "["
        for item in value:
            first, *rest = _lines(item, indent + " ")
            yield f"{indent} {first}"
            yield from rest
        yield f"{indent}]"
    else:
        yield json.dumps(value, ensure_ascii=False)


def without(value: Any, masked: re.Pattern[str]) -> Any:
    """JSON whose values are masked where the key matches as a whole."""
    if isinstance(value, dict):
        return {
            key: MASKED if masked.fullmatch(key) else without(item, masked)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [without(item, masked) for item in value]
    return value
