"""Data sets by id, through the `datasets` library: `datasets:OWNER/NAME`, `datasets:OWNER/NAME:CONFIG`.

A split is written once to headscope's cache, as a file with one JSON object per line. After that it is treated like any
other file: errors name its lines, and run records its sha256. Class labels are replaced by their names; nested columns
are joined by a dot (`translation.en`). A directory with csv, jsonl or parquet files can be used as an id, too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from headscope.errors import HeadscopeError, choices, reason
from headscope.model.zoo import cache_directory

PREFIX = "datasets:"


def is_id(data: str | Path) -> bool:
    return str(data).startswith(PREFIX)


def fetch_split(data: str, split: str, words: tuple[str, ...]) -> Path:
    """The file of the first split whose name contains one of the words; it is written to the cache if missing."""
    name, _, config = data.removeprefix(PREFIX).partition(":")
    where = f'`data="{data}"`'
    if not name:
        expected = "datasets:OWNER/NAME[:CONFIG]"
        raise HeadscopeError("no data set is named", where=where, expected=expected)
    splits = _load(name, config or None, where)
    match = next((key for key in splits if set(words) & set(key.split("_"))), None)
    if match is None:
        expected = choices(split, list(splits))
        raise HeadscopeError(f"no split for {split} in it", where=where, expected=expected)
    rows = splits[match]
    stamp = hashlib.sha256(f"{data} {match} {rows._fingerprint}".encode()).hexdigest()[:12]
    file_name = f"{_plain(name)}-{_plain(config) or 'default'}-{match}-{stamp}.jsonl"
    path = cache_directory() / "data" / file_name
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        # Write to a temporary directory first: a file that has its final name is always complete.
        with TemporaryDirectory(dir=path.parent) as temporary:
            written = Path(temporary) / path.name
            with written.open("w", encoding="utf-8") as file:
                file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in _rows(rows))
            written.replace(path)
    return path


def _load(name: str, config: str | None, where: str) -> Any:
    try:
        import datasets
    except ImportError as cause:
        what = "data sets by id require the library datasets"
        raise HeadscopeError(what, where=where, fix="pip install datasets") from cause
    datasets.disable_progress_bars()
    try:
        return datasets.load_dataset(name, config)
    except Exception as cause:  # its own errors, those of its file formats and those of the network
        expected = "the id of a data set, and a connection the first time"
        what = f"cannot be loaded ({reason(cause)})"
        raise HeadscopeError(what, where=where, expected=expected) from cause


def _rows(rows: Any) -> Iterator[dict[str, object]]:
    """The rows as plain objects, with the names of classes instead of their numbers."""
    classes = {
        name: feature.names
        for name, feature in rows.features.items()
        if hasattr(feature, "int2str")
    }
    for row in rows:
        cells = dict(_flat(row))
        for name, names in classes.items():
            number = cells.get(name)
            if isinstance(number, int) and 0 <= number < len(names):
                cells[name] = names[number]
        yield cells


def _flat(row: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, object]]:
    for name, value in row.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def _plain(name: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in name).strip("-")
