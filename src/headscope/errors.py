"""The one error a user meets: where it is, what is wrong, what was expected, how to mend it."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path


class HeadscopeError(Exception):
    """A mistake in what was given: printed as one line, exit status 2, no traceback.

    where     a file, `file:line`, or the option as typed
    what      what is wrong, with the value in quotes
    expected  what would have been right
    mend      what to do about it
    """

    def __init__(
        self, what: str, *, where: str | Path | None = None, expected: str | None = None, mend: str | None = None
    ) -> None:
        self.what, self.where, self.expected, self.mend = what, where, expected, mend
        super().__init__(str(self))

    def __str__(self) -> str:
        sentences = [self.what, f"Expected {self.expected}" if self.expected else "", self.mend or ""]
        text = " ".join(f"{sentence.rstrip('.')}." for sentence in sentences if sentence)
        text = f"{self.where}: {text}" if self.where is not None else text
        return " ".join(text.split())  # a cause with line breaks in it still makes one line

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (self.what, self.where, self.expected, self.mend)


def _rebuild(what: str, where: str | Path | None, expected: str | None, mend: str | None) -> HeadscopeError:
    return HeadscopeError(what, where=where, expected=expected, mend=mend)


def choices(wrong: str, known: Iterable[str]) -> str:
    """The known names for an error message, with the nearest one suggested: `a, b or c; did you mean "b"?`"""
    names = sorted(known)
    listed = " or ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)
    near = get_close_matches(wrong, names, n=1)
    return f'{listed}; did you mean "{near[0]}"?' if near else listed
