"""Messages for a wrong command, option or argument: what must hold, what was given, and an example or the help."""

from __future__ import annotations

from typing import Any

from headscope.commands._configs import main_config
from headscope.config.former_names import COMMANDS, REMOVED_FLAGS, present_flag
from headscope.errors import HeadscopeError

# What a value must be, by words of typer's message for a wrong value.
NUMBERS = {"valid integer": "a whole number", "valid number": "a number"}
TOO_MANY_WORDS = {
    "headscope look": 'Put the text in quotes: headscope look MODEL "The cat sat." --out look.html',
    "headscope analyze": 'For one text use look: headscope look MODEL "The cat sat." --out look.html',
}


def check_former_command(words: list[str]) -> None:
    """Refuse the former name of a command; the error states the present name."""
    command = next((word for word in words if not word.startswith("-")), "")
    if command in COMMANDS:
        present = COMMANDS[command]
        fix = f"See headscope {present.partition(' --')[0]} --help"
        raise HeadscopeError(f"headscope {command} is now headscope {present}", fix=fix)


def usage_message(error: Any) -> str:
    """The message for an error of typer, in one line. error: an exception with `format_message`."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "headscope"
    message, fix = error.format_message(), f"See {command} --help"
    option, parameter = getattr(error, "option_name", None), getattr(error, "param", None)
    if message.startswith("Got unexpected extra argument") and command in TOO_MANY_WORDS:
        fix = TOO_MANY_WORDS[command]
    elif (present := _present_flag(error)) is not None:
        message = f"{option} is now called {present}"
    elif f"{command} {option}" in REMOVED_FLAGS:
        fix = REMOVED_FLAGS[f"{command} {option}"]
    elif type(error).__name__ == "MissingParameter" and parameter is not None:
        message = f"{command} requires {_shown(parameter)}"
        fix = f"For example: {_example(command)}" if _example(command) else fix
    elif parameter is not None:
        message = _bad_number(error, parameter) or message
    return str(HeadscopeError(message, fix=fix))


def _present_flag(error: Any) -> str | None:
    """The present name of an unknown flag that is a former name of an option of the command; otherwise None."""
    option, context = getattr(error, "option_name", None), getattr(error, "ctx", None)
    if option is None or context is None:
        return None
    present = present_flag(option)
    options = [flag for parameter in context.command.params for flag in parameter.opts]
    return present if present in options else None


def _bad_number(error: Any, parameter: Any) -> str:
    """The message for text where a number is needed: `--limit must be a whole number, got "ten"`; empty otherwise."""
    words = next((text for kind, text in NUMBERS.items() if kind in str(error)), "")
    if not words or not hasattr(error.__cause__, "errors"):
        return ""
    value = error.__cause__.errors()[0]["input"]
    return f'{_shown(parameter)} must be {words}, got "{value}"'


def _shown(parameter: Any) -> str:
    """The parameter as it is typed in the shell: `--limit` for an option, `MODEL` for an argument."""
    is_option = parameter.param_type_name == "option"
    return str(parameter.opts[0] if is_option else parameter.metavar or parameter.name.upper())


def _example(command: str) -> str:
    """The first example of a command's help; empty if it has none."""
    main = main_config(command.partition(" ")[2])
    return main.examples[0] if main is not None and main.examples else ""
