"""Asking an explorer over HTTP as a page does, and reading its bytes as docs/explorer.md describes them."""

from __future__ import annotations

import http.client
import json
import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscope.explorer.serving import Explorer
from headscope.model.attention_model import AttentionModel

JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        assert self.headers["content-type"] == "application/json", self.headers
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """The sentence of an answer that is none."""
        assert list(self.json) == ["error"]
        said: str = self.json["error"]
        return said


@dataclass(frozen=True)
class Maps:
    """Maps as they came: values [map, row, column] of the heads at `places`, and each row's largest."""

    places: list[tuple[int, int]]
    values: NDArray[np.float64]
    largest: NDArray[np.float64]
    is_signed: bool

    @classmethod
    def of(cls, body: bytes) -> Maps:
        magic, kind, count, rows, columns = struct.unpack_from("<4sIIII", body)
        assert magic == b"HSM1"
        at = 20
        numbers = struct.unpack_from(f"<{2 * count}H", body, at)
        at += 4 * count
        largest = np.frombuffer(body, "<f4", count * rows, at).reshape(count, rows).astype(float)
        at += 4 * count * rows
        codes = np.frombuffer(body, "i1" if kind else "u1", count * rows * columns, at).astype(float)
        assert len(body) == at + len(codes), "nothing is left over"
        codes = codes.reshape(count, rows, columns)
        share = np.sign(codes) * (codes / 127) ** 2 if kind else (codes / 255) ** 2
        places = list(zip(numbers[::2], numbers[1::2], strict=True))
        return cls(places, largest[..., None] * share, largest, bool(kind))


@dataclass
class Asking:
    explorer: Explorer
    model: AttentionModel
    headers: dict[str, str] = field(default_factory=dict)

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.explorer.port, timeout=60)
        try:
            connection.request(method, path, body, {**self.headers, **(headers or {})})
            answer = connection.getresponse()
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.request("GET", path, headers=headers)

    def post(self, path: str, value: Any) -> Answer:
        return self.request("POST", path, json.dumps(value).encode(), JSON)

    def attend(self, text: str, second: str | None = None, off: str = "", **more: Any) -> Any:
        """The state of a text, which must be there."""
        answer = self.post("/api/attend", {"model": "a", "text": text, "second": second, "off": off, **more})
        assert answer.status == 200, answer.body
        return answer.json

    def maps(self, path: str) -> Maps:
        answer = self.get(path)
        assert answer.status == 200, answer.body
        assert answer.headers["content-type"] == "application/octet-stream"
        return Maps.of(answer.body)
