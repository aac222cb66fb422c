"""The effect of replacing each head by its fixed pattern, from studies that fixed heads one at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headscope.ablation.ablation_results import LOSS
from headscope.study.schema.tables import TABLES

if TYPE_CHECKING:
    import pandas as pd

    from headscope.study.study import Study

TABLE = "substitutes"  # name of the table in a joined study
KEYS = ["stack", "layer", "head"]


def fixed_pattern_effects(study: Study) -> pd.DataFrame:
    """The table: for each head its pattern, and the change of the task's loss when the head is fixed.

    Empty if the study fixed no head.
    """
    if TABLE in study.tables:
        return study.tables[TABLE]
    record = study.record.get("importance")
    is_fixed = isinstance(record, dict) and record.get("mode") == "fixed"
    patterns = record.get("patterns") if record is not None and is_fixed else None
    heads = study.heads[(study.heads["statistic"] == LOSS) & study.heads["value"].notna()]
    if record is None or not isinstance(patterns, dict) or not len(heads):
        return TABLES[TABLE].frame([])
    has_one_stack = heads["stack"].nunique() == 1
    rows = []
    for row in heads.to_dict("records"):
        short = f"{row['layer']}.{row['head']}"
        pattern = patterns.get(f"{row['stack']}.{short}")
        if pattern is None and has_one_stack:
            pattern = patterns.get(short)
        if pattern is not None:
            head = {key: row[key] for key in KEYS}
            change = {"loss_change": row["value"], "low": row["low"], "high": row["high"]}
            rows.append(head | {"pattern": pattern, "task": record.get("task")} | change)
    return TABLES[TABLE].frame(rows)
