"""Agreement of lenses with each other and with exact ablation.

If a study has the exact change of loss without each head (`headscope importance`), the ranks of heads by every
statistic through a lens are compared with it: Spearman's correlation, with a bootstrap interval over heads, next to
that of the same statistic of raw attention and the noise ceiling of the exact changes in that stack. Relevance
(`--by relevance`) is treated as a lens.
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
FEWEST = 4  # heads for a correlation
REPLICATES = 200
SHOWN = 3
SPREAD = 0.1  # smallest range over heads through a lens, as a share of that of raw attention
RELEVANCES, RELEVANCE = ("relevance", "relevance-signed"), "relevance"
BESIDE = "confidence"  # statistic of raw attention with which relevance is compared


def lens_agreement(study: Study, *, seed: int = 0) -> list[TableRow]:
    """Rows of the table `lenses`; none without exact ablation or without a lens."""
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
                correlation = _correlation(both[name].to_numpy(), both[EXACT].to_numpy(), seed)
                lens = parsed[name].qualified_lens or (RELEVANCE if name in RELEVANCES else RAW)
                row = {"stack": str(stack), "statistic": parsed[name].base, "lens": lens}
                ceiling = ceilings.get(str(stack), np.nan)
                rows.append({**row, **correlation, "ceiling": ceiling, "heads": len(both)})
    return rows


def furthest_apart(study: Study) -> list[TableRow]:
    """Rows of the table `lens_heads`: for each lens the head whose rank differs most from that by raw attention.

    Differences are between the ranks of interval ends, so that noise does not count. Statistics that hardly vary over
    heads through a lens are left out.
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
            # [statistic, end of the interval, head]
            ends = [
                [_ranks(both[column], end.loc[both.index, column]) for end in (lows, highs)]
                for column in (statistic, name)
            ]
            ranks = [rankdata(both[column]) / len(both) for column in (statistic, name)]
            for i, head in enumerate(both.index):
                (low, high), (lens_low, lens_high) = ((float(x[i]) for x in side) for side in ends)
                row = dict(zip(KEYS, head, strict=True)) | {"statistic": statistic, "lens": lens}
                for prefix, column in (("raw", statistic), ("through", name)):
                    row |= {prefix: values[column][head], f"{prefix}_low": lows[column][head]}
                    row |= {f"{prefix}_high": highs[column][head]}
                row |= {"raw_rank": float(ranks[0][i]), "rank": float(ranks[1][i])}
                row |= {"apart": max(lens_low - high, 0.0) + min(lens_high - low, 0.0)}
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
    bounds = ends.fillna(values).to_numpy()
    shares: np.ndarray[Any, Any] = (values.to_numpy()[None, :] <= bounds[:, None]).mean(axis=1)
    return shares


def _modes() -> set[str]:
    """Statistics without an order: the most frequent offset."""
    return {name for name, definition in glossary().items() if definition.unit == "offset"}


def _values(study: Study, end: str = "value") -> pd.DataFrame:
    """Statistics [head, statistic], rounded as in heads.csv so that ties stay ties. end: value, low or high."""
    table = study.heads.pivot(index=KEYS, columns="statistic", values=end)
    values: pd.DataFrame = table.map(lambda value: float(f"{value:.10g}"))
    order = [name for name in dict.fromkeys(study.heads["statistic"]) if name in values]
    return values[order]


def _correlation(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any], seed: int) -> dict[str, float]:
    """Spearman's correlation with its bootstrap interval."""
    draws = np.random.default_rng(seed).integers(0, len(x), size=(REPLICATES, len(x)))
    sampled = [spearman(x[draw], y[draw]) for draw in draws]
    low, high = np.nanquantile(sampled, [0.025, 0.975])
    return {"correlation": spearman(x, y), "low": float(low), "high": float(high)}


def _ceilings(study: Study) -> dict[str, float]:
    """The noise ceiling of each stack, if the study has them."""
    table = study.tables.get("ceilings")
    rows = [] if table is None else table.to_dict("records")
    return {str(row["stack"]): float(row["ceiling"]) for row in rows}
