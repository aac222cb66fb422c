"""Who may ask: hosts, origins, tokens; and what every answer carries."""

from __future__ import annotations

import http.client
from collections.abc import Callable

import pytest
from asking import JSON, Asking
from transformers import BertModel

from headscope.explorer.guard import Guard
from headscope.explorer.serving import Explorer
from waiting import LONGEST
from worded import worded

TOKEN = "a-token-of-tests"


@pytest.fixture(scope="module")
def guarded(start: Callable[..., Explorer]) -> Asking:
    model = worded(BertModel)
    return Asking(start(model, token=TOKEN), model)


def status(asking: Asking, headers: list[tuple[str, str]], path: str = "/api/about") -> int:
    """Of a request with exactly these headers."""
    connection = http.client.HTTPConnection("127.0.0.1", asking.explorer.port, timeout=LONGEST)
    connection.putrequest("GET", path, skip_host=True, skip_accept_encoding=True)
    for name, value in headers:
        connection.putheader(name, value)
    connection.endheaders()
    try:
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LocalHost", "[::1]", "127.0.0.2"])
@pytest.mark.parametrize("port", ["", ":{port}", ":9000"])
def test_this_machine_may_be_called_by_its_names(host: str, port: str, ask: Asking) -> None:
    """By any port: a tunnel has another one."""
    assert status(ask, [("Host", host + port.format(port=ask.explorer.port))]) == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8760",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "evil.example@localhost",
        "localhost@evil.example",
        "192.168.0.7",
        "0.0.0.0",
        "[::1",
        "localhost:port",
        "localhost:99999",
        "localhost/evil.example",
        "localhost?x",
        "localhost#x",
        "",
        " ",
        "\xe9",
    ],
)
def test_a_foreign_host_is_refused(host: str, ask: Asking) -> None:
    assert status(ask, [("Host", host)]) in (400, 403)


def test_two_hosts_or_none_are_refused(ask: Asking) -> None:
    assert status(ask, [("Host", "localhost"), ("Host", "evil.example")]) in (400, 403)
    assert status(ask, []) in (400, 403)


def test_what_is_refused_says_why(ask: Asking) -> None:
    answer = ask.get("/api/about", Host="evil.example")
    assert answer.status == 403
    assert answer.error == (
        'the request is for host "evil.example". Expected the address that headscope serve printed.'
    )


def test_an_origin_must_be_the_same(ask: Asking) -> None:
    own_host = f"127.0.0.1:{ask.explorer.port}"
    body = b'{"model": "a", "text": "the cat"}'

    def status_for(origin: str) -> int:
        return ask.request(
            "POST", "/api/attend", body, {**JSON, "Host": own_host, "Origin": origin}
        ).status

    assert status_for(f"http://{own_host}") == 200
    for origin in (
        "http://evil.example",
        f"http://localhost:{ask.explorer.port}",
        "http://127.0.0.1",
        f"http://127.0.0.1:{ask.explorer.port + 1}",
        f"http://{own_host}.evil.example",
        f"http://{own_host}@evil.example",
        f"ftp://{own_host}",
        "null",
        "",
        "http://[",
    ):
        assert status_for(origin) == 403, origin


@pytest.mark.parametrize(
    ("host", "name", "is_ours"),
    [
        ("127.0.0.1", "192.168.0.7", False),
        ("192.168.0.7", "192.168.0.7", True),
        ("192.168.0.7", "192.168.0.8", False),
        ("box.example", "box.example", True),
        ("0.0.0.0", "192.168.0.7", True),
        ("0.0.0.0", "evil.example", False),
        ("::", "10.0.0.1", True),
        ("::", "evil.example", False),
    ],
)
def test_a_server_of_other_machines_knows_its_addresses(
    host: str, name: str, is_ours: bool
) -> None:
    assert Guard(None, host, TOKEN, 1)._is_ours(name) == is_ours  # type: ignore[arg-type]


# Tokens


@pytest.mark.parametrize(
    "path", ["/", "/static/explorer.js", "/api/about", "/api/maps/x/encoder/0", "/nowhere"]
)
def test_nothing_is_served_without_the_token(path: str, guarded: Asking) -> None:
    answer = guarded.get(path)
    assert answer.status == 401
    assert answer.error.startswith("the token is missing or wrong.")


@pytest.mark.parametrize("wrong", ["", "x", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "\xff"])
def test_another_token_is_none(wrong: str, guarded: Asking) -> None:
    assert guarded.get("/api/about", **{"X-Headscope-Token": wrong}).status == 401
    assert (
        guarded.get("/api/about", Cookie=f"headscope-{guarded.explorer.port}={wrong}").status == 401
    )
    assert guarded.get(f"/?token={wrong.encode('latin-1').hex() or ''}").status == 401


def test_the_address_brings_the_token_once(guarded: Asking) -> None:
    assert guarded.explorer.url.endswith(f"/?token={TOKEN}")
    answer = guarded.get(f"/?token={TOKEN}&x=1")
    assert (answer.status, answer.headers["location"]) == (303, "/?x=1")
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(f"headscope-{guarded.explorer.port}={TOKEN};")
    assert {"httponly", "samesite=strict"} <= {part.strip().lower() for part in cookie.split(";")}
    assert guarded.get("/api/about", Cookie=cookie.partition(";")[0]).status == 200
    assert guarded.get("/api/about", **{"X-Headscope-Token": TOKEN}).status == 200
    assert guarded.get(f"/api/about?token={TOKEN}").status == 401, (
        "an address of data is not to be passed on"
    )


def test_a_broken_cookie_is_no_token(guarded: Asking) -> None:
    for cookie in ("=;=", "a=\x01", f"headscope-{guarded.explorer.port}", "x" * 5000):
        assert guarded.get("/api/about", Cookie=cookie).status == 401


# What every answer carries


@pytest.mark.parametrize(
    "path", ["/", "/api/about", "/api/nowhere", "/static/nothing", "/api/attend", "/api/maps/x/y/0"]
)
def test_every_answer_is_strict(path: str, ask: Asking) -> None:
    headers = ask.get(path).headers
    policy = dict(
        part.strip().partition(" ")[::2] for part in headers["content-security-policy"].split(";")
    )
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert "access-control-allow-origin" not in headers
    assert "server" not in headers
    if path.startswith("/api"):
        assert headers["cache-control"] == "no-store"


def test_refusals_are_strict_too(guarded: Asking, ask: Asking) -> None:
    for answer in (guarded.get("/"), ask.get("/", Host="evil.example")):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize(
    "path",
    [
        "/static/../server.py",
        "/static/%2e%2e/server.py",
        "/static/..%2fserver.py",
        "/static//etc/passwd",
    ],
)
def test_no_other_file_is_served(path: str, ask: Asking) -> None:
    assert ask.get(path).status == 404
