"""Run real commands on real models at two commits and compare every number to the last digit.

    python scripts/regression.py run --checkout . --out /tmp/before            # all steps, resumable
    python scripts/regression.py run --checkout ../after --out /tmp/after --steps look,evaluate
    python scripts/regression.py compare /tmp/before /tmp/after                # exit status 1 if anything differs

`run` executes `python -m headscope` with PYTHONPATH set to the checkout's src, one step at a time, each in its own
directory. It reads the data of `../shared/data` next to the checkout. Steps with complete outputs are skipped; failed
steps are run again.

`compare` reads tables, JSON, arrays, weights, pages and standard output. Numbers must be identical to the last digit.
Text must be equal except for masked fields: versions, durations, measured times and speeds, paths, hashes, dates and
command lines. Figures are not compared: they draw the numbers of the tables. Standard error is kept but not compared.
"""

from __future__ import annotations

import argparse
import base64
import csv
import io
import json
import os
import re
import resource
import shlex
import shutil
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

STSB = "--task stsb --data ../data/glue/stsb_dev.tsv.gz"
SPLITS = "--limit 24 --report-limit 24"  # selection split (or training examples) and report split
SEARCH = f"{STSB} {SPLITS} --remove 4 --sizes 2,4 --max-length 32 --out small"
TRAINING = f"--task stsb --data ../data/glue {SPLITS} --epochs 1 --batch-size 8"
REACTIONS = "../data/uspto50k/uspto15k_plain.txt.gz"
TREEBANK = "../data/ud/en_ewt-ud-dev.conllu.gz"
COREFERENCE = "../data/coref/winobias_dev_type1_pro.conll.gz"
WIKIPEDIA = "../data/lm_corpus/wikipedia_en_plain.txt.gz"
LENSES = "raw,effective,effective-simplex,norm,gradient"
TOKEN_LENSES = "rollout,flow,gradient-rollout,relevance,value-zeroing,knock-out"
FEW = "--statistics entropy,previous,confidence"

# Name and arguments of each step, in the order of execution. A step runs in OUT/NAME and may read ../OTHER-STEP.
# If a later commit renames a command or an option, change the arguments here and keep the name of the step.
STEPS: dict[str, list[str]] = {
    name: shlex.split(arguments)
    for name, arguments in {
        "models": "models show minilm",
        "evaluate": f"evaluate minilm {STSB} --limit 64",
        "evaluate-json": f"evaluate rxnfp --task masked --data {REACTIONS} --limit 16 --json",
        "evaluate-mask": f"evaluate minilm {STSB} --limit 32 --mask window:width=8+first-and-last",
        "evaluate-retrieval": "evaluate minilm --task retrieval --data ../data/squad/xquad_en.json.gz --limit 24 "
        "--max-length 64",
        "look": f"look minilm 'The cat sat on the mat because it was tired.' --lens {LENSES},{TOKEN_LENSES} "
        "--out look.html",
        "prune-heads": "prune minilm --heads '3.2,4.*' --out small",
        "prune-rank": f"prune minilm {SEARCH} --search rank --try-repairs fold,refit",
        "prune-random": f"prune minilm {SEARCH} --search random --draws 2",
        "prune-iterative": f"prune minilm {SEARCH} --search iterative --step 0.03 --by relevance",
        "prune-greedy": f"prune minilm {SEARCH} --search greedy --candidates '0.*,1.*'",
        "prune-beam": f"prune minilm {SEARCH} --search beam --beam-width 2 --expansion 4",
        "importance": f"importance minilm {STSB} --limit 24 --max-length 32 --by all --out study",
        "importance-kinds": f"importance rxnmapper --task masked --data {REACTIONS} --limit 6 --max-length 48 "
        "--kind only,layer,shared --mode mean --out study",
        "fix": f"fixed-patterns minilm {STSB} {SPLITS} --heads '0.*,1.*' --sizes 4,12 --out fixed",
        "masks-compare": f"masks compare minilm {STSB} --report-limit 32 --out study",
        "gate": f"gate minilm {TRAINING} --keep 40 --out gated",
        "learn-mask": f"masks learn minilm {TRAINING} --sparsity 0.5 --per layer --out study",
        "knock-out": "ablate-edges minilm --corpus wikipedia-pairs --column a --limit 2 --max-length 16 --out study",
        "probe": f"probe minilm --treebank {TREEBANK} --limit 40 --epochs 2 --dimensions 20 --out probes",
        "analyze-corpus": f"analyze minilm --corpus {WIKIPEDIA} --limit 30 --max-length 48 --frequency english "
        "--out study",
        "analyze-pairs": "analyze minilm --corpus wikipedia-pairs --pairs --limit 8 --max-length 64 "
        f"--lens {LENSES} --out study",
        "analyze-treebank": f"analyze minilm --treebank {TREEBANK} --limit 40 --control --out study",
        "analyze-coreference": f"analyze minilm --coreference {COREFERENCE} --corpus wikipedia-pairs --column a "
        "--limit 8 --statistics entropy,previous --out study",
        "analyze-reactions": f"analyze rxnfp --corpus {REACTIONS} --max-length 64 --limit 8 {FEW} --out study",
        "analyze-tuned": f"analyze rxnfp-ft --corpus {REACTIONS} --max-length 64 --limit 8 {FEW} --out study",
        "compare": "compare ../analyze-reactions/study ../analyze-tuned/study --models rxnfp rxnfp-ft "
        f"--corpus {REACTIONS} --max-length 64 --limit 4 --out comparison",
        "report": "report ../analyze-corpus/study ../importance/study ../prune-rank/small --out index.html",
    }.items()
}

