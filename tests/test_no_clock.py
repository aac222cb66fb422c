"""No test may depend on speed or chance: no clock, no sleep, no fixed port, the same examples every time."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
ALLOWED = {
    "waiting.py",  # polls for an event, with a limit against hanging
    "test_no_clock.py",  # this file
}
CLOCKS = {
    "a clock": r"\b(perf_counter|monotonic|process_time|thread_time|time\.time|time_ns)\(\)|\bgetrusage\(",
    "a sleep": r"\bsleep\(",
    "a browser's wait": r"wait_for_timeout",
    "a browser's clock": r"= performance\.now\(\)|Date\.now\(\)",
    "a short wait": r"Event\(\)\.wait\([0-9.]",
    "a fixed port": r"master[-_]port",
    "a short limit": r"timeout=[0-9]{1,2}\b",
}


@pytest.mark.parametrize("what", CLOCKS)
def test_no_test_reads_a_clock_or_sleeps(what: str) -> None:
    files = [file for file in sorted(TESTS.rglob("*.py")) if file.name not in ALLOWED]
    assert len(files) > 100
    actual = [
        f"{file.relative_to(TESTS)}:{number}: {line.strip()}"
        for file in files
        for number, line in enumerate(file.read_text("utf-8").splitlines(), start=1)
        if re.search(CLOCKS[what], line)
    ]
    assert not actual, (
        f"{what}: wait for an event (tests/waiting.py) and assert work done\n" + "\n".join(actual)
    )


def test_examples_of_hypothesis_are_always_the_same() -> None:
    drawn = [file for file in TESTS.rglob("*.py") if "\n@given(" in file.read_text("utf-8")]
    assert len(drawn) > 5
    assert not [file.name for file in drawn if "derandomize=True" not in file.read_text("utf-8")]


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("a clock", "assert time.monotonic() - begun < 5"),
        ("a clock", "begun = perf_counter()"),
        ("a clock", "before = resource.getrusage(resource.RUSAGE_CHILDREN)"),
        ("a sleep", "time.sleep(0.2)"),
        ("a browser's wait", "page.wait_for_timeout(400)"),
        ("a browser's clock", "const begin = performance.now();"),
        ("a short wait", "threading.Event().wait(0.01)"),
        ("a fixed port", '"--master-port", "29631"'),
        ("a short limit", "process.communicate(timeout=60)"),
    ],
)
def test_the_rule_finds_what_it_is_for(what: str, line: str) -> None:
    assert re.search(CLOCKS[what], line)
