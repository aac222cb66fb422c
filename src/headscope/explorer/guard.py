"""Access checks for every request, and security headers for every response.

By default the explorer listens on the loopback address only. A web page of another site could still make the user's
browser send requests to it. Therefore the Host header must name this server, which stops DNS rebinding, and the Origin
header must be the explorer's own. If the explorer listens on another address, every request also needs a token.
"""

from __future__ import annotations

import hmac
import socket
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headscope.explorer.addresses import is_address, is_everywhere, is_loopback
from headscope.explorer.responses import Refusal, error_response

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
TOKEN_HEADER = "x-headscope-token"


@dataclass(frozen=True)
class Guard:
    """An ASGI application that checks requests before it passes them to another.

    host   the address that the server listens on
    token  the token that every request must carry; None: no token is required
    port   part of the cookie's name, because browsers share cookies between ports and two explorers may run
    """

    app: ASGIApp
    host: str
    token: str | None
    port: int

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # no web sockets
        headers = Headers(scope=scope)
        try:
            self._check_host(headers.getlist("host"))
            self._check_origin(headers)
            response = self._check_token(scope, headers)
        except Refusal as refusal:
            response = error_response(refusal)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        await (self.app if response is None else response)(scope, receive, send_with_headers)

    def _check_host(self, hosts: list[str]) -> None:
        if len(hosts) != 1 or not self._is_ours(_host_name(hosts[0])):
            what = f'the request is for host "{", ".join(hosts)[:80]}"'
            raise Refusal(403, what, expected="the address that headscope serve printed")

    def _is_ours(self, name: str) -> bool:
        if is_loopback(name) or name == self.host.lower():
            return True
        if not is_everywhere(self.host):
            return False
        # Any IP address, or the name of this machine, but no other name: it may be one that an attacker points here.
        return is_address(name) or name in (socket.gethostname().lower(), socket.getfqdn().lower())

    def _check_origin(self, headers: Headers) -> None:
        for origin in headers.getlist("origin"):
            parts = urlsplit(origin) if _can_be_split(origin) else urlsplit("")
            is_same_host = parts.netloc.lower() == headers["host"].lower()
            if parts.scheme not in ("http", "https") or not is_same_host:
                what = f'the request comes from "{origin[:80]}"'
                raise Refusal(403, what, expected="the explorer's own page")

    def _check_token(self, scope: Scope, headers: Headers) -> Response | None:
        """None if the request may pass; if the token is in the URL, a redirect that stores it in a cookie."""
        if self.token is None:
            return None
        query = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        if scope["path"] == "/" and self._is_token(query.pop("token", [""])[0]):
            rest = f"?{urlencode(query, doseq=True)}" if query else ""
            response = RedirectResponse(f"/{rest}", 303)
            response.set_cookie(self._cookie, self.token, httponly=True, samesite="strict")
            return response
        if not any(self._is_token(token) for token in self._tokens_in(headers)):
            expected = "the address with ?token=… that headscope serve printed"
            raise Refusal(401, "the token is missing or wrong", expected=expected)
        return None

    def _tokens_in(self, headers: Headers) -> list[str]:
        """The tokens in the header `x-headscope-token` and in the cookies."""
        tokens = headers.getlist(TOKEN_HEADER)
        for line in headers.getlist("cookie"):
            try:
                cookie = SimpleCookie(line).get(self._cookie)
            except CookieError:
                continue
            if cookie is not None:
                tokens.append(cookie.value)
        return tokens

    def _is_token(self, text: str) -> bool:
        assert self.token is not None
        return hmac.compare_digest(text.encode("utf-8", "surrogatepass"), self.token.encode())

    @property
    def _cookie(self) -> str:
        return f"headscope-{self.port}"


def _host_name(host: str) -> str:
    """The name in a Host header, without the port; empty if the header is malformed."""
    if not _can_be_split(f"//{host}"):
        return ""
    parts = urlsplit(f"//{host}")
    if parts.netloc != host or parts.username is not None or parts.password is not None:
        return ""
    return (parts.hostname or "").lower()


def _can_be_split(url: str) -> bool:
    try:
        urlsplit(url).port  # noqa: B018  # urlsplit checks the port only when it is read
    except ValueError:
        return False
    return True
