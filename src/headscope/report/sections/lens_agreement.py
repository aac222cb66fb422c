"""Correlation of statistics through lenses with exact ablation, and one conclusion."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from headscope.ablation.agreement import LEAST_CEILING
from headscope.report.drawing.palette import MUTED, RULE, SERIES
from headscope.report.drawing.sheet import open_sheet
from headscope.report.drawing.study_figure import StudyFigure
from headscope.report.finding import (
    Finding,
    advise_examples,
    ceiling_of,
    read_estimate,
    short_number,
)
from headscope.report.section import Section, needs_table
from headscope.report.study_access import entry_of, model_name, records_of
from headscope.report.table_cells import (
    Columns,
    Part,
    interval_column,
    is_missing,
    number_cell,
    text_column,
)
from headscope.report.text import plain

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from headscope.study.study import Study

BY_LUCK = 0.05  # of 95 % intervals leave 0 where there is nothing
CORRELATION = ("correlation", "low", "high")
WIDTH, LEFT, RIGHT, BOTTOM, ROW = 6.6, 2.0, 0.2, 0.5, 0.3


class LensAgreement(StudyFigure):
    """A row for each stack and statistic, a dot for each lens."""

    name = "agree-lenses"
    table = "lenses"
    title = "Statistics through each lens, compared with ablation"
    caption = (
        "Spearman's correlation over heads with the change of loss when a head is ablated; bars are 95 % bootstrap "
        "intervals over heads. Dashed lines are the noise ceilings of the stacks: the correlation that the true "
        "importance scores would reach, given the noise of the ablation. Stacks with a noise ceiling below "
        f"{LEAST_CEILING:g} are left out."
    )

    def applies(self, study: Study) -> bool:
        return bool(_precise_rows(study))

    def draw(self, study: Study) -> Figure:
        rows = _precise_rows(study)
        names = list(dict.fromkeys((row["stack"], row["statistic"]) for row in rows))
        lenses = list(dict.fromkeys(row["lens"] for row in rows))
        body = ROW * len(names)
        with open_sheet(self.title, model_name(study), WIDTH, body + BOTTOM, 0.45) as sheet:
            ax = sheet.add_axes(LEFT, 0, WIDTH - LEFT - RIGHT, body)
            for i, lens in enumerate(lenses):
                of_lens = [row for row in rows if row["lens"] == lens]
                shift, colour = 0.12 * (i - (len(lenses) - 1) / 2), SERIES[i % len(SERIES)]
                y = [names.index((row["stack"], row["statistic"])) + shift for row in of_lens]
                x, low, high = ([row[name] for row in of_lens] for name in CORRELATION)
                ax.hlines(y, low, high, color=colour, linewidth=1.0, alpha=0.6)
                ax.plot(x, y, "o", color=colour, markersize=4, label=lens)
            line: dict[str, Any] = {"color": SERIES[1], "linewidth": 1.2, "linestyle": (0, (4, 2))}
            for stack, ceiling in {row["stack"]: row["ceiling"] for row in rows}.items():
                of_stack = [i for i, name in enumerate(names) if name[0] == stack]
                for end in (-ceiling, ceiling) if np.isfinite(ceiling) else ():
                    ax.vlines(end, of_stack[0] - 0.5, of_stack[-1] + 0.5, **line)
            ax.axvline(0.0, color=MUTED, linewidth=0.8)
            several = len({stack for stack, _ in names}) > 1
            labels = [f"{stack} {name}" if several else name for stack, name in names]
            ax.set_yticks(range(len(names)), labels)
            ax.set(xlim=(-1, 1), ylim=(len(names) - 0.5, -0.5))
            ax.set_xlabel("Spearman's correlation with the change of loss")
            ax.grid(axis="x", color=RULE, linewidth=0.5, alpha=0.7)
            anchor = (0.02, sheet.point(0, -0.42)[1])
            options: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": anchor}
            sheet.figure.legend(ncols=len(lenses), frameon=False, **options)
            return sheet.figure


def _precise_rows(study: Study) -> list[dict[Any, Any]]:
    """Rows of lenses.csv for the stacks in which exact removal is precise enough to rank heads.

    If no ceilings were measured (after a sequential test), rows without a ceiling are included.
    """
    no_ceilings = "ceilings" not in study.tables
    return [
        row
        for row in records_of(study, "lenses")
        if row["ceiling"] >= LEAST_CEILING or (no_ceilings and math.isnan(row["ceiling"]))
    ]


@needs_table("lenses")
def part(study: Study, table: pd.DataFrame) -> Part | None:
    """A row for each statistic and lens, the strongest correlation first; the conclusion precedes the table."""
    conclusion = conclusion_of(study)
    if conclusion is None:
        return None
    is_many = table["stack"].nunique() > 1
    has_ceilings = table["ceiling"].nunique(dropna=False) > 1
    order = table["correlation"].abs().sort_values(ascending=False, kind="stable").index
    stacks: Columns = {"stack": text_column("stack", 20)}
    ceilings: Columns = {"ceiling": lambda row: number_cell(ceiling_of(row))}
    columns: Columns = {
        **(stacks if is_many else {}),
        "statistic": text_column("statistic", 30),
        "lens": text_column("lens", 30),
        "correlation [interval over heads]": interval_column("correlation"),
        **(ceilings if has_ceilings else {}),
    }
    note = (
        "Spearman's correlation over heads of each statistic, through each lens, with the change of loss when a "
        "head is ablated, with bootstrap intervals over heads. The noise ceiling is the correlation that the true "
        "importance scores would reach among the heads of that stack, estimated from halves of the examples"
    )
    note += "; –: the ablation is only noise." if has_ceilings else "."
    if "agreement" in study.tables:
        note += (
            " The table of importance scores resamples examples instead of heads, so its interval for the same "
            "correlation is different."
        )
    heading = "Do lenses agree with ablation?"
    shown = {"words": set(range(3 if is_many else 2)), "lead": str(conclusion)}
    source = {"file": "lenses.csv", "figures": ("agree-lens",)}
    rows = table.loc[order]
    return Part.of("lens-agreement", heading, note, columns, rows, **source, **shown)


def findings(study: Study) -> Iterator[Finding]:
    """Whether a statistic through a lens ranks heads like exact ablation."""
    if (conclusion := conclusion_of(study)) is not None:
        yield conclusion


def conclusion_of(study: Study) -> Finding | None:
    """The number of rows of lenses.csv that differ from 0, the strongest, and the ceiling; None without rows."""
    rows = [row for row in records_of(study, "lenses") if not is_missing(row["correlation"])]
    if not rows:
        return None
    clear = [row for row in rows if read_estimate(row, CORRELATION).excludes(0.0)]
    if not clear:
        sentence = "No statistic through any lens correlates significantly with ablation"
        after = f"correlations tested: {len(rows)}; {_reach(study, rows)}"
        is_clear = not all(math.isnan(ceiling_of(row)) for row in rows)
        return Finding(
            "", sentence, (), kind="lenses", is_clear=is_clear, is_null=True, after=after
        )
    best = max(clear, key=lambda row: abs(float(row["correlation"])))
    estimate = read_estimate(best, CORRELATION)
    same = {name: best[name] for name in ("stack", "statistic")} | {"lens": "raw"}
    raw = next((row for row in rows if same.items() <= row.items()), best)
    in_raw = "" if raw is best else f", in raw attention {short_number(raw['correlation'])}"
    verb = "correlates" if len(clear) == 1 else "correlate"
    sentence = (
        f"{len(clear)} of {len(rows)} statistics through lenses {verb} significantly with ablation"
    )
    after = (
        f"about {BY_LUCK * len(rows):.0f} are expected to by chance; the largest correlation (Spearman's) is that of "
        f"{plain(best['statistic'], 40)} through {plain(best['lens'], 20)}: {estimate.text()}{in_raw}; the largest of "
        f"several is partly chance; {_reach(study, [best])}"
    )
    is_clear = ceiling_of(best) >= LEAST_CEILING
    strength = estimate.strength(0.0)
    return Finding(
        "", sentence, (), kind="lenses", is_clear=is_clear, strength=strength, after=after
    )


def _reach(study: Study, rows: list[dict[Any, Any]]) -> str:
    """The noise ceiling of these rows, and if it is low, the number of examples that would raise it."""
    count = entry_of(study.record, "importance", "examples")
    ceilings = [ceiling_of(row) for row in rows]
    finite = [ceiling for ceiling in ceilings if not math.isnan(ceiling)]
    least = min(finite, default=math.nan)
    is_low = not all(ceiling >= LEAST_CEILING for ceiling in ceilings)
    advice = f"; {advise_examples(least, count)}" if is_low else ""
    if not finite:
        return f"the changes by ablation are only noise{advice}"
    low, high = (short_number(end, 2) for end in (least, max(finite)))
    reach = low if low == high else f"{low} to {high}, by stack"
    data = f" with {count} examples" if isinstance(count, int) else ""
    return f"noise ceiling{data}: {reach}{advice}"


SECTION = Section(figures={64: LensAgreement}, parts={180: part}, findings={130: findings})
