"""Reads the bodies of requests: checks their size, their JSON, and the keys and types."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, fields
from typing import Any, Self

from starlette.requests import ClientDisconnect, Request

from headscope.explorer.responses import Refusal

BODY_BYTES = 64_000
# A body over the limit is read up to this size before it is refused. If the server answered earlier, a client that is
# still sending would not read the answer.
DRAINED_BYTES = 1_000_000
BODY_SECONDS = 10
SMALLEST_BODY = '{"model": "a", "text": "…"}'
LONGEST_CLIENT = 64  # characters of the id that a page sends as `client`


@dataclass(frozen=True)
class AttendRequest:
    """A request for attention: the model, its input, the heads to ablate and the lens.

    client  id of the page that sends the request
    turn    number of the request; a request is stale once this page has sent a higher number. None: never stale
    """

    model: str
    text: str
    second: str | None = None
    off: str = ""
    lens: str = "raw"
    client: str = ""
    turn: int | None = None

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> Self:
        keys = {field.name for field in fields(cls)}
        if unknown := sorted(set(body) - keys):
            raise Refusal(
                400, f'"{unknown[0][:40]}" is not a key', expected=", ".join(sorted(keys))
            )
        for key in ("model", "text", "off", "lens", "client"):
            if not isinstance(body.get(key, ""), str):
                raise Refusal(400, f"{key} is not a text", expected=f'"{key}": "…"')
        if not isinstance(body.get("second"), str | None):
            raise Refusal(400, "second is not a text", expected='"second": "…" or null')
        turn = body.get("turn")
        if turn is not None and (type(turn) is not int or not 0 <= turn < 2**53):
            raise Refusal(400, "turn is not a number", expected="a whole number from 0")
        if missing := sorted({"model", "text"} - set(body)):
            raise Refusal(400, f'the key "{missing[0]}" is missing', expected=SMALLEST_BODY)
        if len(body.get("client", "")) > LONGEST_CLIENT:
            expected = f"at most {LONGEST_CLIENT} characters"
            raise Refusal(400, "client is too long", expected=expected)
        return cls(**body)


async def read_attend_request(request: Request) -> AttendRequest:
    """Read and check the JSON object in the body of a request."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        expected = "Content-Type: application/json"
        raise Refusal(415, "the request does not declare JSON", expected=expected)
    try:
        async with asyncio.timeout(BODY_SECONDS):
            content = await _read_body(request)
    except TimeoutError as cause:
        what = f"the body did not arrive within {BODY_SECONDS} seconds"
        raise Refusal(408, what, fix="Send it again") from cause
    except ClientDisconnect as cause:
        raise Refusal(400, "the body is incomplete", fix="Send it again") from cause
    try:
        body = json.loads(content)
    except (ValueError, RecursionError) as cause:
        raise Refusal(400, "the body is not JSON", expected=SMALLEST_BODY) from cause
    if not isinstance(body, dict):
        raise Refusal(400, "the body is not a JSON object", expected=SMALLEST_BODY)
    return AttendRequest.from_json(body)


async def _read_body(request: Request) -> bytes:
    """The body; refuses one that is longer than BODY_BYTES, by its declared or its real length."""
    header = request.headers.get("content-length", "0")
    declared_length = int(header) if header.isdecimal() else 0
    read_length = 0
    content = b""
    if declared_length <= DRAINED_BYTES:
        async for part in request.stream():
            read_length += len(part)
            if read_length <= BODY_BYTES:
                content += part
            if read_length > DRAINED_BYTES:
                break
    if read_length > BODY_BYTES or declared_length > DRAINED_BYTES:
        what = f"the body is longer than {BODY_BYTES} bytes"
        raise Refusal(413, what, fix="Send a shorter text")
    return content
