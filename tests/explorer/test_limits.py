"""Every refusal with its status and sentence; limits of body, tokens and line; nothing that is sent ends the server."""

from __future__ import annotations

import errno
import json
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import pytest
import torch
from asking import JSON, Answer, Asking
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import BertModel

from headscope.explorer import requests
from headscope.explorer.serving import Explorer
from headscope.explorer.session import Session
from waiting import LONGEST, until
from worded import worded

GOOD = {"model": "a", "text": "the cat sat"}
FUZZED = settings(
    deadline=None, max_examples=80, derandomize=True, suppress_health_check=list(HealthCheck)
)


def is_alive(asking: Asking) -> bool:
    return asking.post("/api/attend", GOOD).status == 200


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "the body is not JSON."),
        (b"{", "the body is not JSON."),
        (b"\xff\xfe\xff", "the body is not JSON."),
        (b"[" * 30_000, "the body is not JSON."),
        (b"1" * 5000, "the body is not JSON."),
        (b"[]", "the body is not a JSON object."),
        (b"null", "the body is not a JSON object."),
        (b"{}", 'the key "model" is missing.'),
        (b'{"model": "a"}', 'the key "text" is missing.'),
        (b'{"model": "a", "text": 3}', "text is not a text."),
        (b'{"model": "a", "text": null}', "text is not a text."),
        (b'{"model": ["a"], "text": "x"}', "model is not a text."),
        (b'{"model": "a", "text": "x", "second": 3}', "second is not a text."),
        (b'{"model": "a", "text": "x", "off": ["0.1"]}', "off is not a text."),
        (b'{"model": "a", "text": "x", "lens": null}', "lens is not a text."),
        (b'{"model": "a", "text": "x", "turn": "7"}', "turn is not a number."),
        (b'{"model": "a", "text": "x", "turn": true}', "turn is not a number."),
        (b'{"model": "a", "text": "x", "turn": -1}', "turn is not a number."),
        (b'{"model": "a", "text": "x", "turn": 1.5}', "turn is not a number."),
        (b'{"model": "a", "text": "x", "turn": 99999999999999999999}', "turn is not a number."),
        (b'{"model": "a", "text": "x", "temperature": 1}', '"temperature" is not a key.'),
        (b'{"model": "a", "text": "x", "client": "' + b"x" * 65 + b'"}', "client is too long."),
    ],
    ids=lambda value: value[:50].decode("latin-1") if isinstance(value, bytes) else None,
)
def test_what_is_malformed_is_400(body: bytes, message: str, ask: Asking) -> None:
    for path in ("/api/attend", "/api/translate"):
        answer = ask.request("POST", path, body, JSON)
        assert answer.status == 400
        assert answer.error.startswith(message)
        assert "Expected " in answer.error


@pytest.mark.parametrize(
    ("change", "status", "message"),
    [
        ({"model": "b"}, 404, 'there is no model "b". Expected a.'),
        (
            {"lens": "rose"},
            422,
            'lens: "rose" is not a lens. Expected effective, effective-simplex, flow, gradient,',
        ),
        ({"off": "9.1"}, 422, 'heads "9.1": "9.1" is not in this model. Expected '),
        ({"off": "0.9"}, 422, 'heads "0.9": "0.9" is not in this model. Expected '),
        ({"off": "0.3-1"}, 422, 'heads "0.3-1": "0.3-1" is not in this model.'),
        ({"off": "0.1;rm"}, 422, 'heads "0.1;rm": "0.1;rm" does not name a head. Expected '),
        ({"off": "٣.١"}, 422, 'heads "٣.١": '),
        ({"off": ","}, 422, 'heads ",": "" does not name a head.'),
        ({"text": ""}, 422, 'text "": there are no tokens in it. Expected some text.'),
        ({"text": " \n\t"}, 422, "there are no tokens in it. Expected some text."),
        (
            {"text": "a \ud800 b"},
            422,
            "character 3 is U+D800, half of a surrogate pair. Expected Unicode text.",
        ),
        ({"text": "the cat " * 16}, 422, "34 tokens. Expected at most 32 tokens. Shorten it."),
        ({"second": "cat " * 40}, 422, "46 tokens. Expected at most 32 tokens. Shorten it."),
    ],
)
def test_what_cannot_be_done_says_what_can(
    change: dict[str, Any], status: int, message: str, ask: Asking
) -> None:
    answer = ask.post("/api/attend", GOOD | change)
    assert answer.status == status
    assert message in answer.error
    assert is_alive(ask)


