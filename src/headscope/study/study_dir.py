"""The study directory: where it is, its tables, and adding to one that is there."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from headscope.study.study import Study


def study_folder(place: str | Path) -> Path:
    """The directory of the study itself: that of a cut model is in one of its own beside the weights."""
    inside = Path(place) / "study"
    return inside if (inside / "run.json").exists() else Path(place)


def write_tables(study: Study, folder: Path) -> None:
    """heads.csv, heads.parquet, the other tables, maps.npz and run.json."""
    # Ten digits in the csv: more than any statistic carries, few enough to read. The parquet has them all.
    study.heads.to_parquet(folder / "heads.parquet", index=False)
    for name, table in {"heads": study.heads, **study.tables}.items():
        table.to_csv(folder / f"{name}.csv", index=False, float_format="%.10g", lineterminator="\n")
    np.savez_compressed(folder / "maps.npz", **study.maps)  # type: ignore[arg-type]
    record = json.dumps(study.record, indent=2, ensure_ascii=False)
    (folder / "run.json").write_text(f"{record}\n", "utf-8")
