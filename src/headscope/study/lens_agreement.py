"""Do the lenses agree, with each other and with what a head really does?

Where a study has the exact change of loss without each head (`headscope importance`), every statistic that was asked
through a lens is ranked against it, over heads: Spearman's correlation, with an interval over resampled heads, beside
that of the same statistic of raw attention, and the ceiling that the noise of the exact changes leaves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import rankdata

from headscope.statistics import glossary
from headscope.tasks.metrics import spearman

if TYPE_CHECKING:
    import pandas as pd

    from headscope.study.study import Study

EXACT = "ablation-loss"
KEYS = ["stack", "layer", "head"]
FEWEST = 4  # heads, below which a correlation says nothing
REPLICATES = 200
SHOWN = 3


def lens_agreement(study: Study, *, seed: int = 0) -> list[dict[str, Any]]:
    """Rows of lenses.csv, by stack, statistic and lens; none where nothing was removed or no other lens was asked."""
    values = _values(study)
    names = [name for name in values.columns if "@" in name]
    if not names or EXACT not in values:
        return []
    plain = [name for name in dict.fromkeys(name.partition("@")[0] for name in names) if name in values]
    rows = []
    for stack, of_stack in values.groupby("stack", sort=False):
        for name in [*plain, *names]:
            both = of_stack[[name, EXACT]].dropna()
            if len(both) >= FEWEST and both[name].nunique() > 1:
                statistic, _, lens = name.partition("@")
                told = _correlated(both[name].to_numpy(), both[EXACT].to_numpy(), seed)
                place: dict[str, Any] = {"stack": str(stack), "statistic": statistic, "lens": lens or "raw"}
                rows.append(place | told | {"ceiling": _ceiling(study), "heads": len(both)})
    return rows


def furthest_apart(study: Study) -> list[dict[str, Any]]:
    """The heads that a lens ranks most unlike raw attention, by one statistic each: rows of lens_heads.csv."""
    values = _values(study)
    modes = {name for name, definition in glossary().items() if definition.unit == "offset"}  # more is not more
    rows = []
    for name in (name for name in values.columns if "@" in name):
        statistic, _, lens = name.partition("@")
        if statistic not in values or statistic in modes:
            continue
        for _, of_stack in values.groupby("stack", sort=False):
            both = of_stack[[statistic, name]].dropna()
            if len(both) < FEWEST:
                continue
            ranks = [rankdata(both[one]) / len(both) for one in (statistic, name)]
            for place, raw, seen, one, other in zip(both.index, both[statistic], both[name], *ranks, strict=True):
                told = {"statistic": statistic, "lens": lens, "raw": float(raw), "through": float(seen)}
                ranked = {"raw_rank": float(one), "rank": float(other), "apart": float(other - one)}
                rows.append(dict(zip(KEYS, place, strict=True)) | told | ranked)
    best: dict[Any, dict[str, Any]] = {}
    for row in sorted(rows, key=lambda row: -abs(row["apart"])):
        best.setdefault((row["stack"], row["layer"], row["head"]), row)
    return list(best.values())[:SHOWN]


def _values(study: Study) -> pd.DataFrame:
    """A row a head, a column a statistic."""
    values: pd.DataFrame = study.heads.pivot(index=KEYS, columns="statistic", values="value")
    order = [name for name in dict.fromkeys(study.heads["statistic"]) if name in values]
    return values[order]


def _correlated(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any], seed: int) -> dict[str, float]:
    draws = np.random.default_rng(seed).integers(0, len(one), size=(REPLICATES, len(one)))
    sampled = [spearman(one[draw], other[draw]) for draw in draws]
    low, high = np.nanquantile(sampled, [0.025, 0.975])
    return {"correlation": spearman(one, other), "low": float(low), "high": float(high)}


def _ceiling(study: Study) -> float:
    """By split halves of the examples, where the study has it."""
    table = study.tables.get("agreement")
    return float("nan") if table is None or not len(table) else float(table["ceiling"].iloc[0])