def test_a_pair_needs_tokens_in_both_texts(ask_kind: Callable[[str], Asking]) -> None:
    answer = ask_kind("pair").post("/api/attend", GOOD | {"second": "\u200b "})
    assert answer.status in (200, 422)
    assert answer.status == 200 or "there are no tokens in it" in answer.error


def test_an_empty_second_text_is_none(ask: Asking) -> None:
    assert ask.attend("the cat", "")["id"] == ask.attend("the cat", None)["id"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/nowhere", 404),
        ("GET", "/api/attend", 405),
        ("POST", "/api/about", 405),
        ("DELETE", "/", 405),
        ("BREW", "/api/about", 405),
        ("GET", "/api/maps/x/encoder/0", 404),
        ("GET", "/api/maps/x/encoder/-1", 404),
        ("GET", "/api/maps/x/encoder/1e9", 404),
        pytest.param("GET", "/api/maps/x/encoder/" + "9" * 5000, 404, id="a layer of 5000 digits"),
        ("GET", "/api/maps/x/encoder/%D9%A3", 404),
        ("GET", "/api/thumbnails/x/encoder", 404),
        ("GET", "/api/difference/x/y/encoder/0", 404),
        ("GET", "/api/study/heads", 404),
        ("GET", "/api/study/cards/0.1", 404),
        ("GET", "/api/study/examples/0.1", 404),
    ],
)
def test_there_is_nothing_else(method: str, path: str, status: int, ask: Asking) -> None:
    answer = ask.request(method, path)
    assert answer.status == status
    assert answer.error.endswith(".")


def test_a_state_has_only_its_own_layers(ask: Asking) -> None:
    state = ask.attend("the cat")["id"]
    for path in (
        f"maps/{state}/encoder/9",
        f"maps/{state}/cross/0",
        f"maps/{state}/encoder/99999999999999999999",
    ):
        answer = ask.get(f"/api/{path}")
        assert answer.status == 404
        assert answer.error.endswith("Expected encoder layers 0, 1.")
    assert ask.get(f"/api/thumbnails/{state}/cross").status == 404


def test_different_tokens_have_no_difference(ask: Asking) -> None:
    first, other = (ask.attend(text)["id"] for text in ("the cat", "the dog"))
    answer = ask.get(f"/api/difference/{first}/{other}/encoder/0")
    assert answer.status == 422
    assert answer.error.startswith("the two states are of different tokens.")


def test_a_body_must_be_declared_as_json(ask: Asking) -> None:
    """A form of a foreign page cannot say so."""
    body = json.dumps(GOOD).encode()
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        assert ask.request("POST", "/api/attend", body, {"Content-Type": kind}).status == 415
    assert (
        ask.request(
            "POST", "/api/attend", body, {"Content-Type": "Application/JSON; charset=utf-8"}
        ).status
        == 200
    )


# Limits