RECORD = "step.json"  # written last: a step with this file and status 0 is complete
PRINTED = "stdout.txt"
NOT_COMPARED = {".png", ".svg", ".log"}
NOT_COMPARED_NAMES = {RECORD, "stderr.txt"}

# Fields of JSON objects and columns of tables whose values are not compared.
MASKED_FIELDS = {
    "__version__",
    "argv",
    "command",
    "commit",
    "created",
    "date",
    "durations",
    "is_front",  # on the front of metric and measured time
    "path",
    "seconds",
    "sha256",
    "time",
    "time_high",
    "time_low",
    "transformers_version",
    "versions",
}
MASKED_TIMINGS = {"throughput", "ratio", "low", "high"}  # in objects with a throughput only
NUMBER = r"\d+(?:,\d{3})*(?:\.\d+)?"
# Parts of printed text and pages that are not compared, replaced in this order.
MASKED_TEXT: list[tuple[str, re.Pattern[str]]] = [
    ("drawing", re.compile(r"<svg\b.*?</svg>|data:image/[\w+-]+;base64,[\w+/=]+", re.DOTALL)),
    # The page's own script and style, and their hashes in its policy; its data is compared.
    (
        "script",
        re.compile(
            r"<script(?![^>]*application/json)[^>]*>.*?</script>|<style\b.*?</style>|(?:'|&#39;)sha256-[\w+/=]+",
            re.DOTALL,
        ),
    ),
    (
        "command",
        re.compile(
            r"headscope [a-z-]+(?: [^\s<\"`|]+){0,4}?(?: --[\w-]+(?:[ =][^\s<\"`|-][^\s<\"`|]*)?)+"
        ),
    ),
    ("hash", re.compile(r"\b(?=[0-9a-f]*[a-f])(?=[0-9a-f]*[0-9])[0-9a-f]{12,64}\b")),
    ("path", re.compile(r"(?<![\w<.:/])(?:/[\w.+-]+){2,}|(?<![\w/.])(?:\.\./)+data/[\w./+-]+")),
    (
        "date",
        re.compile(r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?"),
    ),
    (
        "speed",
        re.compile(
            rf"{NUMBER} times as (?:fast|slow)(?: \[[^\]]*\])?|{NUMBER} (?:tokens|sequences|texts)/s\b"
        ),
    ),
    ("duration", re.compile(rf"\b{NUMBER} ?(?:ms|s|min|seconds?|minutes?|hours?)\b")),
    ("version", re.compile(r"\b\d+\.\d+\.\d+(?:\+\w+|\.?(?:dev|rc)\d+)?\b")),
]
MASKED_HEADINGS = {"front", "times as fast"}  # columns of a page's tables
NUMBER_IN_TEXT = re.compile(r"([-+−]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)")
TABLE = re.compile(r"<table\b.*?</table>", re.DOTALL)
HEADING = re.compile(r"<th scope=\"col\"[^>]*>(.*?)</th>", re.DOTALL)
ROW = re.compile(r"<tr\b.*?</tr>", re.DOTALL)
CELL = re.compile(r"<td\b.*?</td>|<th scope=\"row\".*?</th>", re.DOTALL)
DATA_BLOCK = re.compile(
    r"(<script\b[^>]*type=\"?application/json\"?[^>]*>)(.*?)(</script>)", re.DOTALL
)


def main(words: Sequence[str] | None = None) -> int:
    options = _options(words)
    if options.action == "run":
        return run(options.checkout.resolve(), options.out.resolve(), options.steps)
    return compare(options.before, options.after, options.steps, options.show)


# ---- run


def run(checkout: Path, out: Path, names: Sequence[str] | None) -> int:
    """Run the steps of a checkout; the exit status is 1 if one failed."""
    environment = environment_of(checkout)
    package = subprocess.run(
        [sys.executable, "-c", "import headscope; print(headscope.__file__)"],
        env=environment,
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    if not Path(package).is_relative_to(checkout):
        print(f"headscope is imported from {package}, not from {checkout}", file=sys.stderr)
        return 2
    out.mkdir(parents=True, exist_ok=True)
    if not (out / "data").exists():
        (out / "data").symlink_to((checkout.parent / "shared" / "data").resolve())
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=checkout, capture_output=True, text=True
    ).stdout.strip()
    failed = False
    for name, arguments in selected_steps(names):
        if is_complete(out / name, arguments):
            print(f"{name}: complete, skipped", flush=True)
            continue
        record = run_step(out / name, arguments, environment, commit)
        failed |= record["status"] != 0
        result = "done" if record["status"] == 0 else f"FAILED with status {record['status']}"
        print(
            f"{name}: {result}, {record['seconds']} s, {record['cpu_seconds']} s of CPU time",
            flush=True,
        )
    return int(failed)


def run_step(
    folder: Path, arguments: list[str], environment: dict[str, str], commit: str
) -> dict[str, Any]:
    """Run one command in an empty directory and record its status, durations and, if it failed, its stderr."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    begin, cpu_begin = time.monotonic(), _cpu_seconds()
    with (folder / PRINTED).open("w") as stdout, (folder / "stderr.txt").open("w") as stderr:
        command = [sys.executable, "-m", "headscope", *arguments]
        status = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
        ).returncode
    record = {
        "arguments": arguments,
        "commit": commit,
        "status": status,
        "seconds": round(time.monotonic() - begin, 1),
        "cpu_seconds": round(_cpu_seconds() - cpu_begin, 1),
        "stderr": (folder / "stderr.txt").read_text() if status else "",
    }
    (folder / RECORD).write_text(json.dumps(record, indent=2) + "\n")
    return record


def environment_of(checkout: Path) -> dict[str, str]:
    """Environment of all steps: one thread, a fixed hash seed, no network, a fixed terminal width."""
    return os.environ | {
        "PYTHONPATH": str(checkout / "src"),
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "HEADSCOPE_OFFLINE": "1",
        "HF_HUB_OFFLINE": "1",
        "COLUMNS": "120",
        "NO_COLOR": "1",
        "MPLBACKEND": "Agg",
    }


def is_complete(folder: Path, arguments: list[str]) -> bool:
    """Whether the step succeeded with these arguments. A step whose arguments changed is run again."""
    if not (folder / RECORD).exists():
        return False
    record = json.loads((folder / RECORD).read_text())
    return bool(record["status"] == 0 and record["arguments"] == arguments)


def selected_steps(names: Sequence[str] | None) -> list[tuple[str, list[str]]]:
    if names and (unknown := set(names) - set(STEPS)):
        raise SystemExit(f"unknown steps: {', '.join(sorted(unknown))}")
    return [(name, arguments) for name, arguments in STEPS.items() if not names or name in names]


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


# ---- compare


@dataclass
class Result:
    """Counts of a comparison and descriptions of the differences."""

    files: int = 0
    numbers: int = 0
    differences: list[str] = field(default_factory=list)


def compare(before: Path, after: Path, names: Sequence[str] | None, show: int) -> int:
    """Compare two output folders step by step; the exit status is 1 if any step differs."""
    steps = names or sorted(
        {record.parent.name for side in (before, after) for record in side.glob(f"*/{RECORD}")}
    )
    total, differing = Result(), []
    for step in steps:
        result = compare_step(before / step, after / step)
        total.files += result.files
        total.numbers += result.numbers
        if result.differences:
            differing.append(step)
        print(
            f"{step}: {result.files} files, {result.numbers:,} numbers, {len(result.differences)} differences"
        )
        for line in result.differences[:show]:
            print(f"    {line}")
        if len(result.differences) > show:
            print(f"    … and {len(result.differences) - show} more")
    print(f"{len(steps)} steps, {total.files} files, {total.numbers:,} numbers")
    print(f"steps that differ: {', '.join(differing) or 'none'}")
    return int(bool(differing) or not steps)


def compare_step(before: Path, after: Path) -> Result:
    result = Result()
    for folder in (before, after):
        if not (folder / RECORD).exists():
            result.differences.append(f"{folder}: the step was not completed")
    if result.differences:
        return result
    statuses = [json.loads((folder / RECORD).read_text())["status"] for folder in (before, after)]
    if any(statuses):
        result.differences.append(
            f"exit status {statuses[0]} and {statuses[1]}; a failed step proves nothing"
        )
    left, right = (set(compared_files(folder)) for folder in (before, after))
    result.differences += [f"{path}: only before" for path in sorted(left - right)]
    result.differences += [f"{path}: only after" for path in sorted(right - left)]
    for path in sorted(left & right):
        result.files += 1
        old, new = dict(values_of(before / path)), dict(values_of(after / path))
        result.numbers += sum(map(count_numbers, old.values()))
        for key in old | new:
            if not is_same(old.get(key), new.get(key)):
                result.differences.append(
                    f"{path}: {key}: {_short(old.get(key))} / {_short(new.get(key))}"
                )
    return result


def compared_files(folder: Path) -> Iterator[str]:
    for path in folder.rglob("*"):
        if (
            path.is_file()
            and path.suffix not in NOT_COMPARED
            and path.name not in NOT_COMPARED_NAMES
        ):
            yield str(path.relative_to(folder))


class Number(str):
    """A number as it is written: two are equal only if every digit is equal."""


def values_of(path: Path) -> Iterator[tuple[str, object]]:
    """Every value of a file with its location: numbers, masked text or complete arrays."""
    if path.suffix == ".csv":
        yield from table_values(path.read_bytes().decode())
    elif path.suffix in (".json", ".jsonl"):
        for number, line in enumerate(
            path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
        ):
            yield from json_values(line, f"[{number}]" if number else "")
    elif path.suffix in (".npz", ".npy"):
        loaded = np.load(path)
        yield from loaded.items() if path.suffix == ".npz" else [("array", loaded)]
    elif path.suffix == ".safetensors":
        yield from tensor_values(path)
    elif path.suffix == ".parquet":
        table = pd.read_parquet(path)
        yield from (
            (str(name), table[name].to_numpy()) for name in table if name not in MASKED_FIELDS
        )
    elif path.suffix in (".html", ".md", ".txt", ".tsv", ""):
        yield from text_values(path.read_text())
    else:
        yield "bytes", path.read_bytes()


def table_values(text: str, prefix: str = "") -> Iterator[tuple[str, object]]:
    rows = list(csv.reader(io.StringIO(text, newline="")))
    header = rows[0] if rows else []
    yield f"{prefix}columns", ",".join(header)
    for number, row in enumerate(rows[1:], 2):
        for column, cell in zip_longest(header, row, fillvalue=""):
            if column not in MASKED_FIELDS:
                yield f"{prefix}line {number}, {column}", as_value(cell)


def json_values(text: str, prefix: str = "") -> Iterator[tuple[str, object]]:
    def walk(value: Any, place: str) -> Iterator[tuple[str, object]]:
        if isinstance(value, dict):
            yield f"{place} keys", " ".join(value)
            is_timing = "throughput" in value  # then ratio and interval are measured times, too
            for key, inner in value.items():
                if key == "csv" and type(inner) is str:  # a page holds its tables compressed
                    table = zlib.decompress(base64.b64decode(inner)).decode()
                    yield from table_values(table, f"{place}.csv ")
                elif key not in MASKED_FIELDS and not (is_timing and key in MASKED_TIMINGS):
                    yield from walk(inner, f"{place}.{key}")
        elif isinstance(value, list):
            yield f"{place} length", len(value)
            for index, inner in enumerate(value):
                yield from walk(inner, f"{place}[{index}]")
        else:
            yield place, mask_text(value) if type(value) is str else value

    # Numbers stay as they are written, so that parsing hides no digit.
    yield from walk(
        json.loads(text, parse_float=Number, parse_int=Number, parse_constant=Number), prefix
    )


def tensor_values(path: Path) -> Iterator[tuple[str, object]]:
    """Tensors of a safetensors file as raw bytes with dtype and shape, which also serves types numpy does not have."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if name != "__metadata__":
            begin, end = (8 + size + offset for offset in entry["data_offsets"])
            width = max(1, (end - begin) // max(1, int(np.prod(entry["shape"]))))
            yield f"{name} type", f"{entry['dtype']} {entry['shape']}"
            yield name, np.frombuffer(data[begin:end], f"V{width}")


def text_values(text: str) -> Iterator[tuple[str, object]]:
    """Numbers and the words between them; data blocks of a page are read as JSON."""
    for index, block in enumerate(DATA_BLOCK.findall(text)):
        yield from json_values(block[1], f"data block {index}")
    masked = mask_text(TABLE.sub(mask_columns, DATA_BLOCK.sub(r"\1\3", text)))
    for line, content in enumerate(masked.splitlines(), 1):
        for index, part in enumerate(NUMBER_IN_TEXT.split(content)):
            yield f"line {line}, part {index}", Number(part) if index % 2 else part.strip()


def mask_text(text: str) -> str:
    for name, pattern in MASKED_TEXT:
        text = pattern.sub(f"<{name}>", text)
    return text


def mask_columns(table: re.Match[str]) -> str:
    """The HTML of a table with the cells of measured columns replaced."""
    headings = [heading.strip() for heading in HEADING.findall(table[0])]
    if not MASKED_HEADINGS & set(headings):
        return table[0]

    def mask_row(row: re.Match[str]) -> str:
        columns = iter(headings)
        return CELL.sub(
            lambda cell: "<measured>" if next(columns, "") in MASKED_HEADINGS else cell[0], row[0]
        )

    return ROW.sub(mask_row, table[0])


def as_value(cell: str) -> object:
    try:
        float(cell)
    except ValueError:
        return mask_text(cell)
    return Number(cell)


def is_same(old: object, new: object) -> bool:
    if isinstance(old, np.ndarray) and isinstance(new, np.ndarray):
        if old.dtype != new.dtype or old.shape != new.shape:
            return False
        if old.dtype == object:
            return all(map(is_same, map(str, old.ravel()), map(str, new.ravel())))
        return old.tobytes() == new.tobytes()
    return type(old) is type(new) and bool(old == new)


def count_numbers(value: object) -> int:
    if isinstance(value, np.ndarray):
        return value.size if value.dtype.kind in "biufcV" else 0
    return int(isinstance(value, Number | int | float))


def _short(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"array {value.dtype} {value.shape}"
    text = "missing" if value is None else str(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _options(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Compare the results of real commands at two commits."
    )
    actions = parser.add_subparsers(dest="action", required=True)
    runner = actions.add_parser("run", help="run the steps with the source of a checkout")
    runner.add_argument(
        "--checkout", type=Path, required=True, help="working tree whose src is used"
    )
    runner.add_argument("--out", type=Path, required=True, help="folder for the outputs")
    comparer = actions.add_parser("compare", help="compare two folders that run wrote")
    comparer.add_argument("before", type=Path)
    comparer.add_argument("after", type=Path)
    comparer.add_argument(
        "--show", type=int, default=10, help="differences to print per step (default: 10)"
    )
    for action in (runner, comparer):
        action.add_argument(
            "--steps",
            type=lambda text: text.split(","),
            help="only these steps, separated by commas",
        )
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main())
