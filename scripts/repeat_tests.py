"""Run `make test` several times and append the results to docs/results/test-runs.csv.

    python scripts/repeat_tests.py --runs 5                        # in the order of files
    python scripts/repeat_tests.py --runs 5 --busy 2               # next to two busy loops
    python scripts/repeat_tests.py --runs 1 --random-seed 7        # in random order
    python scripts/repeat_tests.py --runs 2 --running 2            # in a second clone, next to the loops of the first

Successive runs are counted as long as neither source nor tests change; a change starts the count again. Uncommitted
changes are refused, since their rows could not be traced to a commit.
"""

from __future__ import annotations

import argparse
import csv
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
TABLE = Path("docs/results/test-runs.csv")
PARTS = (
    "src",
    "tests",
    "web",
    "pyproject.toml",
    "constraints.txt",
    "Makefile",
)  # a change in one of these starts the count again
COLUMNS = [
    "date",
    "commit",
    "tree",
    "load",
    "order",
    "busy_loops",
    "seconds",
    "cpu_seconds",
    "passed",
    "failed",
    "skipped",
    "failures",
]


def main(words: Sequence[str] | None = None) -> int:
    options = _options(words)
    if changed := uncommitted(git("status", "--porcelain")):
        print(f"uncommitted changes ({changed[0]}). Commit or stash them first.", file=sys.stderr)
        return 2
    failed = False
    for number in range(options.runs):
        row = run_once(options.busy, options.random_seed) | {
            "busy_loops": str(options.busy + options.running)
        }
        append(ROOT / TABLE, row)
        failed |= row["failed"] != "0"
        print(
            f"run {number + 1} of {options.runs}: {row['passed']} passed, {row['failed']} failed, {row['seconds']} s"
        )
    count = len(current_runs(read(ROOT / TABLE)))
    print(
        f"{count} runs of this source and these tests without a failure. A change of either starts the count again."
    )
    return int(failed)


def run_once(busy: int, seed: int | None) -> dict[str, str]:
    """Run `make test` once; its row of the table."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        extra = f"--junitxml={report}"
        if seed is not None:
            extra += f" --random-order --random-order-seed={seed}"
        begin, before = time.monotonic(), _cpu_seconds()
        with busy_loops(busy):
            # Without -j and other flags, if this script was itself started by make
            environment = {
                name: value
                for name, value in os.environ.items()
                if name not in ("MAKEFLAGS", "MFLAGS")
            }
            status = subprocess.run(
                ["make", "test", f"PYTEST_ARGS={extra}"], cwd=ROOT, env=environment
            ).returncode
            load = os.getloadavg()[0]
        seconds, cpu = time.monotonic() - begin, _cpu_seconds() - before
        counts = read_report(report) if report.exists() else {}
    if not counts or (status and counts["failed"] == "0"):
        counts = {
            "passed": "0",
            "skipped": "0",
            **counts,
            "failed": "1",
            "failures": f"make test ended with {status}",
        }
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M"),
        "commit": git("rev-parse", "--short", "HEAD").strip(),
        "tree": tree_of(git("rev-parse", *(f"HEAD:{part}" for part in PARTS))),
        "load": f"{load:.1f}",
        "order": "file" if seed is None else f"random {seed}",
        "busy_loops": str(busy),
        "seconds": f"{seconds:.0f}",
        "cpu_seconds": f"{cpu:.0f}",
        **counts,
    }


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Start this number of processes, each of which uses one core until the context is left."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def read_report(path: Path) -> dict[str, str]:
    """Counts and names of failures from pytest's JUnit file."""
    passed, skipped, failures = 0, 0, []
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        kinds = {child.tag for child in case}
        if kinds & {"failure", "error"}:
            failures.append(f"{case.get('classname')}::{case.get('name')}")
        elif "skipped" in kinds:
            skipped += 1
        else:
            passed += 1
    names = " ".join(dict.fromkeys(failures))
    return {
        "passed": str(passed),
        "failed": str(len(failures)),
        "skipped": str(skipped),
        "failures": names,
    }


def uncommitted(status: str) -> list[str]:
    """Changed files from `git status --porcelain`, without the table, which every run changes."""
    return [line[3:] for line in status.splitlines() if line[3:] != str(TABLE)]


def tree_of(objects: str) -> str:
    """A short name of the contents. objects: their git hashes, one per line."""
    return "".join(name[:3] for name in objects.split())


def current_runs(rows: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """The last rows that have the same tree and no failures."""
    current: list[dict[str, str]] = []
    for row in reversed(rows):
        if row["tree"] != rows[-1]["tree"] or row["failed"] != "0":
            break
        current.insert(0, row)
    return current


def read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def append(path: Path, row: dict[str, str]) -> None:
    is_new = not path.exists()
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerow(row)


def git(*words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout


def _cpu_seconds() -> float:
    """Processor time of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _options(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Run `make test` several times and record the results."
    )
    parser.add_argument("--runs", type=int, default=1, help="number of runs (default: 1)")
    parser.add_argument(
        "--busy",
        type=int,
        default=0,
        help="number of busy loops to run next to the tests (default: 0)",
    )
    parser.add_argument(
        "--running",
        type=int,
        default=0,
        help="number of busy loops that are already running (default: 0)",
    )
    parser.add_argument(
        "--random-seed", type=int, default=None, help="seed of a random order (default: by file)"
    )
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main())
