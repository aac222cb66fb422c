"""Options as fields of configs: which of them the run record holds."""

from __future__ import annotations

from dataclasses import dataclass

from headscope.config.option import Config, option, record_options
from headscope.config.shared import Run


@dataclass(frozen=True)
class Counted(Config):
    """A config of no command."""

    count: int = option(3, "Number of things", at_least=1)
    colour: bool = option(False, "Print in colour", recorded=False)


def test_an_option_that_only_changes_what_is_printed_is_not_recorded() -> None:
    assert record_options(Counted(colour=True)) == {"count": 3}


def test_where_a_result_is_written_is_not_recorded() -> None:
    assert not {"out", "resume", "overwrite"} & set(record_options(Run(out="new")))
