"""The typer application that commands register with."""

from __future__ import annotations

import typer


def examples(*lines: str) -> str:
    """The examples at the end of a command's help."""
    return "\n\n".join(["[bold]Examples[/bold]", *lines])


app = typer.Typer(
    name="headscope",
    help="Measure what each attention head of a transformer does, which heads a task needs, and prune the rest.",
    epilog="Start with: headscope demo. Options marked <bool> are flags: they take no value. "
    "Exit status: 0 done, 1 could not finish, 2 wrong usage or input.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
