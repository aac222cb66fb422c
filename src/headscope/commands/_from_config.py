"""Commands made from configs: every option of the configs in a function's signature becomes an option of the command.

    @command()
    def gate(model: Model, data: TaskData, config: GateConfig, reading: Reading, run: Run) -> None:
        \"""Learn which heads to keep …\"""

The main config, which has a `command`, states the group, the examples and the fields of shared configs that are used.
Parameters of other types are passed to typer as they are. The function gets checked config objects. torch is not
imported before they are made.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from dataclasses import MISSING
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_origin

import typer

from headscope.commands._app import app, examples
from headscope.commands._configs import CONFIGS, fields_used, make_configs
from headscope.commands._early import EarlyChecked
from headscope.config.option import (
    Config,
    Option,
    default_of,
    kinds_of,
    members,
    options_of,
)


def command(app: typer.Typer = app) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a command whose options come from the configs in the function's signature."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        hints = typing.get_type_hints(function, include_extras=True)
        parameters = inspect.signature(function).parameters
        configs = {name: c for name in parameters if (c := _config_in(hints[name])) is not None}
        main = next(config for config in configs.values() if config.command)
        CONFIGS[main.command] = configs

        @wraps(function)
        def run(**values: Any) -> None:
            made = make_configs(main.command, values)
            rest = {name: values[name] for name in parameters if name not in configs}
            function(**rest, **made)

        signature: list[inspect.Parameter] = []
        for name, parameter in parameters.items():
            if name in configs:
                signature += _parameters(configs[name], main)
            else:
                as_keyword = parameter.replace(annotation=hints[name], kind=parameter.KEYWORD_ONLY)
                signature.append(as_keyword)
        # typer requires required options first. The sort is stable: within each group the order of fields is kept.
        signature.sort(key=lambda parameter: parameter.default is not inspect.Parameter.empty)
        run.__signature__ = inspect.Signature(signature)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in signature}
        app.command(
            main.command.rpartition(" ")[2],
            epilog=_epilog(main),
            no_args_is_help=any(p.default is inspect.Parameter.empty for p in signature),
            cls=EarlyChecked,
            rich_help_panel=main.group or None,
        )(run)
        return run

    return register


def _epilog(main: type[Config]) -> str | None:
    if not main.examples:
        return None
    return examples(*main.examples, f"In Python: {main.python}")


def _config_in(hint: Any) -> type[Config] | None:
    """The config that a parameter takes: `TaskData`, or `TaskData | None` if it is optional."""
    kinds = [kind for kind in members(hint) if isinstance(kind, type) and issubclass(kind, Config)]
    return kinds[0] if kinds else None


def _parameters(config: type[Config], main: type[Config]) -> list[inspect.Parameter]:
    declared, kinds = options_of(config), kinds_of(config)
    return [
        _parameter(name, declared[name], kinds[name], _default(name, config, main), main)
        for name in fields_used(config, main)
    ]


def _default(name: str, config: type[Config], main: type[Config]) -> Any:
    if name in main.required:
        return MISSING
    default = main.defaults.get(name, default_of(config, name))
    is_optional = config in main.optional or name in main.completed
    if default is MISSING and is_optional:
        return None
    return None if default == () else default


def _parameter(
    name: str, declared: Option, kind: Any, default: Any, main: type[Config]
) -> inspect.Parameter:
    shell = _shell_type(kind, declared)
    flags = list(declared.flags)
    if shell is bool and not flags:
        flags = [f"--{name.replace('_', '-')}"]  # without it typer adds --no-…
    many = get_origin(shell) is list
    shown: Any = declared.show_default if default in (None, MISSING, ()) else True
    if isinstance(default, tuple):
        default = ",".join(map(str, default)) if not many else list(default)
    info = typer.Option(
        *flags,
        help=main.helps.get(name, declared.help),
        metavar=declared.metavar,
        rich_help_panel=main.panels.get(name, declared.panel) or None,
        show_default=False if default is MISSING else shown,
    )
    required = default is MISSING
    value: Any = [] if many and default in (None, ()) else default
    annotation = shell if required or value is not None else shell | None
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if required else value,
        annotation=Annotated[annotation, info],
    )


def _shell_type(kind: Any, declared: Option) -> Any:
    """The type typer parses: texts for values that the config parses itself, lists for options that are repeated."""
    several = [member for member in members(kind) if get_origin(member) is list]
    if several:
        return list[str]
    if declared.parse is not None or declared.is_list:
        return str
    for plain in (bool, int, float, Path):
        if plain in members(kind) and str not in members(kind):
            return plain
    return str
