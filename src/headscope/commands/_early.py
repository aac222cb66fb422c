"""What is checked and said before a command imports torch, so that a typing mistake is answered at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from typer.core import TyperCommand

from headscope.commands._flags import errors_in_flags
from headscope.commands._options import say

# First lines of commands whose first argument is neither a model nor studies; what they need takes seconds to import.
FIRST = {
    "demo": "loading minilm …",
    "doctor": "loading torch …",
    "film": "reading the checkpoints of {trained} …",
    "masks": "loading torch …",
    "masks show": "loading torch …",
    "pretrain": "reading {corpus} …",
}
VERBS = {"model": "loading", "studies": "reading"}


class EarlyChecked(TyperCommand):
    """A command whose options are checked before it runs."""

    def make_context(self, *words: Any, **extra: Any) -> Any:
        with errors_in_flags():
            return super().make_context(*words, **extra)

    def invoke(self, ctx: Any) -> Any:
        with errors_in_flags():
            return self._checked(ctx)

    def _checked(self, ctx: Any) -> Any:
        name = ctx.command_path.partition(" ")[2]
        given = {one for one in ctx.params if ctx.get_parameter_source(one).name == "COMMANDLINE"}
        check_early(name, ctx.params, given)
        say_first(name, ctx.params)
        try:
            return super().invoke(ctx)
        except (KeyboardInterrupt, SystemExit):  # Ctrl-C, SIGTERM
            say_resume(name, ctx.params)
            raise


def check_early(command: str, values: Mapping[str, Any], given: set[str]) -> None:
    """Refuse whatever needs no model to be seen as wrong."""
    from headscope.api.check_paths import check_files, check_out  # not imported for --help
    from headscope.commands._configs import CONFIGS, make_configs
    from headscope.commands._early_values import check_command, check_fit, check_models
    from headscope.config.requirements import check_effects

    if command in CONFIGS:
        make_configs(command, dict(values))
    check_command(command, values)
    check_effects(command, values, given)
    check_files(command, values)
    check_out(command, values)
    check_models(command, values)
    check_fit(values)


def say_first(command: str, values: Mapping[str, Any]) -> None:
    """One line on stderr: what is being loaded or read."""
    line = FIRST.get(command, "")
    if not line and not command.startswith("models"):  # which need no torch
        line = next((f"{verb} {{{name}}} …" for name, verb in VERBS.items() if name in values), "")
    if line:
        say(line.format(**{name: _named(value) for name, value in values.items()}))


def say_resume(command: str, values: Mapping[str, Any]) -> None:
    """After a run that was stopped: what is kept of it, if anything, and how to go on."""
    from headscope.api.check_paths import kept_of

    if (partial := kept_of(command, values)) is not None:
        say(f"finished work is kept in {partial}; the same command with --resume continues")


def _named(value: Any) -> str:
    return " and ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
