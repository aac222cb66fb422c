"""Command lines for messages, such as `headscope prune MODEL --plan plan.json --out small`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping

from headscope.config.option import Config, Option, default_of, kinds_of, options_of


def command_line(command: str, *arguments: object, **options: object) -> str:
    """The shell command with these arguments and options, each quoted where the shell needs it.

    options  by their names in Python, as values or as placeholders: True is a bare flag, None and False are left out,
             lists are joined by commas
    """
    words = (
        word for name, value in options.items() for word in _words(f"--{_dashed(name)}", value)
    )
    return shlex.join(["headscope", *command.split(), *map(str, arguments), *words])


def command_line_of(main: Config, *shared: Config, arguments: tuple[object, ...] = ()) -> str:
    """The shell command that gives these configs.

    main       the command's own config
    arguments  positional arguments, such as a model
    """
    words = option_words(main, *shared)
    return shlex.join(["headscope", *main.command.split(), *map(str, arguments), *words])


def option_words(main: Config, *shared: Config) -> list[str]:
    """The options of a command that differ from their defaults, as words of the shell."""
    words: list[str] = []
    for config in (*shared, main):
        kind = type(config)
        used = main.uses.get(kind, ()) if config is not main else tuple(options_of(kind))
        for name in used:
            value, default = getattr(config, name), main.defaults.get(name, default_of(kind, name))
            if value != default:
                words += _option_words(name, value, options_of(kind)[name], kinds_of(kind)[name])
    return words


def _option_words(name: str, value: object, declared: Option, kind: object) -> Iterator[str]:
    flag = declared.flags[0] if declared.flags else f"--{_dashed(name)}"
    if "/" in flag:  # --browser/--no-browser
        flag, value = flag.split("/")[0 if value else 1], True
    if isinstance(value, list | tuple) and "list[" in str(kind):  # an option that is repeated
        for item in value:
            yield from _words(flag, item)
    elif isinstance(value, Mapping):
        yield from _words(flag, [f"{key}={item}" for key, item in value.items()])
    else:
        yield from _words(flag, getattr(value, "name", value))  # a `Task` is shown as its name


def _words(flag: str, value: object) -> Iterator[str]:
    if value is None or value is False:
        return
    yield flag
    if isinstance(value, list | tuple):
        yield ",".join(map(str, value))
    elif value is not True:
        yield str(value)


def _dashed(name: str) -> str:
    return name.replace("_", "-")
