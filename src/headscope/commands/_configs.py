"""The configs of every command, made from the values of its options."""

from __future__ import annotations

from typing import Any

from headscope.commands._options import say, typed_command
from headscope.config.option import (
    Config,
    check_required,
    check_together,
    is_left_out,
    options_of,
)
from headscope.config.shared import Run

CONFIGS: dict[str, dict[str, type[Config]]] = {}  # by command: its configs by parameter name


def make_configs(command: str, values: dict[str, Any]) -> dict[str, Config | None]:
    """The checked configs of a command from the values of its options."""
    made: dict[str, Config | None] = {}
    main = main_config(command)
    assert main is not None
    values = main.complete(values)
    for parameter, config in CONFIGS[command].items():
        used = {name: values[name] for name in fields_used(config, main) if name in values}
        # An option that may be repeated is an empty list if it was not given.
        own = {name: value for name, value in used.items() if value is not None and value != []}
        own |= {"log": say, "typed": typed_command()} if config is Run else {}
        if is_left_out(main, config, own):
            made[parameter] = None
            continue
        check_required(command, config, own)
        made[parameter] = config(**own)
    own_config = next(config for config in made.values() if isinstance(config, main))
    check_together(own_config, *(config for config in made.values() if config is not own_config))
    return made


def main_config(command: str) -> type[Config] | None:
    """The command's own config; None for commands without one."""
    configs = CONFIGS.get(command, {}).values()
    return next((config for config in configs if config.command), None)


def fields_used(config: type[Config], main: type[Config]) -> tuple[str, ...]:
    """The fields of a config that are options of the command."""
    if config is not main:
        return main.uses.get(config, ())
    return tuple(name for name in options_of(config) if name not in main.python_only)
