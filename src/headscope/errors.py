"""The error and the warning that users see: where, what is wrong, what is expected, how to fix it."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path

MANY = 20  # names that a message lists; longer lists are shortened


class HeadscopeError(Exception):
    """A mistake in the input: printed as one line, exit status 2, no traceback.

    Parameters
    ----------
    what
        What is wrong, with the value in quotes.
    where
        A file, `file:line`, or the option.
    expected
        What must hold.
    fix
        How to fix it.

    Examples
    --------
    >>> print(headscope.HeadscopeError('"5.*" is not a head', where="heads", fix='Write "4.*"'))
    heads: "5.*" is not a head. Write "4.*".
    """

    def __init__(
        self,
        what: str,
        *,
        where: str | Path | None = None,
        expected: str | None = None,
        fix: str | None = None,
    ) -> None:
        self.what, self.where, self.expected, self.fix = what, where, expected, fix
        super().__init__(str(self))

    def __str__(self) -> str:
        expected = f"Expected {self.expected}" if self.expected else None
        sentences = [sentence for sentence in (self.what, expected, self.fix) if sentence]
        text = " ".join(s if s.endswith(("?", "!")) else f"{s.rstrip('.')}." for s in sentences)
        return printable(f"{self.where}: {text}" if self.where is not None else text)

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (self.what, self.where, self.expected, self.fix)


class HeadscopeWarning(UserWarning):
    """A warning about a result; the command line prints it as one line on stderr.

    Examples
    --------
    >>> import warnings
    >>> warnings.simplefilter("ignore", headscope.HeadscopeWarning)
    """


@contextmanager
def errors_at(where: str) -> Iterator[None]:
    """Errors raised inside name this place, such as a field of a config: "`heads`"."""
    try:
        yield
    except HeadscopeError as error:
        error.where = where
        raise


def note(line: str) -> None:
    """Warn the user: a `HeadscopeWarning` in Python, one line on stderr in the shell."""
    warnings.warn(printable(line), HeadscopeWarning, stacklevel=3)


def _rebuild(
    what: str, where: str | Path | None, expected: str | None, fix: str | None
) -> HeadscopeError:
    return HeadscopeError(what, where=where, expected=expected, fix=fix)


def names_in(value: object, where: str) -> list[str]:
    """Names from a text with commas, or from a list of texts; `where` names the argument in errors."""
    if isinstance(value, str):
        return [name.strip() for name in value.split(",")]
    names = list(value) if isinstance(value, Iterable) else [value]
    wrong = [name for name in names if not isinstance(name, str)]
    if wrong:
        what = f"{wrong[0]!r} is not a name"
        raise HeadscopeError(what, where=where, expected="a name, or a list of names")
    return [str(name).strip() for name in names]


def printable(text: str) -> str:
    """One line without control characters, which could steer a terminal: line breaks become blanks."""
    line = re.sub(r"\s*[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+\s*", " ", text).strip()
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


def reason(cause: BaseException) -> str:
    """A short message for another library's error: its first line, or its type if it has no text."""
    if isinstance(cause, KeyError) and str(cause.args[0]).isidentifier():
        return f'key "{cause.args[0]}" is missing'
    text = getattr(cause, "strerror", None) or str(cause).strip()
    lines = [line.strip() for line in text.splitlines()] or [type(cause).__name__]
    return printable(" ".join(lines[:2]) if lines[0].endswith(":") else lines[0])[:200].rstrip(".")


def choices(wrong: str, options: Iterable[str], suggested: Sequence[str] = ()) -> str:
    """The known names for an error message, with a suggestion: `a, b or c; did you mean "b"?`

    suggested  names to suggest instead of the name with the nearest spelling
    """
    names = sorted(options)
    listed = " or ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)
    if len(names) > MANY + 5:  # leaving out fewer than 6 names would not make the message shorter
        listed = f"{', '.join(names[:MANY])} … ({len(names)} in all)"
    near = " or ".join(f'"{name}"' for name in suggested or get_close_matches(wrong, names, n=1))
    return f"{listed}; did you mean {near}?" if near else listed
