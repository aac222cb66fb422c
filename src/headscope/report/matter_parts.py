"""The parts of the page about which heads matter: removal one at a time, all but one, cheap importances."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from headscope.ablation.ablation_results import LOSS, METRIC
from headscope.ablation.significance import ALPHA
from headscope.report.finding import ceiling_of, too_noisy
from headscope.report.head_cells import (
    UNCORRECTED,
    count_cell,
    head_cell,
    named_cell,
    p_cell,
    place_of,
)
from headscope.report.study_access import recorded
from headscope.report.table_cells import (
    NONE,
    Cell,
    Part,
    decimals_for,
    is_missing,
    measured,
    number,
)
from headscope.report.text import plain
from headscope.tables import STACKS

if TYPE_CHECKING:
    import pandas as pd

    from headscope.study.study import Study

MATTER = "Which heads matter"


def significance(study: Study) -> Part | None:
    """A row a head: what its removal changes, the largest change of loss first."""
    table = study.tables.get("significance")
    if table is None or not len(table):
        return None
    records = table.to_dict("records")
    of_metric = {place_of(row): row for row in records if row["statistic"] == METRIC}
    of_loss = sorted(
        (row for row in records if row["statistic"] == LOSS), key=lambda row: _size(row["value"])
    )
    loss, metric = (
        decimals_for(table[table["statistic"] == name]["value"]) for name in (LOSS, METRIC)
    )
    rows = [
        [
            head_cell(study, place_of(row)),
            measured(row["value"], row["low"], row["high"], loss),
            *_tested(row),
            *_metric_cells(of_metric.get(place_of(row)), metric),
            count_cell(row["count"]),
            count_cell(row["settled_at"]),
        ]
        for row in of_loss
    ]
    tests = {
        name: sorted({plain(row["test"], 20) for row in records if row["statistic"] == name})
        for name in (LOSS, METRIC)
    }
    note = (
        f"Task: {_of_importance(study, 'task')}; metric: {_of_importance(study, 'metric')}. Ablated minus intact when "
        "the head is removed alone, the largest change of loss first. p is that of the head's own test "
        f"(loss: {' and '.join(tests[LOSS])}; metric: {' and '.join(tests[METRIC])}), p (Holm) is corrected for "
        f"testing all heads. A star means that p (Holm) is below {ALPHA:g}, nothing else. {UNCORRECTED} "
        "Settled: after so many examples the verdict on the loss never changed again."
    )
    columns = (
        "head",
        "change of loss",
        "p",
        "p (Holm)",
        "loss ★",
        "change of metric",
        "p, metric",
        "p (Holm), metric",
        "metric ★",
        "examples",
        "settled",
    )
    figures = ("ablation", "masking", *(() if "agreement" in study.tables else ("agreement",)))
    return Part("significance", MATTER, note, columns, rows, "significance.csv", figures)


def _metric_cells(row: dict[Any, Any] | None, decimals: int) -> tuple[Cell, ...]:
    if row is None:
        return (Cell(NONE),) * 4
    return measured(row["value"], row["low"], row["high"], decimals), *_tested(row)


def _tested(row: dict[Any, Any]) -> tuple[Cell, ...]:
    """The p-value of the test, the same after Holm's correction, and a star if that is significant."""
    is_significant = row["is_significant"] is True
    return (
        p_cell(row.get("p")),
        p_cell(row["p_adjusted"]),
        Cell("★" if is_significant else "", float(is_significant)),
    )


def all_but_one(study: Study) -> Part | None:
    table = study.tables.get("all_but_one")
    if table is None or not len(table):
        return None
    loss, metric = decimals_for(table["loss"]), decimals_for(table["metric"])
    rows = [
        [
            Cell(plain(row["site"], 30), place),
            named_cell(study, row["left"]),
            measured(row["loss"], row["loss_low"], row["loss_high"], loss),
            measured(row["metric"], row["metric_low"], row["metric_high"], metric),
            p_cell(row.get("p")),
            p_cell(row["p_adjusted"]),
            named_cell(study, row["same_data_left"]),
            number(row["same_data_metric"], decimals=metric),
            count_cell(row["count"]),
        ]
        for place, row in enumerate(by_site(table).to_dict("records"))
    ]
    note = (
        "All heads of a layer but one are removed. The head that is left was chosen by loss on one half of the "
        f"examples; its changes of loss and of {_of_importance(study, 'metric')} are those on the other half. p is "
        f"that of the metric, p (Holm) is corrected for the number of layers. {UNCORRECTED} Michel's tables choose and "
        "report on the same examples: that is in the columns named for it, and part of it is luck."
    )
    columns = (
        "layer",
        "left",
        "change of loss",
        "change of metric",
        "p",
        "p (Holm)",
        "left, same data",
        "metric, same data",
        "examples",
    )
    return Part(
        "all-but-one",
        f"{MATTER}: all but one",
        note,
        columns,
        rows,
        "all_but_one.csv",
        ("all-but-one",),
        frozenset({0}),
    )


def by_site(table: pd.DataFrame) -> pd.DataFrame:
    """Rows with a `site` such as `encoder.3`, by stack and layer."""

    def order(site: str) -> tuple[int, str, int]:
        stack, _, layer = str(site).rpartition(".")
        return STACKS.index(stack) if stack in STACKS else len(STACKS), stack, int(layer)

    return table.sort_values("site", key=lambda sites: sites.map(order), kind="stable")


def agreement(study: Study) -> Part | None:
    table = study.tables.get("agreement")
    if table is None or not len(table):
        return None
    rows = [
        [
            Cell(plain(row["importance"], 30), plain(row["importance"], 30)),
            measured(row["correlation"], row["low"], row["high"]),
            number(ceiling_of(row)),
            Cell(f"{int(row['overlap'])} of {int(row['bottom'])}", float(row["overlap"])),
            number(row["by_chance"], decimals=1),
            number(row["rank_spread"], decimals=1),
        ]
        for row in table.sort_values("correlation", ascending=False, kind="stable").to_dict(
            "records"
        )
    ]
    note = (
        "How each cheap importance ranks heads against exact removal: Spearman's correlation over heads, with its "
        "interval over examples, which are resampled. Noise lowers a correlation and resampling adds noise, so the "
        "interval is often too low: read it as a spread, beside the ceiling. The ceiling is what the true importances "
        "would reach, given how noisy the exact ones are; an importance of the same examples shares their "
        "noise and can lie above it; "
        "– where the changes by removal are nothing but noise. "
        "Overlap: how many of the least important heads are the same ones, and what chance would give. Rank spread: "
        "the mean width of the 95 % interval of a head's rank (– where an importance is one number a head)."
    )
    columns = (
        "importance",
        "correlation [interval over examples]",
        "ceiling",
        "overlap",
        "by chance",
        "rank spread",
    )
    noisy = too_noisy(table.to_dict("records")[0])
    lead = f"No ranking is drawn: {noisy}." if noisy else ""
    heading, words = f"{MATTER}: cheap importances", frozenset({0})
    return Part(
        "agreement", heading, note, columns, rows, "agreement.csv", ("agreement",), words, lead=lead
    )


def _size(value: Any) -> float:
    """To sort the largest first, whatever their sign, and what is missing last."""
    return math.inf if is_missing(value) else -abs(value)


def _of_importance(study: Study, key: str) -> str:
    return plain(recorded(study.record, "importance", key) or f"the {key}", 40)
