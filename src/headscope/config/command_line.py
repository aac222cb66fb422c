"""Command lines that a text shows to be typed, such as `headscope prune MODEL --plan plan.json --out small`."""

from __future__ import annotations

import shlex


def command_line(command: str, *arguments: object, **options: object) -> str:
    """The shell command with these arguments and options, each quoted where the shell needs it.

    options  by their names in Python: True is a bare flag, None and False are left out, lists are joined by commas
    """
    return shlex.join(["headscope", *command.split(), *map(str, arguments), *option_words(options)])


def option_words(options: dict[str, object]) -> list[str]:
    """The words of the options alone, as a shell takes them."""
    words: list[str] = []
    for name, value in options.items():
        if value is None or value is False:
            continue
        words.append(f"--{name.replace('_', '-')}")
        if isinstance(value, list | tuple):
            words.append(",".join(map(str, value)))
        elif value is not True:
            words.append(str(value))
    return words
