"""Which heads does a study show to cost next to nothing?

That a rise of the loss was not shown says little: with few examples it is shown of no head. A head is cheap where the
study shows that it costs at most a small margin: the whole interval of its change of loss lies below it.
"""

from __future__ import annotations

import math

from headscope.ablation.ablation_results import LOSS
from headscope.heads import Head
from headscope.report.study_access import recorded
from headscope.report.text import plain
from headscope.study.study import Study

SHARE = 0.01  # of the intact model's loss
NATS = 0.01  # where the study does not say what that is


def cheap_heads(study: Study, there: set[Head]) -> tuple[str, str, set[Head]] | None:
    """What these heads are, why, and which; None where the study shows it of none.

    there  the heads that the model has. Of each layer at least one stays: that all of them together are cheap is
    nowhere shown, and what a layer reads goes with its last head.
    """
    table = study.tables.get("significance")
    if table is None:
        return None
    losses = table[(table["statistic"] == LOSS) & table["high"].notna()]
    margin, of_what = _margin(study)
    rows = {Head.of_row(row): row for row in losses.to_dict("records")}
    highs = {head: float(row["high"]) for head, row in rows.items()}
    chosen = {head for head, high in highs.items() if high < margin and head in there}
    chosen -= _last_ones(chosen, highs, there)
    if not chosen:
        return None
    counts = sorted(int(rows[head]["count"]) for head in chosen)
    few, many = counts[0], counts[-1]
    examples = f"{few:,}" if few == many else f"{few:,} to {many:,}"
    task = recorded(study.record, "importance", "task")
    why = (
        f"without any one of them the loss{'' if task is None else f' of {plain(task, 40)}'} rises by less than "
        f"{margin:.2g}{of_what}: so says the upper end of the 95 % interval, on {examples} examples. Together they may "
        "cost more; one head of each layer is left on"
    )
    return f"that cost less than {margin:.2g} each (of {examples} examples)", why, chosen


def _margin(study: Study) -> tuple[float, str]:
    """How much a head may cost, and what that is a share of."""
    loss = recorded(study.record, "importance", "intact", "loss", "value")
    if isinstance(loss, int | float) and math.isfinite(loss) and loss != 0:
        return SHARE * abs(loss), f" ({100 * SHARE:g} % of {abs(loss):.3g})"
    return NATS, ""


def _last_ones(chosen: set[Head], highs: dict[Head, float], there: set[Head]) -> set[Head]:
    """Of each layer that would lose all its heads, the one that may cost most."""
    kept = set()
    for site in {head.site for head in chosen}:
        of_site = sorted(head for head in there if head.site == site)
        if chosen.issuperset(of_site):
            kept.add(max(of_site, key=lambda head: highs[head]))
    return kept
