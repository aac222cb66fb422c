"""What every command writes is what is stored: pages, tables, run records, and the names of all files."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from golden_files import ATOL, MASKED, TRAINED_ATOL, Golden, as_text, without
from golden_page import page_as_text
from golden_studies import STEPS, Studies

from headscope.study.schema.record import RunRecord
from headscope.study.schema.tables import COMPARISON_TABLES, HEADS, TABLES
from headscope.study.study import Study

# Keys of JSON and columns of tables that depend on the machine or on the time.
MASKED_KEYS = re.compile(
    r"versions|durations|.*seconds|sha256|sum|time|time_low|time_high|throughput|working|device"
)
MASKED_COLUMNS = re.compile(r"time|time_low|time_high")
HASH = re.compile(r"\b[0-9a-f]{64}\b")
PAGE_MASKS = [
    (HASH, MASKED),
    (re.compile(r"(<dt> (?:\w+ version|time spent)\n *<dd>) .*"), rf"\1 {MASKED}"),
    (re.compile(r"(\d+\.\d+) times as fast \[[^\]]*\]"), f"{MASKED} times as fast"),
    (re.compile(r'("(?:seconds|time|time_low|time_high)": )[^,}]+'), rf"\1{MASKED}"),
]


@pytest.mark.parametrize("name", STEPS)
def test_a_command_writes_what_is_stored(golden: Golden, studies: Studies, name: str) -> None:
    printed = studies.make(name)
    texts = {"printed.txt": mask_page(printed)} | contents(studies.folder / name)
    for file, text in texts.items():
        golden.check(
            f"studies/{name}/{file}", text, atol=TRAINED_ATOL if STEPS[name].is_trained else ATOL
        )
    golden.check_names(f"studies/{name}", set(texts))
    validate_tables(studies.folder / name)


def validate_tables(output: Path) -> None:
    """Every table that a command wrote is declared in the schema, with all its columns and their dtypes."""
    for path in output.rglob("*.csv"):
        is_compared = (output / "layers.csv").exists()
        declared = COMPARISON_TABLES if is_compared else {"heads": HEADS, **TABLES}
        table = declared[path.stem]
        frame = table.read(path)
        table.validate(frame, path)
        assert set(frame.columns) <= set(table.columns), path
    for path in output.rglob("heads.parquet"):
        study = Study(path.parent)
        HEADS.validate(study.heads, path)
        assert set(study.record) <= set(RunRecord.__annotations__)


def test_no_study_is_stored_that_no_command_makes(golden: Golden) -> None:
    assert {path.name for path in (golden.folder / "studies").iterdir()} == set(STEPS)


def contents(output: Path) -> dict[str, str]:
    """The texts to compare of a directory, or of a page, that a command wrote, by the names they are stored under."""
    if output.is_dir():
        files = sorted(path for path in output.rglob("*") if path.is_file())
        names = [path.relative_to(output).as_posix() for path in files]
        texts = {"files.txt": "\n".join(names)}
    else:
        files = [page for page in [output.with_suffix(".html")] if page.exists()]
        names, texts = [path.name for path in files], {}
    for path, name in zip(files, names, strict=True):
        stored = name.replace("/", "-")
        if path.name.endswith(".html"):
            texts[f"{stored.removesuffix('.html')}.page.txt"] = mask_page(
                page_as_text(path.read_text("utf-8"))
            )
        elif path.suffix == ".csv":
            texts[stored] = mask_table(path.read_text("utf-8"))
        elif path.name in ("run.json", "cut.json", "plan.json", "training.json"):
            record = as_text(without(json.loads(path.read_text("utf-8")), MASKED_KEYS))
            texts[stored] = HASH.sub(MASKED, record)
    return texts


def mask_page(text: str) -> str:
    for pattern, replacement in PAGE_MASKS:
        text = pattern.sub(replacement, text)
    return text


def mask_table(text: str) -> str:
    """A table whose measured times are masked; quoted cells hold commas only in columns that come later."""
    names, *rows = text.splitlines()
    columns = [i for i, name in enumerate(names.split(",")) if MASKED_COLUMNS.fullmatch(name)]
    lines = [names]
    for row in rows:
        cells = row.split(",")
        for i in columns:
            assert '"' not in ",".join(cells[: i + 1]), "a quoted cell before a masked one"
            cells[i] = MASKED
        lines.append(",".join(cells))
    return "\n".join(lines)
