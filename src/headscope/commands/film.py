"""headscope film: heads at every checkpoint of a training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from headscope.commands._from_config import command
from headscope.commands._options import argument, note_few_texts, print_page_path, showing_progress
from headscope.config.film import FilmConfig
from headscope.config.shared import Run
from headscope.config.texts import TextData

Trained = Annotated[
    Path, argument("DIR", "Model that pretrain or finetune trained with --checkpoints N")
]


@command()
def film(trained: Trained, data: TextData, config: FilmConfig, run: Run) -> None:
    """Statistics and roles of every head at each checkpoint of a training: tables by step, figures, a page."""
    import headscope

    with showing_progress(f"{trained}", run) as run:
        study = headscope.film(trained, data, config, run=run)
    note_few_texts(study)
    print_page_path(run)
