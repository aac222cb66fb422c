"""The heads whose ablation a study shows to cost next to nothing.

A head is cheap if the whole interval of its change of loss lies below a small margin. A change that is not significant
would not be enough: with few examples, no change is significant.
"""

from __future__ import annotations

import math

from headscope.ablation.ablation_results import LOSS
from headscope.heads import Head
from headscope.report.study_access import entry_of
from headscope.report.text import plain
from headscope.study.study import Study

SHARE = 0.01  # margin as a share of the unablated model's loss
NATS = 0.01  # margin if the study does not have the unablated model's loss


def cheap_heads(study: Study, heads: set[Head]) -> tuple[str, str, set[Head]] | None:
    """A description of the cheap heads, the reason, and the heads; None if there are none.

    heads  the heads of the model. The result leaves at least one head on in each layer, because a layer without heads
           reads nothing, and the study tested heads one at a time.
    """
    table = study.tables.get("significance")
    if table is None:
        return None
    losses = table[(table["statistic"] == LOSS) & table["high"].notna()]
    margin, of_what = _margin(study)
    rows = {Head.of_row(row): row for row in losses.to_dict("records")}
    highs = {head: float(row["high"]) for head, row in rows.items()}
    cheap = {head for head, high in highs.items() if high < margin and head in heads}
    for site in {head.site for head in cheap}:
        of_site = [head for head in sorted(heads) if head.site == site]
        if cheap.issuperset(of_site):
            cheap.discard(max(of_site, key=lambda head: highs[head]))
    if not cheap:
        return None
    counts = [int(rows[head]["count"]) for head in cheap]
    few, many = min(counts), max(counts)
    examples = f"{few:,}" if few == many else f"{few:,} to {many:,}"
    task = entry_of(study.record, "importance", "task")
    loss = "the loss" if task is None else f"the {plain(task, 40)} loss"
    why = (
        f"ablating any one of them raises {loss} by less than {margin:.2g}{of_what} "
        f"(upper end of the 95 % interval, {examples} examples). Together they may cost more. "
        "One head per layer stays on"
    )
    return f"that raise {loss} by less than {margin:.2g} each ({examples} examples)", why, cheap


def _margin(study: Study) -> tuple[float, str]:
    """The margin in nats, and a note on the loss that it is a share of."""
    loss = entry_of(study.record, "importance", "intact", "loss", "value")
    if isinstance(loss, int | float) and math.isfinite(loss) and loss != 0:
        return SHARE * abs(loss), f" ({100 * SHARE:g} % of {abs(loss):.3g})"
    return NATS, ""
