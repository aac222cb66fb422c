"""headscope compare: the heads of two or more models side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from headscope.commands._from_config import command
from headscope.commands._options import (
    AsJson,
    argument,
    print_json,
    print_page_path,
    say,
    showing_progress,
)
from headscope.config.compare import CompareConfig
from headscope.config.shared import Run
from headscope.config.texts import TextData

Studies = Annotated[
    list[Path], argument("STUDY", "Two or more directories that headscope analyze wrote")
]


@command()
def compare(
    studies: Studies, config: CompareConfig, data: TextData, run: Run, as_json: AsJson = False
) -> None:
    """Compare the heads of two or more models: roles, matched heads, layers, changes by fine-tuning."""
    import headscope

    with showing_progress("maps", run) as run:
        comparison = headscope.compare(studies, data, config, run=run)
    for note in comparison.notes:
        say(f"note: {note}")
    if as_json:
        print_json(comparison.record)
    else:
        print_page_path(run)
