"""JSON responses, and `Refusal`: an error with an HTTP status."""

from __future__ import annotations

from starlette.responses import Response

from headscope.errors import HeadscopeError
from headscope.report.page.templates import to_json

UNPROCESSABLE = 422
JsonObject = dict[str, object]


class Refusal(HeadscopeError):
    """An error with its HTTP status."""

    def __init__(
        self, status: int, what: str, *, expected: str | None = None, fix: str | None = None
    ) -> None:
        super().__init__(what, expected=expected, fix=fix)
        self.status = status


def json_response(value: object, status: int = 200) -> Response:
    """A JSON response in ASCII: lone surrogates, U+2028 and characters of HTML markup are escaped."""
    return Response(to_json(value).encode("ascii"), status, media_type="application/json")


def error_response(error: HeadscopeError) -> Response:
    """The JSON response for an error."""
    status = error.status if isinstance(error, Refusal) else UNPROCESSABLE
    return json_response({"error": str(error)}, status)
