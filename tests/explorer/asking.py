"""Asking an explorer over HTTP as a page does."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass, field
from typing import Any

from headscope.explorer.serving import Explorer
from headscope.model.attention_model import AttentionModel
from reference.maps import Maps
from waiting import LONGEST

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
        message: str = self.json["error"]
        return message


@dataclass
class Asking:
    explorer: Explorer
    model: AttentionModel
    headers: dict[str, str] = field(default_factory=dict)

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.explorer.port, timeout=LONGEST)
        try:
            connection.request(method, path, body, {**self.headers, **(headers or {})})
            answer = connection.getresponse()
            return Answer(
                answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
            )
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.request("GET", path, headers=headers)

    def post(self, path: str, value: Any) -> Answer:
        return self.request("POST", path, json.dumps(value).encode(), JSON)

    def attend(self, text: str, second: str | None = None, off: str = "", **more: Any) -> Any:
        """The state of a text, which must be there."""
        answer = self.post(
            "/api/attend", {"model": "a", "text": text, "second": second, "off": off, **more}
        )
        assert answer.status == 200, answer.body
        return answer.json

    def maps(self, path: str) -> Maps:
        answer = self.get(path)
        assert answer.status == 200, answer.body
        assert answer.headers["content-type"] == "application/octet-stream"
        return Maps.of(answer.body)