@pytest.mark.parametrize("size", [64_001, 200_000, 999_999])
def test_a_long_body_is_413(size: int, ask: Asking) -> None:
    answer = ask.request("POST", "/api/attend", b" " * size, JSON)
    assert answer.status == 413
    assert answer.error == "the body is longer than 64000 bytes. Send a shorter text."
    chunks = (b" " * 1000 for _ in range(size // 1000 + 1))
    assert ask.request("POST", "/api/attend", chunks, JSON).status == 413  # type: ignore[arg-type]
    assert is_alive(ask)


def test_a_body_just_within_the_limit_is_read(ask: Asking) -> None:
    body = json.dumps(GOOD).encode().ljust(64_000)
    assert ask.request("POST", "/api/attend", body, JSON).status == 200


POST = (
    b"POST /api/attend HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"
)


def raw(asking: Asking, sent: bytes, *, ends: bool = True) -> bytes:
    """What comes back when these very bytes are sent."""
    with socket.create_connection(("127.0.0.1", asking.explorer.port), timeout=LONGEST) as line:
        return exchanged(line, sent, ends=ends)


def exchanged(line: socket.socket, sent: bytes, *, ends: bool = True) -> bytes:
    """What comes back over this connection; the other side may hang up in the middle of what is too long."""
    came = b""
    try:
        line.sendall(sent)
        if ends:
            line.shutdown(socket.SHUT_WR)
        while part := line.recv(65536):
            came += part
    except OSError as error:
        if not isinstance(error, ConnectionError) and error.errno != errno.ENOTCONN:
            raise
    return came


@pytest.mark.parametrize("sent", [b"", b"x" * 1_000_000])
def test_a_side_that_has_hung_up_already_sends_nothing(sent: bytes) -> None:
    """Its reset has come before the first byte is sent, or before the sending side is shut: ENOTCONN."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        line = socket.create_connection(server.getsockname())
        other, _ = server.accept()
        other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        other.close()
        with line:
            assert exchanged(line, sent) == b""


LONG = 400_000  # bytes: more than is read at a time, so that it is seen to be too long before it is whole


def test_a_gigabyte_that_is_only_announced_is_refused_at_once(ask: Asking) -> None:
    assert raw(ask, POST % 1_000_000_000, ends=False).startswith(b"HTTP/1.1 413 ")
    assert is_alive(ask)


def test_a_body_that_does_not_come_is_408(ask: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as impatient:
        impatient.setattr(requests, "BODY_SECONDS", 0.2)
        assert raw(ask, POST % 50 + b"{", ends=False).startswith(b"HTTP/1.1 408 ")
    assert is_alive(ask)


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: " + b"x" * LONG + b"\r\n\r\n",
        b"GET /" + b"x" * LONG + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /api/attend HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n{",
        b"POST /api/attend HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 100,
        bytes(range(256)) * 10,
    ],
    ids=lambda sent: repr(sent[:30]),
)
def test_what_is_no_request_ends_a_connection_and_not_the_server(sent: bytes, ask: Asking) -> None:
    came = raw(ask, sent)
    assert not came or came.startswith(b"HTTP/1.1 4")
    assert is_alive(ask)


# The line before the model


@contextmanager
def held(
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[tuple[threading.Event, threading.Event, list[str]]]:
    """A model that works until it is let go: (it has begun, let it go, the texts it has read)."""
    begun, let_go, texts = threading.Event(), threading.Event(), []
    real = Session.attend

    def slow(self: Session, text: str, *more: Any) -> Any:
        texts.append(text)
        begun.set()
        assert let_go.wait(LONGEST)
        return real(self, text, *more)

    monkeypatch.setattr(Session, "attend", slow)
    try:
        yield begun, let_go, texts
    finally:
        let_go.set()


def test_only_so_many_may_wait(ask: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    with held(monkeypatch) as (begun, let_go, texts), ThreadPoolExecutor(100) as pool:
        running = pool.submit(ask.post, "/api/attend", GOOD | {"client": "first"})
        assert begun.wait(LONGEST)
        requested = [
            pool.submit(ask.post, "/api/attend", GOOD | {"client": str(i)}) for i in range(99)
        ]
        refused = [one.result() for one in _first(requested, 91)]
        assert {answer.status for answer in refused} == {429}
        assert refused[0].error == "8 requests wait already. Try again in a moment."
        assert ask.get("/api/about").status == 200, "what needs no model is told meanwhile"
        let_go.set()
        assert running.result().status == 200
        assert Counter(one.result().status for one in requested) == {200: 8, 429: 91}
    assert len(texts) == 9
    assert is_alive(ask)


def _first(requested: list[Any], count: int) -> list[Any]:
    """Those that are answered first."""
    return [
        one for _, one in zip(range(count), as_completed(requested, timeout=LONGEST), strict=False)
    ]


def test_a_newer_turn_of_a_page_makes_older_ones_stale(
    ask: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    with held(monkeypatch) as (begun, let_go, texts), ThreadPoolExecutor(8) as pool:

        def turn(client: str, number: int) -> Any:
            body = {"model": "a", "text": f"{client} {number}", "client": client, "turn": number}
            return pool.submit(ask.post, "/api/attend", body)

        running = turn("cat", 1)
        assert begun.wait(LONGEST)
        waiting = turn("cat", 2)
        other = turn("dog", 1)
        until(lambda: ask.explorer.server.queue.waiting == 2)
        newest = turn("cat", 3)
        assert waiting.result(LONGEST).status == 409, (
            "it is answered at once, not when it would have been its turn"
        )
        assert waiting.result().error.startswith(
            "turn 2 is stale: this page has sent turn 3 since."
        )
        late = turn("cat", 2).result(LONGEST)
        assert late.status == 409
        again = turn("cat", 3)
        let_go.set()
        assert [one.result(LONGEST).status for one in (running, other, newest, again)] == [
            200,
            200,
            200,
            200,
        ]
    assert texts.count("cat 2") == 0, "what is stale is not run"
    assert sorted(texts) == ["cat 1", "cat 3", "cat 3", "dog 1"]


def test_a_hundred_at_once_get_right_answers(ask: Asking) -> None:
    """Different texts in any order: each answer is the one to its own question, or a refusal to wait."""
    words = ["the", "cat", "sat", "on", "a", "mat", "dog", "ran", "old", "red"]
    texts = [f"{one} {other}" for one in words for other in words]

    def requested(text: str) -> tuple[str, Answer]:
        return text, ask.post("/api/attend", {"model": "a", "text": text, "client": text})

    with ThreadPoolExecutor(100) as pool:
        answers = list(pool.map(requested, texts))
    assert {answer.status for _, answer in answers} <= {200, 429}
    assert sum(answer.status == 200 for _, answer in answers) >= 9
    for text, answer in answers:
        if answer.status == 200:
            assert answer.json["sides"]["encoder"]["query"]["tokens"][1:-1] == text.split()
            assert answer.json["prediction"] == ask.attend(text)["prediction"]


def test_a_failure_is_reported_and_leaves_the_server_alive(
    ask: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*inputs: Any) -> None:
        raise RuntimeError("the sky fell")

    with monkeypatch.context() as patched:
        patched.setattr(Session, "attend", fail)
        answer = ask.post("/api/attend", GOOD)
        assert (answer.status, answer.error) == (
            500,
            "the server failed (the sky fell). Its terminal shows the traceback.",
        )
        patched.setattr(Session, "attend", lambda *inputs: (_ for _ in ()).throw(MemoryError))
        answer = ask.post("/api/attend", GOOD)
        assert (answer.status, answer.error) == (
            503,
            "there is not enough memory for this. Ask for a shorter text.",
        )
    assert is_alive(ask)
    assert not ask.model.is_open


def test_numbers_that_are_none_are_not_shown(start: Callable[..., Explorer]) -> None:
    model = worded(BertModel)
    with torch.no_grad():
        model.model.encoder.layer[0].attention.self.query.bias[0] = torch.nan
    answer = Asking(start(model), model).post("/api/attend", GOOD)
    assert answer.status == 503
    assert answer.error.startswith("the output of worded has numbers that are not finite.")


# Fuzzing

anything = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)
text = st.text(st.characters(), max_size=40)
fields = st.fixed_dictionaries(
    {"model": st.just("a") | text, "text": text},
    optional={
        "second": st.none() | text,
        "off": st.from_regex(r"([0-9]|\*)\.([0-9]|\*)(-[0-9])?", fullmatch=True) | text,
        "lens": st.just("raw") | text,
        "client": text,
        "turn": st.none() | st.integers(0, 3),
    },
)


@FUZZED
@given(value=anything | fields)
def test_any_json_has_a_right_code(value: Any, ask: Asking) -> None:
    answer = ask.request("POST", "/api/attend", json.dumps(value).encode(), JSON)
    assert answer.status in (200, 400, 404, 409, 413, 422)
    assert answer.json["id"] if answer.status == 200 else answer.error


@FUZZED
@given(body=st.binary(max_size=300))
def test_any_bytes_have_a_right_code(body: bytes, ask: Asking) -> None:
    assert ask.request("POST", "/api/attend", body, JSON).status == 400


@FUZZED
@given(parts=st.lists(st.text(st.characters(codec="utf-8"), max_size=12), max_size=6))
def test_any_address_has_a_right_code(parts: list[str], ask: Asking) -> None:
    for kind in ("maps", "thumbnails", "difference", "study", "static", ""):
        path = "/".join(["/api", kind, *(quote(part, safe="") for part in parts)])
        assert ask.get(path).status in (307, 404)


def test_it_is_alive_after_all_this(ask: Asking) -> None:
    assert is_alive(ask)
    assert not ask.model.is_open
