"""What lenses, gates, fixed patterns, masks and probes say: findings of the other commands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headscope.analysis.separators import verdicts
from headscope.report.finding import (
    Finding,
    change_of,
    excludes,
    finite,
    read_measured,
    said_of_change,
    short_number,
    strength_of,
)
from headscope.report.lens_conclusion import conclusion_of
from headscope.report.study_access import recorded
from headscope.report.text import plain

if TYPE_CHECKING:
    from headscope.study.study import Study


def separators(study: Study) -> Iterator[Finding]:
    """Whether attention to separators, or to another sink, is a no-op."""
    table = study.tables.get("gradients")
    for verdict in [] if table is None else verdicts(table):
        sentence = plain(f"{verdict.sentence} {verdict.numbers}".strip(), 900).rstrip(".")
        yield Finding("", sentence, (), kind="separators", is_clear=verdict.holds is not None)


def lenses(study: Study) -> Iterator[Finding]:
    """Whether a statistic through a lens ranks heads like exact removal, or that none can be told from 0."""
    if (told := conclusion_of(study)) is not None:
        yield Finding(
            "", told.sentence, (), kind="lenses", is_clear=told.is_clear, strength=told.strength
        )


def gates(study: Study) -> Iterator[Finding]:
    """What the fewest heads that learned gates keep are worth."""
    table = study.tables.get("front")
    if table is None or recorded(study.record, "pruning", "search") != "gates" or not len(table):
        return
    row = table.nlargest(1, "removed").to_dict("records")[0]
    metric = plain(recorded(study.record, "pruning", "metric") or "the metric", 30)
    change = change_of(row)
    sentence = (
        f"Learned gates keep {int(row['left'])} of {int(row['left']) + int(row['removed'])} heads: {metric} is "
        f"{row['metric']:.4f}, {said_of_change(row, recorded(study.record, 'pruning', 'reported_on', 'examples'))}"
    )
    yield Finding(
        "",
        sentence,
        (),
        kind="learned",
        strength=strength_of(change.value, change.low, change.high, 0.0),
    )


def fixed(study: Study) -> Iterator[Finding]:
    """What the model loses whose heads attend by fixed patterns: that which was saved, or the one with most."""
    table = study.tables.get("fixing")
    rows = [] if table is None else table[table["kind"] == "least"].to_dict("records")
    if not rows:
        return
    row = next(
        (one for one in rows if one["is_chosen"]), max(rows, key=lambda one: int(one["fixed"]))
    )
    metric = plain(recorded(study.record, "fixing", "metric") or "the metric", 30)
    change = change_of(row)
    sentence = (
        f"{int(row['fixed'])} of {int(row['fixed']) + int(row['learned'])} heads attend by fixed patterns: {metric} is "
        f"{row['metric']:.4f}, {said_of_change(row, recorded(study.record, 'fixing', 'reported_on', 'examples'))}"
    )
    yield Finding(
        "",
        sentence,
        (),
        kind="learned",
        strength=strength_of(change.value, change.low, change.high, 0.0),
    )


def masks(study: Study) -> Iterator[Finding]:
    """The sparsest mask that was learned, and the cheapest by name."""
    table = study.tables.get("learned_masks")
    if table is not None and len(table):
        row = (table.nlargest(1, "sparsity") if "sparsity" in table else table).to_dict("records")[
            0
        ]
        share = (
            f" forbids {finite(row['sparsity']):.0%} of attention:" if "sparsity" in row else ":"
        )
        metric = plain(recorded(study.record, "learned_masks", "metric") or "the metric", 30)
        sentence = (
            f"The learned mask {plain(row['aim'], 40)}{share} {metric} is {row['metric']:.4f}, "
        )
        count = recorded(study.record, "learned_masks", "reported_on", "examples")
        yield Finding("", sentence + said_of_change(row, count), (), kind="learned")
    table = study.tables.get("mask_table")
    known = (
        None
        if table is None
        else table[(table["mask"] != "dense") & table["metric_change"].notna()]
    )
    if known is not None and len(known):
        row = known.nlargest(1, "metric_change").to_dict("records")[0]
        metric = plain(recorded(study.record, "mask_table", "metric") or "the metric", 30)
        sentence = (
            f"Of {known['mask'].nunique()} masks, {plain(row['mask'], 60)} costs least ({plain(row['mode'], 20)}; it "
            f"forbids {finite(row['sparsity']):.0%} of attention): {metric} is {row['metric']:.4f}, "
            f"{said_of_change(row)}; it was picked on the examples that this is measured on"
        )
        yield Finding("", sentence, (), kind="learned")


def probes(study: Study) -> Iterator[Finding]:
    """What a parser reads off attention alone, beside the one that sees random attention."""
    table = study.tables.get("probes")
    rows = {} if table is None else {str(row["probe"]): row for row in table.to_dict("records")}
    if not {"attention-only", "random-attention"} <= set(rows):
        return
    found, random = (
        read_measured(rows[name], ("uas", "low", "high"))
        for name in ("attention-only", "random-attention")
    )
    rival = max(
        finite(row["uas"]) for name, row in rows.items() if not name.startswith("attention")
    )
    sentence = (
        f"A parser from attention alone finds {found.text()} of the governors; with words and random attention "
        f"{random.text()}, the best without this model's attention {short_number(rival)}"
    )
    strength = strength_of(found.value, found.low, found.high, rival)
    yield Finding(
        "", sentence, (), kind="relations", is_clear=excludes(found, rival), strength=strength
    )
