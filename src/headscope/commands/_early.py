"""Checks and messages before a command imports torch, which takes seconds: a mistake is answered at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from typer.core import TyperCommand

from headscope.commands._flags import errors_in_flags
from headscope.commands._options import say

# The first line that a command prints if its first argument is neither a model nor studies
FIRST = {
    "demo": "loading minilm …",
    "doctor": "loading torch …",
    "masks": "loading torch …",
    "masks list": "loading torch …",
    "masks show": "loading torch …",
    "pretrain": "reading {corpus} …",
}
VERBS = {"model": "loading", "source": "reading", "studies": "reading"}


class EarlyChecked(TyperCommand):
    """A command whose options are checked before it runs."""

    def make_context(self, *words: Any, **extra: Any) -> Any:
        with errors_in_flags():
            return super().make_context(*words, **extra)

    def invoke(self, ctx: Any) -> Any:
        with errors_in_flags():
            return self._check_and_run(ctx)

    def _check_and_run(self, ctx: Any) -> Any:
        name = ctx.command_path.partition(" ")[2]
        typed = {o for o in ctx.params if ctx.get_parameter_source(o).name == "COMMANDLINE"}
        check_early(name, ctx.params, typed)
        say_first(name, ctx.params)
        try:
            return super().invoke(ctx)
        except (KeyboardInterrupt, SystemExit):  # Ctrl-C, SIGTERM
            say_resume(name, ctx.params)
            raise


def check_early(command: str, values: Mapping[str, Any], typed: set[str]) -> None:
    """Refuse all mistakes that can be found without loading a model. typed: the options in the command line."""
    from headscope.api.check_paths import check_files, check_out  # not imported for --help
    from headscope.commands._configs import main_config, make_configs
    from headscope.commands._early_values import check_command, check_fit, check_models
    from headscope.config.requirements import check_effects

    main = main_config(command)
    if main is not None:
        make_configs(command, dict(values))
    check_command(command, values)
    check_effects(command, values, typed)
    if main is not None:
        check_files(main, values)
        check_out(main, values)
    check_models(command, values)
    check_fit(values)


def say_first(command: str, values: Mapping[str, Any]) -> None:
    """Print one line on stderr: the model or files that are being read."""
    line = FIRST.get(command, "")
    if command == "analyze" and values["checkpoints"]:
        line = "reading the checkpoints of {model} …"
    if not line and not command.startswith("models"):  # `models` answers at once, without torch
        line = next(
            (f"{verb} {{{name}}} …" for name, verb in VERBS.items() if values.get(name)), ""
        )
    if line:
        say(line.format(**{name: _joined(value) for name, value in values.items()}))


def say_resume(command: str, values: Mapping[str, Any]) -> None:
    """Print how to resume a run that was stopped, if finished work is kept."""
    from headscope.api.check_paths import find_partial
    from headscope.commands._configs import main_config

    main = main_config(command)
    if main is not None and (partial := find_partial(main, values)) is not None:
        say(f"finished work is kept in {partial}; the same command with --resume continues")


def _joined(value: Any) -> str:
    return " and ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
