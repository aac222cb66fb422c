"""Do statistics through lenses rank heads like exact removal? Correlations, and one conclusion."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from headscope.ablation.agreement import LEAST_CEILING, examples_for
from headscope.report.drawing.palette import MUTED, RULE, SERIES
from headscope.report.drawing.sheet import open_sheet
from headscope.report.drawing.study_figure import StudyFigure
from headscope.report.finding import Finding, ceiling_of, read_estimate, short_number
from headscope.report.section import Section
from headscope.report.study_access import entry_of, model_name
from headscope.report.table_cells import Cell, Columns, Part, interval_column, number_cell
from headscope.report.text import plain

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from headscope.study.study import Study

BY_LUCK = 0.05  # of 95 % intervals leave 0 where there is nothing
CORRELATION = ("correlation", "low", "high")
WIDTH, LEFT, RIGHT, BOTTOM, ROW = 6.6, 2.0, 0.2, 0.5, 0.3


class LensAgreement(StudyFigure):
    """A line of dots a stack and statistic, one a lens."""

    name = "agree-lenses"
    table = "lenses"
    title = "Statistics through each lens against exact removal"
    caption = (
        "Spearman's correlation over heads with the exact change of loss when a head is removed; bars are 95 % "
        "intervals over heads, which are resampled. Broken lines are the ceilings, up and down: what the true "
        "importances would reach in that stack, given how noisy the exact changes are. Stacks whose ceiling is below "
        f"{LEAST_CEILING:g} are left out."
    )

    def applies(self, study: Study) -> bool:
        return ranked_rows(study) is not None

    def draw(self, study: Study) -> Figure:
        table = ranked_rows(study)
        assert table is not None
        names = list(
            dict.fromkeys(table[["stack", "statistic"]].itertuples(index=False, name=None))
        )
        lenses = list(dict.fromkeys(table["lens"]))
        body = ROW * len(names)
        with open_sheet(self.title, model_name(study), WIDTH, body + BOTTOM, 0.45) as sheet:
            ax = sheet.add_axes(LEFT, 0, WIDTH - LEFT - RIGHT, body)
            for i, lens in enumerate(lenses):
                here = table[table["lens"] == lens]
                down = [
                    names.index((one.stack, one.statistic)) + 0.12 * (i - (len(lenses) - 1) / 2)
                    for one in here.itertuples()
                ]
                colour = SERIES[i % len(SERIES)]
                ax.hlines(down, here["low"], here["high"], color=colour, linewidth=1.0, alpha=0.6)
                ax.plot(here["correlation"], down, "o", color=colour, markersize=4, label=lens)
            for stack, ceiling in dict(zip(table["stack"], table["ceiling"], strict=True)).items():
                rows = [i for i, (of, _) in enumerate(names) if of == stack]
                line: dict[str, Any] = {"linewidth": 1.2, "linestyle": (0, (4, 2))}
                for x in (-ceiling, ceiling) if np.isfinite(ceiling) else ():
                    ax.vlines(x, rows[0] - 0.5, rows[-1] + 0.5, color=SERIES[1], **line)
            ax.axvline(0.0, color=MUTED, linewidth=0.8)
            several = len({stack for stack, _ in names}) > 1
            labels = [f"{stack} {name}" if several else name for stack, name in names]
            ax.set_yticks(range(len(names)), labels)
            ax.set(xlim=(-1, 1), ylim=(len(names) - 0.5, -0.5))
            ax.set_xlabel("Spearman's correlation with the change of loss")
            ax.grid(axis="x", color=RULE, linewidth=0.5, alpha=0.7)
            where = (0.02, sheet.point(0, -0.42)[1])
            sheet.figure.legend(
                loc="upper left", bbox_to_anchor=where, ncols=len(lenses), frameon=False
            )
            return sheet.figure


def ranked_rows(study: Study) -> pd.DataFrame | None:
    """Rows of lenses.csv of the stacks in which exact removal is clear enough to rank heads by; None if there are none.

    Where no ceilings were measured (after a race) the rows are taken as they are.
    """
    table = study.tables.get("lenses")
    if table is None:
        return None
    is_clear = table["ceiling"] >= LEAST_CEILING
    if "ceilings" not in study.tables:
        is_clear |= table["ceiling"].isna()
    return table[is_clear] if is_clear.any() else None


def part(study: Study) -> Part | None:
    """A row a statistic and lens, the strongest correlation first; the conclusion stands before the table."""
    table = study.tables.get("lenses")
    conclusion = conclusion_of(study)
    if table is None or conclusion is None:
        return None
    is_many = table["stack"].nunique() > 1
    has_ceilings = table["ceiling"].nunique(dropna=False) > 1
    order = table["correlation"].abs().sort_values(ascending=False, kind="stable").index
    columns: Columns = {
        **({"stack": lambda row: Cell(plain(row["stack"], 20), row["stack"])} if is_many else {}),
        "statistic": lambda row: Cell(plain(row["statistic"], 30), row["statistic"]),
        "lens": lambda row: Cell(plain(row["lens"], 30), row["lens"]),
        "correlation [interval over heads]": interval_column("correlation"),
        **({"ceiling": lambda row: number_cell(ceiling_of(row))} if has_ceilings else {}),
    }
    note = (
        "Spearman's correlation over heads of each statistic, through each lens, with the exact change of loss when a "
        "head is removed; intervals over heads, which are resampled. The ceiling is what the true importances would "
        "reach among the heads of that stack, by split halves of the examples"
    )
    note += "; –: the exact changes are all noise." if has_ceilings else "."
    if "agreement" in study.tables:
        note += (
            " The table of cheap importances resamples examples instead, for these very heads; other heads of such a "
            "model are asked here, so that the same correlation has another interval."
        )
    heading = "Do lenses agree with exact removal?"
    shown = {"words": set(range(3 if is_many else 2)), "lead": f"{conclusion.sentence}."}
    source = {"file": "lenses.csv", "figures": ("agree-lens",)}
    rows = table.loc[order]
    return Part.of("lens-agreement", heading, note, columns, rows, **source, **shown)


def findings(study: Study) -> Iterator[Finding]:
    """Whether a statistic through a lens ranks heads like exact removal, or that none can be told from 0."""
    if (conclusion := conclusion_of(study)) is not None:
        yield conclusion


def conclusion_of(study: Study) -> Finding | None:
    """How many rows of lenses.csv can be told from 0, the strongest of them, and the ceiling; None without a row."""
    table = study.tables.get("lenses")
    known = None if table is None else table[table["correlation"].notna()]
    if known is None or not len(known):
        return None
    rows = known.to_dict("records")
    telling = [row for row in rows if read_estimate(row, CORRELATION).excludes(0.0)]
    return _some(study, rows, telling, known) if telling else _none(study, rows)


def _some(
    study: Study, rows: list[dict[Any, Any]], telling: list[dict[Any, Any]], known: pd.DataFrame
) -> Finding:
    best = max(telling, key=lambda row: abs(float(row["correlation"])))
    found = read_estimate(best, CORRELATION)
    same = (known["statistic"] == best["statistic"]) & (known["stack"] == best["stack"])
    raw = known[same & (known["lens"] == "raw")]["correlation"]
    is_other = len(raw) and best["lens"] != "raw"
    beside = f", through raw attention {short_number(raw.iloc[0])}" if is_other else ""
    ceiling = ceiling_of(best)
    sentence = (
        f"{len(telling)} of {len(rows)} statistics through lenses can be told from 0 (about "
        f"{BY_LUCK * len(rows):.0f} would be by luck); the strongest is {plain(best['statistic'], 40)} through "
        f"{plain(best['lens'], 20)}: Spearman's correlation {found.text()} with exact removal{beside}; the best of so "
        f"many is partly luck, and {_reach(study, [best])}"
        f"{'' if ceiling >= LEAST_CEILING else '; ' + _more(study, [ceiling])}"
    )
    is_clear = ceiling >= LEAST_CEILING
    strength = found.strength(0.0)
    return Finding("", sentence, (), kind="lenses", is_clear=is_clear, strength=strength)


def _none(study: Study, rows: list[dict[Any, Any]]) -> Finding:
    ceilings = [ceiling_of(row) for row in rows]
    is_ranked = all(ceiling >= LEAST_CEILING for ceiling in ceilings)
    more = "" if is_ranked else f"; {_more(study, ceilings)}"
    sentence = f"No statistic through any lens can be told from 0 ({len(rows)} rows); {_reach(study, rows)}{more}"
    is_clear = not all(map(math.isnan, ceilings))
    return Finding("", sentence, (), kind="lenses", is_clear=is_clear)


def _more(study: Study, ceilings: list[float]) -> str:
    """How many examples would do for the lowest of these ceilings."""
    count = entry_of(study.record, "importance", "examples")
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
    count = entry_of(study.record, "importance", "examples")
    on = f"with {count} examples " if isinstance(count, int) else ""
    return f"{on}{even}the true importances would reach {only}{reached}"


SECTION = Section(figures={64: LensAgreement}, parts={180: part}, findings={130: findings})
