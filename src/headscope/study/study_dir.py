"""The study directory: where it is, its tables, and adding to one that is there."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from headscope.atomic_dir import read_record
from headscope.errors import HeadscopeError
from headscope.study.study import Study


def study_folder(place: str | Path) -> Path:
    """The directory of the study itself: that of a cut model is in one of its own beside the weights."""
    inside = Path(place) / "study"
    return inside if (inside / "run.json").exists() else Path(place)


def read_existing_study(
    out: str | Path | None, part: str, *, overwrite: bool = False
) -> Study | None:
    """The existing study in `out`, to which a command adds its `part`; None if there is none.

    A part that the study has already is replaced with `overwrite` only.
    """
    if out is None or not (record := read_record(Path(out))):
        return None
    if part in record and not overwrite:
        fix = "Add `overwrite=True` to replace it, or choose another `out`"
        raise HeadscopeError(f"the study there has its {part} already", where=out, fix=fix)
    return Study(out)


def write_tables(study: Study, folder: Path) -> None:
    """heads.csv, heads.parquet, the other tables, maps.npz and run.json."""
    # Ten digits in the csv: more than any statistic carries, few enough to read. The parquet has them all.
    study.heads.to_parquet(folder / "heads.parquet", index=False)
    for name, table in {"heads": study.heads, **study.tables}.items():
        table.to_csv(folder / f"{name}.csv", index=False, float_format="%.10g", lineterminator="\n")
    np.savez_compressed(folder / "maps.npz", **study.maps)  # type: ignore[arg-type]
    record = json.dumps(study.record, indent=2, ensure_ascii=False)
    (folder / "run.json").write_text(f"{record}\n", "utf-8")
