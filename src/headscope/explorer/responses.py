"""Answers as they are sent: JSON whose signs steer nothing, and refusals in one shape."""

from __future__ import annotations

from starlette.responses import Response

from headscope.errors import HeadscopeError
from headscope.explorer.http_errors import Refusal
from headscope.report.page.payload import to_json

UNPROCESSABLE = 422


def answered(value: object, status: int = 200) -> Response:
    """JSON in ASCII: half a surrogate pair, U+2028 and markup are all escaped."""
    return Response(to_json(value).encode("ascii"), status, media_type="application/json")


def refused(error: HeadscopeError) -> Response:
    status = error.status if isinstance(error, Refusal) else UNPROCESSABLE
    return answered({"error": str(error)}, status)
