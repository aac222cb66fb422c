"""A study: everything known about the heads of one model, in memory or in a directory."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headscope.errors import HeadscopeError

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

SCHEMA = 1


@dataclass
class Study:
    """Tables, aggregate maps and the run record of one model.

    heads   one row for each head and statistic: stack, layer, head, statistic, value, low, high, count
    maps    "map/STACK": mean attention [layer, head, query, key] over absolute positions, NaN where no
            sequence was long enough; "offset/STACK": mean mass [layer, head, offset], offsets -R … R
    record  what is written as run.json
    """

    heads: pd.DataFrame
    maps: dict[str, NDArray[Any]] = field(default_factory=dict)
    record: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, path: str | Path) -> Study:
        """The study in a directory."""
        import pandas as pd

        folder = Path(path)
        try:
            record = json.loads((folder / "run.json").read_text("utf-8"))
            heads = pd.read_parquet(folder / "heads.parquet")
            with np.load(folder / "maps.npz", allow_pickle=False) as stored:
                maps = dict(stored)
        except (OSError, ValueError, KeyError) as cause:
            raise HeadscopeError(
                f"not a study ({cause})",
                where=folder,
                expected="a directory written by headscope analyze",
            ) from cause
        if record.get("schema") != SCHEMA:
            raise HeadscopeError(
                f"the study has schema {record.get('schema')!r}", where=folder / "run.json", expected=f"schema {SCHEMA}"
            )
        return cls(heads, maps, record)
