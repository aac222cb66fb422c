"""headscope importance: which heads a task needs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headscope.commands._from_config import command
from headscope.commands._options import (
    AsJson,
    Model,
    print_json,
    print_page_path,
    say,
    showing_progress,
)
from headscope.config.importance import ImportanceConfig
from headscope.config.shared import Reading, Run, TaskData

if TYPE_CHECKING:
    from headscope.study.study import Study


@command()
def importance(
    model: Model,
    data: TaskData,
    config: ImportanceConfig,
    reading: Reading,
    run: Run,
    as_json: AsJson = False,
) -> None:
    """Measure which heads a task needs: exact ablation of every head, and faster estimates."""
    import headscope

    with showing_progress(model, run) as run:
        study = headscope.importance(model, data, config, reading=reading, run=run)
    if as_json:
        print_json(study.record)
        return
    for line in _summary(study):
        say(line)
    print_page_path(run)


def _summary(study: Study) -> Iterator[str]:
    """The metric of the unpruned model, the number of significant heads, and whether the examples are enough."""
    from headscope.ablation.ablation_results import LOSS
    from headscope.ablation.significance import ALPHA
    from headscope.report.run_facts import ENOUGH_TEXTS
    from headscope.report.sections.agreement import noisy_ranks

    record = study.record["importance"]
    count, intact = record["examples"], record["intact"][record["metric"]]["value"]
    yield f"{count} examples, {record['metric']} {intact:.4f} with all heads"
    table = study.tables.get("significance")
    if table is not None:
        rows = table[table["statistic"] == LOSS]
        many = int(rows["is_significant"].eq(True).sum())
        yield f"{many} of {len(rows)} heads change the loss significantly when ablated alone (p (Holm) below {ALPHA:g})"
    if count < ENOUGH_TEXTS:
        yield f"note: {count} examples are few: only large changes can be significant. Take {ENOUGH_TEXTS} or more"
    for finding in noisy_ranks(study):
        yield f"note: {finding.sentence}"
