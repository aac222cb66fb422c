"""The study directory: its location and its files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from headscope.study.study import Study


def study_folder(folder: str | Path) -> Path:
    """The directory of the study itself: a cut model has it in a subdirectory."""
    inside = Path(folder) / "study"
    return inside if (inside / "run.json").exists() else Path(folder)


def write_tables(study: Study, folder: Path) -> None:
    """heads.csv, heads.parquet, the other tables, maps.npz and run.json."""
    # Ten digits in the csv files, more than the precision of any statistic; the parquet file has all.
    study.heads.to_parquet(folder / "heads.parquet", index=False)
    for name, table in {"heads": study.heads, **study.tables}.items():
        table.to_csv(folder / f"{name}.csv", index=False, float_format="%.10g", lineterminator="\n")
    np.savez_compressed(folder / "maps.npz", **study.maps)  # type: ignore[arg-type]
    record = json.dumps(study.record, indent=2, ensure_ascii=False)
    (folder / "run.json").write_text(f"{record}\n", "utf-8")
