"""The command line: one thin file a command; all it can do, five lines of Python can do."""

from __future__ import annotations

import sys
from importlib import import_module
from pkgutil import iter_modules
from typing import Annotated

import typer

from headscope.errors import HeadscopeError

app = typer.Typer(
    name="headscope",
    help="See what the attention heads of a transformer do, which of them matter, and cut the rest.",
    epilog="Start with: headscope demo. Exit status: 0 done, 1 could not finish, 2 wrong usage or input.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        from headscope.study.record import versions

        typer.echo(", ".join(f"{name} {version}" for name, version in versions().items()))
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Versions")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show the traceback of an error")] = False,
) -> None:
    """See what the attention heads of a transformer do, which of them matter, and cut the rest."""


for _module in sorted(module.name for module in iter_modules(__path__)):
    import_module(f"{__name__}.{_module}")


def main() -> None:
    """Run a command; a user's mistake is one line on stderr and exit status 2, without a traceback."""
    words = sys.argv[1:]
    verbose = any(word in ("-v", "--verbose") for word in words)
    # -v may stand anywhere, not only before the command.
    sys.argv[1:] = [word for word in words if word not in ("-v", "--verbose")]
    try:
        app()
    except HeadscopeError as error:
        if verbose:
            raise
        print(f"headscope: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("headscope: stopped", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
