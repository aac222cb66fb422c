"""What each head's fixed pattern does in its place: from the studies in which heads were fixed one at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headscope.ablation.ablation_results import LOSS
from headscope.study.schema.tables import TABLES

if TYPE_CHECKING:
    import pandas as pd

    from headscope.study.study import Study

TABLE = "substitutes"  # of a study that was joined of several
KEYS = ["stack", "layer", "head"]


def fixed_pattern_effects(study: Study) -> pd.DataFrame:
    """A row a head: its pattern, and what that alone changes of the task's loss. Empty where none was tried."""
    if TABLE in study.tables:
        return study.tables[TABLE]
    told = study.record.get("importance")
    patterns = (
        told.get("patterns") if isinstance(told, dict) and told.get("mode") == "fixed" else None
    )
    rows = study.heads[(study.heads["statistic"] == LOSS) & study.heads["value"].notna()]
    if not isinstance(patterns, dict) or not isinstance(told, dict) or not len(rows):
        return TABLES[TABLE].frame([])
    one_stack = rows["stack"].nunique() == 1
    found = []
    for row in rows.to_dict("records"):
        short = f"{row['layer']}.{row['head']}"
        pattern = patterns.get(f"{row['stack']}.{short}") or (
            patterns.get(short) if one_stack else None
        )
        if pattern is not None:
            change = {"loss_change": row["value"], "low": row["low"], "high": row["high"]}
            head = {key: row[key] for key in KEYS}
            found.append(head | {"pattern": pattern, "task": told.get("task")} | change)
    return TABLES[TABLE].frame(found)
