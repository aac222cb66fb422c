"""headscope ablate-edges: the effect of every head's attention, measured by removing parts of it."""

from __future__ import annotations

from headscope.commands._from_config import command
from headscope.commands._options import (
    AsJson,
    Model,
    note_few_texts,
    print_json,
    print_page_path,
    showing_progress,
)
from headscope.config.ablate_edges import AblateEdgesConfig
from headscope.config.shared import Reading, Run
from headscope.config.texts import TextData


@command()
def ablate_edges(
    model: Model,
    data: TextData,
    config: AblateEdgesConfig,
    reading: Reading,
    run: Run,
    as_json: AsJson = False,
) -> None:
    """Zero the values of tokens, or remove attention to a class of tokens, head by head; measure how states change."""
    import headscope

    with showing_progress(model, run) as run:
        study = headscope.ablate_edges(model, data, config, reading=reading, run=run)
    note_few_texts(study)
    if as_json:
        print_json(study.record)
    else:
        print_page_path(run)
