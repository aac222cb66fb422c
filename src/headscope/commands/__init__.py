"""The command line: one file per command, which calls the public function of the same name."""

from __future__ import annotations

import faulthandler
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pkgutil import iter_modules
from typing import Annotated, Any

import typer

from headscope.commands._app import app
from headscope.commands._flags import SEVERAL, to_flags
from headscope.commands._usage_errors import check_former_command, usage_message
from headscope.errors import HeadscopeError, HeadscopeWarning

WITHOUT_MODEL = ("pretrain",)  # commands without a positional argument in front of the options


def _version(is_requested: bool) -> None:
    if is_requested:
        from headscope.study.run_record import versions

        typer.echo(", ".join(f"{name} {version}" for name, version in versions().items()))
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show versions and exit"),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show the traceback of an error")
    ] = False,
) -> None:
    """Measure what each attention head of a transformer does, which heads a task needs, and prune the rest."""


for _module in sorted(
    module.name for module in iter_modules(__path__) if not module.name.startswith("_")
):
    import_module(f"{__name__}.{_module}")


# The order of the help; commands that are not listed come last.
ORDER = [
    "demo",
    "look",
    "serve",
    "analyze",
    "head",
    "report",
    "evaluate",
    "importance",
    "compare",
    "probe",
    "ablate-edges",
    "prune",
    "fixed-patterns",
    "speed",
    "gate",
    "masks",
    "models",
    "finetune",
    "pretrain",
    "doctor",
]
app.registered_commands.sort(
    key=lambda command: ORDER.index(command.name) if command.name in ORDER else len(ORDER)
)


def _check_early() -> None:
    """Make every command check its options before it imports torch."""
    from headscope.commands._early import EarlyChecked

    for group in (app, *(registered.typer_instance for registered in app.registered_groups)):
        for command in group.registered_commands if group is not None else ():
            command.cls = EarlyChecked


_check_early()


def main() -> None:
    """Run a command; a user's mistake is one line on stderr and exit status 2, without a traceback."""
    if not faulthandler.is_enabled():
        with suppress(
            AttributeError, OSError, RuntimeError
        ):  # stderr may be closed, or not be a file
            faulthandler.enable()  # prints the signal and the line if a signal such as SIGILL ends the process
    verbose = _take_verbose()
    sys.argv[1:] = _spread(sys.argv[1:])
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM)
    )  # clean up, as after Ctrl-C
    try:
        check_former_command(sys.argv[1:])
        with _warnings_in_one_line():
            status = app(prog_name="headscope", standalone_mode=False)
    except HeadscopeError as error:
        if verbose:
            raise
        _complain(str(error))
        sys.exit(2)
    except Exception as error:
        # Errors of typer about options and arguments. Their class differs between versions of typer.
        if verbose or not hasattr(error, "format_message"):
            raise
        _complain(usage_message(error))
        sys.exit(2)
    if status == 130:  # the status that typer returns after Ctrl-C
        _complain("stopped")
    sys.exit(status if isinstance(status, int) else 0)


@contextmanager
def _warnings_in_one_line() -> Iterator[None]:
    """Print our own warnings as `headscope: warning: …`, without the file and line that Python adds."""
    with warnings.catch_warnings():
        show_as_python_does = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *details: Any) -> None:
            if not issubclass(category, HeadscopeWarning):
                show_as_python_does(message, category, *details)
            elif import_module("headscope.progress").is_first_process():
                _complain(f"warning: {to_flags(str(message))}")

        warnings.showwarning = show  # type: ignore[assignment]
        yield


def _take_verbose() -> bool:
    """Remove -v and --verbose from the words of the command line before any `--`; whether there was one."""
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)
    options = [word for word in words[:end] if word not in ("-v", "--verbose")]
    sys.argv[1:] = options + words[end:]
    return len(options) < end


def _spread(words: list[str]) -> list[str]:
    """The words with each option that takes several files repeated: `--corpus a b` becomes `--corpus a --corpus b`."""
    if len(words) < 2 or (words[1].startswith("-") and words[0] not in WITHOUT_MODEL):
        # Options stand before MODEL, so the last word after --corpus may be the model.
        return words
    spread: list[str] = []
    option = None
    for word in words:
        if word.startswith("-") and word != "-":
            option = word if word in SEVERAL else None
        elif option is not None and spread[-1] != option:
            spread.append(option)
        spread.append(word)
    return spread


def _complain(line: str) -> None:
    print(f"headscope: {line}", file=sys.stderr)
