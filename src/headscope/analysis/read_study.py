"""Read a directory that a command wrote: a study of one model, or a comparison of several.

The study of a pruned, gated or fixed model is in a directory next to its weights. The results of `headscope probe`,
which have no statistics of heads, are read as a study without rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from headscope.analysis.compare import Comparison
from headscope.atomic_dir import read_record
from headscope.config.command_line import command_line
from headscope.errors import HeadscopeError
from headscope.model.manifest import NAME as MANIFEST
from headscope.study.schema.check_values import check_values
from headscope.study.schema.read_file import CORRECT
from headscope.study.schema.record import SCHEMA, RunRecord, upgrade_record
from headscope.study.schema.table import Table
from headscope.study.schema.tables import COMPARISON_TABLES, PROBE_TABLES
from headscope.study.study import Study
from headscope.study.study_dir import study_folder
from headscope.tables import to_frame

if TYPE_CHECKING:
    import pandas as pd


def read_study_or_comparison(path: str | Path) -> Study | Comparison:
    """The study or comparison in a directory; an error if there is neither."""
    folder = study_folder(path)
    stored = read_record(folder)
    is_current = stored.get("schema") == SCHEMA
    record = upgrade_record(stored, folder / "run.json") if is_current else RunRecord()
    if is_current and record.get("kind") == "comparison":
        return _comparison(folder, record)
    has_heads, has_probes = ((folder / name).exists() for name in ("heads.parquet", "probes.csv"))
    if is_current and has_probes and not has_heads:
        return Study(to_frame([]), {}, record, _tables(folder, PROBE_TABLES))
    if not folder.is_dir():
        raise HeadscopeError(
            "there is no such directory", where=path, expected="a study that a command wrote"
        )
    if not (folder / "run.json").exists() and (folder / MANIFEST).exists():
        what = "a cut model without a study: its heads were named (`heads=SET` or `plan`), and no task was searched for"
        analyse = command_line("analyze", path, corpus="FILE", out="study")
        search = command_line("prune", "MODEL", heads="NUMBER", task="TASK", data="FILE", out="DIR")
        fix = (
            f"Analyse it ({analyse}) and report on that study, or let a search choose, "
            f"which writes one ({search})"
        )
        raise HeadscopeError(what, where=path, fix=fix)
    return Study(folder)


def _comparison(folder: Path, record: RunRecord) -> Comparison:
    """Read a comparison. Its directory does not contain the studies, so these have no rows."""
    listed = record.get("studies", [])
    named = [entry for entry in listed if isinstance(entry, dict) and "name" in entry]
    tables = _tables(folder, COMPARISON_TABLES)
    if len(named) < 2 or not len(tables.get("layers", ())):
        raise HeadscopeError(
            "not a whole comparison", where=folder, expected="what headscope compare wrote"
        )
    studies = [Study(to_frame([]), {}, {"model": entry.get("model", {})}) for entry in named]
    parts = {name: tables.get(name, table.frame([])) for name, table in COMPARISON_TABLES.items()}
    names = [str(entry["name"]) for entry in named]
    for name, table in parts.items():
        for column in {"study", "other"} & set(table.columns):
            if unknown := set(table[column]) - set(names):
                what = f'column "{column}" must hold a study of run.json ({", ".join(names)})'
                where = folder / f"{name}.csv"
                raise HeadscopeError(f'{what}, got "{min(unknown)}"', where=where, fix=CORRECT)
    _check_matching(parts["matches"], parts["matching"], folder)
    return Comparison(names, studies, **parts, notes=record.get("notes", []), record=record)


def _check_matching(matches: pd.DataFrame, matching: pd.DataFrame, folder: Path) -> None:
    """Raise an error if matches.csv has other numbers of rows than those stated in matching.csv."""
    keys = ["study", "other", "stack", "within"]
    counts = Counter(matches[keys].itertuples(index=False, name=None))
    stored = Counter(
        dict(
            zip(matching[keys].itertuples(index=False, name=None), matching["matched"], strict=True)
        )
    )
    for key in [*stored, *counts]:
        if stored[key] != counts[key]:
            what = f"must have the {stored[key]} rows that matching.csv counts for {', '.join(key)}, got {counts[key]}"
            raise HeadscopeError(what, where=folder / "matches.csv", fix=CORRECT)


def _tables(folder: Path, declared: Mapping[str, Table]) -> dict[str, pd.DataFrame]:
    paths = {name: folder / f"{name}.csv" for name in declared}
    tables = {name: declared[name].read(path) for name, path in paths.items() if path.exists()}
    for name, table in tables.items():
        check_values(table, declared[name].name, paths[name])
    return tables
