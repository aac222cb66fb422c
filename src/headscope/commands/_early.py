"""What is checked and said before a command imports torch, so that a typing mistake is answered at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from typer.core import TyperCommand

from headscope.commands._flags import errors_in_flags
from headscope.commands._options import say

# What a command says first: what it needs takes seconds to import. Commands that are not here need no torch.
FIRST = {
    "analyze": "loading {model} …",
    "compare": "reading {studies} …",
    "demo": "loading minilm …",
    "doctor": "loading torch …",
    "evaluate": "loading {model} …",
    "film": "reading the checkpoints of {trained} …",
    "finetune": "loading {model} …",
    "fix": "loading {model} …",
    "fronts": "reading {studies} …",
    "gate": "loading {model} …",
    "importance": "loading {model} …",
    "knock-out": "loading {model} …",
    "learn-mask": "loading {model} …",
    "look": "loading {model} …",
    "masks": "loading torch …",
    "masks show": "loading torch …",
    "masks compare": "loading {model} …",
    "pretrain": "reading {corpus} …",
    "probe": "loading {model} …",
    "prune": "loading {model} …",
    "report": "reading {studies} …",
    "serve": "loading {model} …",
    "speed": "loading {model} …",
}


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
    from headscope.commands._configs import CONFIGS, make_configs
    from headscope.commands._early_files import check_files, check_out  # not imported for --help
    from headscope.commands._early_model import check_fit
    from headscope.commands._early_values import check_models, check_values
    from headscope.config.requirements import check_effects

    if command in CONFIGS:
        make_configs(command, dict(values))
    else:
        check_values(command, values)
    check_effects(command, values, given)
    check_files(command, values)
    check_out(command, values)
    check_models(command, values)
    check_fit(values)


def say_first(command: str, values: Mapping[str, Any]) -> None:
    """One line on stderr: what is being loaded or read."""
    if command in FIRST:
        say(FIRST[command].format(**{name: _named(value) for name, value in values.items()}))


def say_resume(command: str, values: Mapping[str, Any]) -> None:
    """After a run that was stopped: what is kept of it, if anything, and how to go on."""
    from headscope.commands._early_files import kept_of

    if (partial := kept_of(command, values)) is not None:
        say(f"finished work is kept in {partial}; the same command with --resume continues")


def _named(value: Any) -> str:
    return " and ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
