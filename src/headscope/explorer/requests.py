"""What a request asks for, checked: JSON of known keys and types, within the limits."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, fields
from typing import Any, Self

from starlette.requests import ClientDisconnect, Request

from headscope.explorer.responses import Refusal

BODY_BYTES = 64_000
DRAINED_BYTES = 1_000_000  # of a body that is too long, read before saying so: a client that still writes hears nothing
BODY_SECONDS = 10
BODY = '{"model": "a", "text": "…"}'  # the least that a request must hold
LONGEST_PAGE = 64  # characters of a page's name for itself


@dataclass(frozen=True)
class AskedToAttend:
    """Which model reads what, and without which heads.

    client, turn  a page, and the number of its request: older ones are stale. Without a turn nothing ever is
    """

    model: str
    text: str
    second: str | None = None
    off: str = ""
    lens: str = "raw"
    client: str = ""
    turn: int | None = None

    @classmethod
    def of(cls, given: dict[str, Any]) -> Self:
        names = {field.name for field in fields(cls)}
        if strange := sorted(set(given) - names):
            expected = ", ".join(sorted(names))
            raise Refusal(400, f'"{strange[0][:40]}" is not a key', expected=expected)
        for name in ("model", "text", "off", "lens", "client"):
            if not isinstance(given.get(name, ""), str):
                raise Refusal(400, f"{name} is not a text", expected=f'"{name}": "…"')
        if not isinstance(given.get("second"), str | None):
            raise Refusal(400, "second is not a text", expected='"second": "…" or null')
        turn = given.get("turn")
        if turn is not None and (type(turn) is not int or not 0 <= turn < 2**53):
            raise Refusal(400, "turn is not a number", expected="a whole number from 0")
        if missing := sorted({"model", "text"} - set(given)):
            raise Refusal(400, f"there is no {missing[0]}", expected=BODY)
        if len(given.get("client", "")) > LONGEST_PAGE:
            raise Refusal(400, "client is too long", expected=f"at most {LONGEST_PAGE} characters")
        return cls(**given)


async def body_of(request: Request) -> dict[str, Any]:
    """The JSON object that a request carries."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        expected = "Content-Type: application/json"
        raise Refusal(415, "the body is not said to be JSON", expected=expected)
    try:
        async with asyncio.timeout(BODY_SECONDS):
            body = await _read(request)
    except TimeoutError as cause:
        what = f"the body did not come within {BODY_SECONDS} seconds"
        raise Refusal(408, what, fix="Ask again") from cause
    except ClientDisconnect as cause:
        raise Refusal(400, "the body broke off", fix="Ask again") from cause
    try:
        given = json.loads(body)
    except (ValueError, RecursionError) as cause:
        raise Refusal(400, "the body is not JSON", expected=BODY) from cause
    if not isinstance(given, dict):
        raise Refusal(400, "the body is not a JSON object", expected=BODY)
    return given


async def _read(request: Request) -> bytes:
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and int(declared) > DRAINED_BYTES:
        raise _too_long()
    body, length = b"", 0
    async for part in request.stream():
        length += len(part)
        if length <= BODY_BYTES:
            body += part
        if length > DRAINED_BYTES:
            break
    if length > BODY_BYTES:
        raise _too_long()
    return body


def _too_long() -> Refusal:
    return Refusal(413, f"the body is longer than {BODY_BYTES} bytes", fix="Send a shorter text")
