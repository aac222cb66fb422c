"""What is in a directory that some command wrote: a study of one model, or a comparison of several.

The study of a cut, gated or fixed model is in a directory of its own beside the weights; what the probes of
`headscope probe` found says nothing of single heads' statistics, and is a study without rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from headscope.analysis.compare import Comparison
from headscope.atomic_dir import read_record
from headscope.config.command_line import command_line
from headscope.errors import HeadscopeError, reason
from headscope.model.manifest import NAME as MANIFEST
from headscope.study.schema.record import SCHEMA, upgrade_record
from headscope.study.schema.table import Table
from headscope.study.schema.tables import COMPARISON_TABLES, PROBE_TABLES
from headscope.study.study import Study
from headscope.study.study_dir import study_folder
from headscope.tables import to_frame

if TYPE_CHECKING:
    import pandas as pd


def read_study_or_comparison(place: str | Path) -> Study | Comparison:
    """The study or the comparison that is there; one line where there is neither, or half of one."""
    folder = study_folder(place)
    record = upgrade_record(read_record(folder))
    if record.get("schema") == SCHEMA and record.get("kind") == "comparison":
        return _comparison(folder)
    if (
        record.get("schema") == SCHEMA
        and not (folder / "heads.parquet").exists()
        and (folder / "probes.csv").exists()
    ):
        return Study(to_frame([]), {}, record, _tables(folder, PROBE_TABLES))
    if not folder.is_dir():
        raise HeadscopeError(
            "there is no such directory", where=place, expected="a study that a command wrote"
        )
    if not (folder / "run.json").exists() and (folder / MANIFEST).exists():
        what = "a cut model without a study: its heads were named (`heads=SET` or `plan`), and no task was searched for"
        analyse = command_line("analyze", place, corpus="FILE", out="study")
        search = command_line("prune", "MODEL", heads="NUMBER", task="TASK", data="FILE", out="DIR")
        fix = (
            f"Analyse it ({analyse}) and report on that study, or let a search choose, "
            f"which writes one ({search})"
        )
        raise HeadscopeError(what, where=place, fix=fix)
    return Study(folder)


def _comparison(folder: Path) -> Comparison:
    """As it was written. Studies it was made of are not in it: their rows are empty."""
    record = upgrade_record(read_record(folder))
    told = [one for one in record.get("studies", []) if isinstance(one, dict) and "name" in one]
    tables = _tables(folder, COMPARISON_TABLES)
    if len(told) < 2 or "layers" not in tables:
        raise HeadscopeError(
            "not a whole comparison", where=folder, expected="what headscope compare wrote"
        )
    studies = [Study(to_frame([]), {}, {"model": one.get("model", {})}) for one in told]
    parts = {name: tables.get(name, table.frame([])) for name, table in COMPARISON_TABLES.items()}
    names = [str(one["name"]) for one in told]
    return Comparison(names, studies, **parts, notes=record.get("notes", []), record=record)


def _tables(folder: Path, declared: Mapping[str, Table]) -> dict[str, pd.DataFrame]:
    try:
        return {
            name: table.read(folder / f"{name}.csv")
            for name, table in declared.items()
            if (folder / f"{name}.csv").exists()
        }
    except (OSError, ValueError) as cause:
        raise HeadscopeError(
            f"a table cannot be read ({reason(cause)})", where=folder, fix="Make it again"
        ) from cause
