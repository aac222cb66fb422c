"""headscope analyze: statistics and roles of every head over a corpus."""

from __future__ import annotations

from dataclasses import replace

import typer

from headscope.commands._from_config import command
from headscope.commands._options import Model, note_few_texts, say
from headscope.config.analyze import AnalyzeConfig
from headscope.config.shared import Reading, Run
from headscope.config.texts import TextData
from headscope.progress import progress


@command()
def analyze(
    model: Model, data: TextData, config: AnalyzeConfig, reading: Reading, run: Run
) -> None:
    """Statistics and roles of every head over a corpus: tables with intervals, figures, a page."""
    import headscope

    assert run.out is not None
    with progress(model) as update:
        study = headscope.analyze(
            model, data, config, reading=reading, run=replace(run, progress=update)
        )
    counts = study.record["data"] or {}
    say(
        f"{counts['used']} of {counts['read']} texts used, {counts['truncated']} truncated, "
        f"{sum(counts['skipped'].values())} skipped"
    )
    note_few_texts(study)
    typer.echo(run.out / "index.html")
