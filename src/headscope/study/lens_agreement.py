"""Do the lenses agree, with each other and with what a head really does?

Where a study has the exact change of loss without each head (`headscope importance`), every statistic that was asked
through a lens is ranked against it, over heads: Spearman's correlation, with an interval over resampled heads, beside
that of the same statistic of raw attention, and the ceiling that the noise of the exact changes leaves in that stack.
Relevance (`--by relevance`) takes part as a lens of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import rankdata

from headscope.statistics import glossary
from headscope.study.schema.names import RAW, StatisticName
from headscope.tables import TableRow
from headscope.tasks.metrics import spearman

if TYPE_CHECKING:
    import pandas as pd

    from headscope.study.study import Study

EXACT = "ablation-loss"
KEYS = ["stack", "layer", "head"]
FEWEST = 4  # heads, below which a correlation says nothing
REPLICATES = 200
SHOWN = 3
SPREAD = 0.1  # of raw attention's range over heads, that a statistic must have through a lens to rank them
RELEVANCES, RELEVANCE = ("relevance", "relevance-signed"), "relevance"
BESIDE = "confidence"  # of raw attention: what relevance stands beside


def lens_agreement(study: Study, *, seed: int = 0) -> list[TableRow]:
    """Rows of lenses.csv, by stack, statistic and lens; none where nothing was removed or no other lens was asked."""
    values = _values(study)
    parsed = {name: StatisticName.parse(name) for name in values.columns}
    through = [name for name, of in parsed.items() if of.lens and of.base not in _modes()]
    relevant = [name for name in RELEVANCES if name in values]
    if not (through or relevant) or EXACT not in values:
        return []
    named = [parsed[name].base for name in through] + [BESIDE] * bool(relevant)
    plain = [name for name in dict.fromkeys(named) if name in values]
    ceilings = _ceilings(study)
    rows: list[TableRow] = []
    for stack, of_stack in values.groupby("stack", sort=False):
        for name in [*plain, *through, *relevant]:
            both = of_stack[[name, EXACT]].dropna()
            if len(both) >= FEWEST and both[name].nunique() > 1:
                told = _correlated(both[name].to_numpy(), both[EXACT].to_numpy(), seed)
                lens = parsed[name].qualified_lens or (RELEVANCE if name in RELEVANCES else RAW)
                place = {"stack": str(stack), "statistic": parsed[name].base, "lens": lens}
                ceiling = ceilings.get(str(stack), np.nan)
                rows.append({**place, **told, "ceiling": ceiling, "heads": len(both)})
    return rows


def furthest_apart(study: Study) -> list[TableRow]:
    """For each lens the head that it ranks most unlike raw attention, by one statistic: rows of lens_heads.csv.

    Ranks are those of the ends of intervals, so that noise is no disagreement; and a statistic that hardly differs from
    head to head through a lens ranks nothing, and is left out.
    """
    values, lows, highs = (_values(study, end) for end in ("value", "low", "high"))
    rows = []
    for name in values.columns:
        parsed = StatisticName.parse(name)
        statistic, lens = parsed.base, parsed.qualified_lens
        if not lens or statistic not in values or statistic in _modes():
            continue
        for _, of_stack in values.groupby("stack", sort=False):
            both = of_stack[[statistic, name]].dropna()
            if len(both) < FEWEST or np.ptp(both[name]) < SPREAD * np.ptp(both[statistic]):
                continue
            ends = [
                [_ranks(both[one], end.loc[both.index, one]) for end in (lows, highs)]
                for one in (statistic, name)
            ]
            ranks = [rankdata(both[one]) / len(both) for one in (statistic, name)]
            for i, place in enumerate(both.index):
                (low, high), (low_seen, high_seen) = (
                    (float(of[0][i]), float(of[1][i])) for of in ends
                )
                row = dict(zip(KEYS, place, strict=True)) | {"statistic": statistic, "lens": lens}
                for column, one in (("raw", statistic), ("through", name)):
                    row |= {column: values[one][place], f"{column}_low": lows[one][place]}
                    row |= {f"{column}_high": highs[one][place]}
                row |= {"raw_rank": float(ranks[0][i]), "rank": float(ranks[1][i])}
                row |= {"apart": max(low_seen - high, 0.0) + min(high_seen - low, 0.0)}
                rows.append(row)
    best: dict[str, TableRow] = {}
    taken = set()
    for row in sorted(rows, key=lambda row: -abs(row["apart"])):
        head = tuple(row[key] for key in KEYS)
        if row["apart"] and row["lens"] not in best and head not in taken:
            best[row["lens"]] = row
            taken.add(head)
    return list(best.values())[:SHOWN]


def _ranks(values: pd.Series[float], ends: pd.Series[float]) -> np.ndarray[Any, Any]:
    """[head]: the share of heads whose value is no larger than this head's at this end of its interval."""
    mine = ends.fillna(values).to_numpy()
    found: np.ndarray[Any, Any] = (values.to_numpy()[None, :] <= mine[:, None]).mean(axis=1)
    return found


def _modes() -> set[str]:
    """Statistics of which more is not more."""
    return {name for name, definition in glossary().items() if definition.unit == "offset"}


def _values(study: Study, end: str = "value") -> pd.DataFrame:
    """A row a head, a column a statistic, as heads.csv has them, so that rounding breaks no ties. end: low or high."""
    table = study.heads.pivot(index=KEYS, columns="statistic", values=end)
    values: pd.DataFrame = table.map(lambda value: float(f"{value:.10g}"))
    order = [name for name in dict.fromkeys(study.heads["statistic"]) if name in values]
    return values[order]


def _correlated(
    one: np.ndarray[Any, Any], other: np.ndarray[Any, Any], seed: int
) -> dict[str, float]:
    draws = np.random.default_rng(seed).integers(0, len(one), size=(REPLICATES, len(one)))
    sampled = [spearman(one[draw], other[draw]) for draw in draws]
    low, high = np.nanquantile(sampled, [0.025, 0.975])
    return {"correlation": spearman(one, other), "low": float(low), "high": float(high)}


def _ceilings(study: Study) -> dict[str, float]:
    """Of each stack, by split halves of the examples, where the study has them."""
    table = study.tables.get("ceilings")
    rows = [] if table is None else table.to_dict("records")
    return {str(row["stack"]): float(row["ceiling"]) for row in rows}
