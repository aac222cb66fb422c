"""Messages for a wrong command, option or argument: what must hold, what was given, and an example or the help."""

from __future__ import annotations

from typing import Any

from headscope.commands._configs import main_config
from headscope.config.former_names import COMMANDS, present_flag
from headscope.errors import HeadscopeError

NUMBERS = {"valid integer": "a whole number", "valid number": "a number"}  # of typer's messages
TOO_MANY_WORDS = {
    "headscope look": 'Put the text in quotes: headscope look MODEL "The cat sat." --out look.html',
    "headscope analyze": 'For one text use look: headscope look MODEL "The cat sat." --out look.html',
}


def check_former_command(words: list[str]) -> None:
    """Refuse the former name of a command, with the present one."""
    command = next((word for word in words if not word.startswith("-")), "")
    if command in COMMANDS:
        present = COMMANDS[command]
        fix = f"See headscope {present.partition(' --')[0]} --help"
        raise HeadscopeError(f"headscope {command} is now headscope {present}", fix=fix)


def usage_message(error: Any) -> str:
    """An error of typer in one line."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "headscope"
    message, fix = error.format_message(), f"See {command} --help"
    option, parameter = getattr(error, "option_name", None), getattr(error, "param", None)
    if message.startswith("Got unexpected extra argument") and command in TOO_MANY_WORDS:
        fix = TOO_MANY_WORDS[command]
    elif option is not None and (present := present_flag(option)) is not None:
        message = f"{option} is now called {present}"
    elif type(error).__name__ == "MissingParameter" and parameter is not None:
        message = f"{command} requires {_shown(parameter)}"
        fix = f"For example: {_example(command)}" if _example(command) else fix
    elif parameter is not None:
        message = _bad_number(error, parameter) or message
    return str(HeadscopeError(message, fix=fix))


def _bad_number(error: Any, parameter: Any) -> str:
    """`--limit must be a whole number, got "ten"`; empty for another error."""
    words = next((text for kind, text in NUMBERS.items() if kind in str(error)), "")
    if not words or not hasattr(error.__cause__, "errors"):
        return ""
    value = error.__cause__.errors()[0]["input"]
    return f'{_shown(parameter)} must be {words}, got "{value}"'


def _shown(parameter: Any) -> str:
    """A parameter as it is typed: --limit, or MODEL."""
    is_option = parameter.param_type_name == "option"
    return str(parameter.opts[0] if is_option else parameter.metavar or parameter.name.upper())


def _example(command: str) -> str:
    """The first example of a command's help; empty if it has none."""
    main = main_config(command.partition(" ")[2])
    return main.examples[0] if main is not None and main.examples else ""
