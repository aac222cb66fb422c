"""What the server answers when it does not do what was asked: a status, and a sentence that says how to mend it."""

from __future__ import annotations

from headscope.errors import HeadscopeError


class Refusal(HeadscopeError):
    """An error with the HTTP status that goes with it."""

    def __init__(
        self, status: int, what: str, *, expected: str | None = None, mend: str | None = None
    ) -> None:
        super().__init__(what, expected=expected, mend=mend)
        self.status = status
