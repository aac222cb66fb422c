"""What do the lenses' correlations with exact removal amount to? One conclusion, for the section and the findings."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headscope.ablation.agreement import LEAST_CEILING, examples_for
from headscope.report.finding import ceiling_of, excludes, read_measured, short_number, strength_of
from headscope.report.study_access import recorded
from headscope.report.text import plain

if TYPE_CHECKING:
    import pandas as pd

    from headscope.study.study import Study

BY_LUCK = 0.05  # of 95 % intervals leave 0 where there is nothing


@dataclass(frozen=True)
class Conclusion:
    """is_clear, strength: as of a finding."""

    sentence: str
    is_clear: bool
    strength: float = 0.0


def conclusion_of(study: Study) -> Conclusion | None:
    """How many rows of lenses.csv can be told from 0, the strongest of them, and the ceiling; None without a row."""
    table = study.tables.get("lenses")
    known = None if table is None else table[table["correlation"].notna()]
    if known is None or not len(known):
        return None
    rows = known.to_dict("records")
    telling = [
        row for row in rows if excludes(read_measured(row, ("correlation", "low", "high")), 0.0)
    ]
    return _some(study, rows, telling, known) if telling else _none(study, rows)


def _some(
    study: Study, rows: list[dict[Any, Any]], telling: list[dict[Any, Any]], known: pd.DataFrame
) -> Conclusion:
    best = max(telling, key=lambda row: abs(float(row["correlation"])))
    found = read_measured(best, ("correlation", "low", "high"))
    same = (
        (known["statistic"] == best["statistic"])
        & (known["stack"] == best["stack"])
        & (known["lens"] == "raw")
    )
    raw = known[same]["correlation"]
    beside = (
        f", through raw attention {short_number(raw.iloc[0])}"
        if len(raw) and best["lens"] != "raw"
        else ""
    )
    ceiling = ceiling_of(best)
    sentence = (
        f"{len(telling)} of {len(rows)} statistics through lenses can be told from 0 (about "
        f"{BY_LUCK * len(rows):.0f} would be by luck); the strongest is {plain(best['statistic'], 40)} through "
        f"{plain(best['lens'], 20)}: Spearman's correlation {found.text()} with exact removal{beside}; the best of so "
        f"many is partly luck, and {_reach(study, [best])}"
        f"{'' if ceiling >= LEAST_CEILING else '; ' + _more(study, [ceiling])}"
    )
    is_clear = ceiling >= LEAST_CEILING
    return Conclusion(sentence, is_clear, strength_of(found.value, found.low, found.high, 0.0))


def _none(study: Study, rows: list[dict[Any, Any]]) -> Conclusion:
    ceilings = [ceiling_of(row) for row in rows]
    more = (
        ""
        if all(ceiling >= LEAST_CEILING for ceiling in ceilings)
        else f"; {_more(study, ceilings)}"
    )
    sentence = f"No statistic through any lens can be told from 0 ({len(rows)} rows); {_reach(study, rows)}{more}"
    return Conclusion(sentence, not all(map(math.isnan, ceilings)))


def _more(study: Study, ceilings: list[float]) -> str:
    """How many examples would do for the lowest of these ceilings."""
    count = recorded(study.record, "importance", "examples")
    known = [ceiling for ceiling in ceilings if not math.isnan(ceiling)]
    needed = examples_for(min(known), count) if known and isinstance(count, int) else None
    return "take more examples" if needed is None else f"about {needed:,} examples would do"


def _reach(study: Study, rows: list[dict[Any, Any]]) -> str:
    """What the true importances would reach in the stacks of these rows, with so many examples."""
    ceilings = {str(row["stack"]): ceiling_of(row) for row in rows}
    known = {stack: ceiling for stack, ceiling in ceilings.items() if not math.isnan(ceiling)}
    if not known:
        return "the changes by removal are nothing but noise here"
    low, high = (short_number(end, 2) for end in (min(known.values()), max(known.values())))
    reached = low if low == high else f"{low} to {high}, by stack"
    even, only = ("even ", "only ") if min(known.values()) < LEAST_CEILING else ("", "")
    count = recorded(study.record, "importance", "examples")
    on = f"with {count} examples " if isinstance(count, int) else ""
    return f"{on}{even}the true importances would reach {only}{reached}"
