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
from difflib import SequenceMatcher, unified_diff
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
            result = text if stored is None else keep_close_numbers(stored, text, atol=atol)
            if result != stored:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(result, "utf-8")
            return
        assert stored is not None, f"{path}: no golden file. Create it with --update-golden."
        diff = differences(stored, text, atol=atol)
        assert not diff, (
            f"{name} differs (read the difference, then run with --update-golden):\n{diff}"
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


def differences(stored: str, actual: str, *, atol: float = ATOL) -> str:
    """A unified diff of the lines that differ; empty if the texts agree."""
    kept = keep_close_numbers(stored, actual, atol=atol)
    lines = unified_diff(
        stored.splitlines(), kept.splitlines(), "stored", "actual", n=1, lineterm=""
    )
    return "\n".join(lines)


def keep_close_numbers(stored: str, actual: str, *, atol: float = ATOL) -> str:
    """The actual text with the stored digits of every number that is within the tolerance of its stored value.

    Lines are paired by their text without numbers, so that an added line moves the others without changing them.
    """
    before, after = stored.splitlines(), actual.splitlines()
    texts = [[NUMBER.sub("\0", line) for line in lines] for lines in (before, after)]
    for block in SequenceMatcher(None, *texts, autojunk=False).get_matching_blocks():
        for offset in range(block.size):
            line = after[block.b + offset]
            after[block.b + offset] = _keep_close(before[block.a + offset], line, atol)
    return "\n".join(after) + "\n"


def _keep_close(stored: str, actual: str, atol: float) -> str:
    """A line whose text without numbers is that of the stored line, with its digits where they are close."""
    numbers = iter(NUMBER.findall(stored))

    def keep(match: re.Match[str]) -> str:
        before, after = next(numbers), match[0]
        return before if before == after or _close(before, after, atol) else after

    return NUMBER.sub(keep, actual)


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
