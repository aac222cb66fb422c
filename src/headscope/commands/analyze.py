"""headscope analyze: statistics and roles of every head over a corpus."""

from __future__ import annotations

from headscope.commands._from_config import command
from headscope.commands._options import (
    AsJson,
    Model,
    note_few_texts,
    print_json,
    print_page_path,
    say,
    showing_progress,
)
from headscope.config.analyze import AnalyzeConfig
from headscope.config.shared import Reading, Run
from headscope.config.texts import TextData


@command()
def analyze(
    model: Model,
    data: TextData,
    config: AnalyzeConfig,
    reading: Reading,
    run: Run,
    as_json: AsJson = False,
) -> None:
    """Measure what every head attends to over a corpus: statistics with intervals, roles, figures, a page."""
    import headscope

    with showing_progress(model, run) as run:
        study = headscope.analyze(model, data, config, reading=reading, run=run)
    counts = study.record["data"] or {}
    say(
        f"{counts['used']} of {counts['read']} texts used, {counts['truncated']} truncated, "
        f"{sum(counts['skipped'].values())} skipped"
    )
    note_few_texts(study)
    if as_json:
        print_json(study.record)
    else:
        print_page_path(run)
