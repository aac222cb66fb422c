"""What is in a directory that some command wrote: a study of one model, or a comparison of several.

The study of a cut, gated or fixed model is in a directory of its own beside the weights; what the probes of
`headscope probe` found says nothing of single heads' statistics, and is a study without rows.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from headscope.analysis.compare import Comparison
from headscope.atomic_dir import read_record
from headscope.config.command_line import command_line
from headscope.errors import HeadscopeError, reason
from headscope.model.manifest import NAME as MANIFEST
from headscope.study.study import SCHEMA, Study
from headscope.study.study_dir import place_of
from headscope.tables import read_table, to_frame

if TYPE_CHECKING:
    import pandas as pd

COMPARED = ("layers", "smoothness", "roles", "matches", "matching", "changes", "layer_changes")
PROBES = ("probes", "probe_weights")


def read_given(place: str | Path) -> Study | Comparison:
    """The study or the comparison that is there; one line where there is neither, or half of one."""
    folder = place_of(place)
    record = read_record(folder)
    if record.get("schema") == SCHEMA and record.get("kind") == "comparison":
        return _comparison(folder)
    if (
        record.get("schema") == SCHEMA
        and not (folder / "heads.parquet").exists()
        and (folder / "probes.csv").exists()
    ):
        return Study(to_frame([]), {}, record, _tables(folder, PROBES))
    if not folder.is_dir():
        raise HeadscopeError(
            "there is no such directory", where=place, expected="a study that a command wrote"
        )
    if not (folder / "run.json").exists() and (folder / MANIFEST).exists():
        what = "a cut model without a study: its heads were named (`heads=SET` or `plan`), and no task was searched for"
        analyse = command_line("analyze", place, corpus="FILE", out="study")
        search = command_line("prune", "MODEL", heads="NUMBER", task="TASK", data="FILE", out="DIR")
        mend = (
            f"Analyse it ({analyse}) and report on that study, or let a search choose, "
            f"which writes one ({search})"
        )
        raise HeadscopeError(what, where=place, mend=mend)
    return Study(folder)


def _comparison(folder: Path) -> Comparison:
    """As it was written. Studies it was made of are not in it: their rows are empty."""
    import pandas as pd

    record = read_record(folder)
    told = [one for one in record.get("studies", []) if isinstance(one, dict) and "name" in one]
    tables = _tables(folder, COMPARED)
    if len(told) < 2 or "layers" not in tables:
        raise HeadscopeError(
            "not a whole comparison", where=folder, expected="what headscope compare wrote"
        )
    studies = [Study(to_frame([]), {}, {"model": one.get("model", {})}) for one in told]
    parts = {name: tables.get(name, pd.DataFrame()) for name in COMPARED}
    names = [str(one["name"]) for one in told]
    return Comparison(names, studies, **parts, notes=record.get("notes", []), record=record)


def _tables(folder: Path, names: tuple[str, ...]) -> dict[str, pd.DataFrame]:
    try:
        return {
            name: read_table(folder / f"{name}.csv")
            for name in names
            if (folder / f"{name}.csv").exists()
        }
    except (OSError, ValueError) as cause:
        raise HeadscopeError(
            f"a table cannot be read ({reason(cause)})", where=folder, mend="Make it again"
        ) from cause
