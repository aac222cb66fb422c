"""serve, the verb: the explorer of a model, on this machine, until it is stopped."""

from __future__ import annotations

import errno
import re
import secrets
import socket
import threading
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Self

import uvicorn

from headscope.errors import HeadscopeError, reason
from headscope.explorer.guard import Guard, is_loopback
from headscope.explorer.server import Server
from headscope.explorer.session import Session, States
from headscope.explorer.study_view import StudyView
from headscope.model.attention_model import AttentionModel
from headscope.model.load import load
from headscope.study.study import Study

HOST = "127.0.0.1"
PORT = 8760
TRIED_PORTS = 20
_TOKEN = re.compile(r"[A-Za-z0-9_-]{8,}")


class Explorer:
    """A server that runs in a thread of its own. `url` is where; `stop` ends it, and so does leaving a `with`."""

    def __init__(self, server: Server, listening: socket.socket, host: str, token: str | None) -> None:
        port = listening.getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{port}/" + ("" if token is None else f"?token={token}")
        self.server, self.host, self.port, self.token = server, host, port, token
        config = uvicorn.Config(
            Guard(server.app(), host, token, port),
            http="h11",
            ws="none",
            lifespan="off",
            log_level="error",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=3,
        )
        self._uvicorn = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._uvicorn.run, kwargs={"sockets": [listening]}, name="explorer", daemon=True
        )
        self._thread.start()

    def wait(self) -> None:
        """Until it is stopped, or interrupted by Ctrl-C."""
        while self._thread.is_alive():
            self._thread.join(0.5)

    def stop(self) -> None:
        self._uvicorn.should_exit = True
        self._thread.join()
        self.server.model_thread.shutdown(wait=False, cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"Explorer({self.url!r})"


def serve(
    model: AttentionModel | str | Path,
    *,
    study: Study | str | Path | None = None,
    compare: AttentionModel | str | Path | None = None,
    host: str = HOST,
    port: int = PORT,
    token: str | None = None,
    browser: bool = True,
    wait: bool = True,
    max_length: int | None = None,
    say: Callable[[str], None] = print,
) -> Explorer:
    """Show a model in the browser: its heads on any text, and what it says without some of them.

    study    what headscope analyze, importance or prune found out about it
    compare  a second model beside it
    host     where to listen; elsewhere than on this machine a token is needed, and made if none is given
    port     taken: the next one that is free
    wait     until Ctrl-C; otherwise it runs until `.stop()`
    """
    check_token(token)
    if token is None and not is_loopback(host):
        token = secrets.token_urlsafe(24)
    study = Study(study) if isinstance(study, str | Path) else study
    listening, taken = _listen(host, port)
    try:
        states = States()
        named = {"a": model} if compare is None else {"a": model, "b": compare}
        models = {name: one if isinstance(one, AttentionModel) else load(one) for name, one in named.items()}
        sessions = {name: Session(name, one, states, max_length=max_length) for name, one in models.items()}
        view = None if study is None else StudyView(study, models["a"])
        explorer = Explorer(Server(sessions, states, view), listening, host, token)
    except BaseException:
        listening.close()
        raise
    if taken:
        say(f"port {port} is taken: this is {explorer.port}")
    say(explorer.url)
    if browser:
        webbrowser.open(explorer.url)
    if wait:
        with explorer:
            _until_interrupted(explorer, say)
    return explorer


def _until_interrupted(explorer: Explorer, say: Callable[[str], None]) -> None:
    say("Ctrl-C ends it")
    try:
        explorer.wait()
    except KeyboardInterrupt:
        say("ended")


def check_token(token: str | None) -> None:
    """Refuse a token that an address or a cookie cannot carry as it is, or that is soon guessed."""
    if token is not None and not _TOKEN.fullmatch(token):
        raise HeadscopeError(
            "the token cannot be used",
            where="--token",
            expected="eight or more letters, digits, dashes and underscores",
        )


def _listen(host: str, port: int) -> tuple[socket.socket, bool]:
    """A socket on this port or, where it is taken, on the next that is free; and whether it was taken."""
    if not 0 <= port <= 65535:
        raise HeadscopeError(f"{port} is not a port", where="--port", expected="0 (any) to 65535")
    last = min(port + TRIED_PORTS, 65536)
    for tried in range(port, last):
        try:
            return _bound(host, tried), tried != port
        except OSError as cause:
            if cause.errno != errno.EADDRINUSE:
                raise HeadscopeError(
                    f"cannot listen on {host} port {tried} ({reason(cause)})", where="--host"
                ) from cause
    raise HeadscopeError(f"ports {port} to {last - 1} are all taken", where="--port", expected="a free port")


def _bound(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    made = socket.socket(family, kind, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(128)  # heard at once: a port that is bound alone may be taken by another
    except BaseException:
        made.close()
        raise
    return made
