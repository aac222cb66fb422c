"""headscope knock-out: the effect of every head's attention, measured by removing parts of it."""

from __future__ import annotations

from headscope.commands._from_config import command
from headscope.commands._options import Model, note_few_texts, print_page_path, showing_progress
from headscope.config.knock_out import KnockOutConfig
from headscope.config.shared import Reading, Run
from headscope.config.texts import TextData


@command()
def knock_out(
    model: Model, data: TextData, config: KnockOutConfig, reading: Reading, run: Run
) -> None:
    """Remove values and edges of attention, head by head, and measure how far the states of tokens turn."""
    import headscope

    with showing_progress(model, run) as run:
        study = headscope.knock_out(model, data, config, reading=reading, run=run)
    note_few_texts(study)
    print_page_path(run)
