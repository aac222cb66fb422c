"""serve, the verb: the explorer of a model, on this machine, until it is stopped."""

from __future__ import annotations

import errno
import secrets
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

import uvicorn

from headscope.analysis.join import join
from headscope.config.checks import check_token
from headscope.errors import HeadscopeError, reason
from headscope.explorer.addresses import addresses_of, in_address, is_everywhere, is_loopback
from headscope.explorer.guard import Guard
from headscope.explorer.server import Server
from headscope.explorer.session import Session, States
from headscope.explorer.study_view import StudyView
from headscope.model.attention_model import AttentionModel
from headscope.model.load import load
from headscope.report.study_access import model_name
from headscope.study.study import Study

HOST = "127.0.0.1"
PORT = 8760
TRIED_PORTS = 20
Given = Study | str | Path


def say_at_once(line: str) -> None:
    """Also where output goes to a file: whoever waits for the address finds it there."""
    print(line, flush=True)


class Explorer:
    """A server that runs in a thread of its own. `stop` ends it, and so does leaving a `with`.

    url        where it is, for this machine
    elsewhere  the same for other machines, where it listens on all addresses of this one
    """

    def __init__(
        self, server: Server, listening: socket.socket, host: str, token: str | None
    ) -> None:
        port = listening.getsockname()[1]
        end = "" if token is None else f"?token={token}"
        names = [host, *addresses_of(host)]
        if is_everywhere(host):
            names[0] = "[::1]" if ":" in host else "127.0.0.1"
        self.url, *self.elsewhere = (f"http://{in_address(name)}:{port}/{end}" for name in names)
        self.server, self.host, self.port, self.token = server, host, port, token
        config = uvicorn.Config(
            Guard(server.app(), host, token, port),
            http="h11",
            ws="none",
            lifespan="off",
            log_level="error",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=2,
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
        """End it: pages that wait for the model are told so, and work under way is not waited for."""
        self.server.model_thread.end()
        self._uvicorn.should_exit = True
        self._thread.join()

    @property
    def is_working(self) -> bool:
        """Whether the model is at work, also after `stop` where that work could not be stopped soon."""
        return self.server.model_thread.is_alive

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"Explorer({self.url!r})"


def serve(
    model: AttentionModel | str | Path,
    *,
    study: Given | Sequence[Given] | None = None,
    compare: AttentionModel | str | Path | None = None,
    host: str = HOST,
    port: int = PORT,
    token: str | None = None,
    browser: bool = True,
    wait: bool = True,
    max_length: int | None = None,
    say: Callable[[str], None] = say_at_once,
) -> Explorer:
    """Show a model in the browser: its heads on any text, and what it says without some of them.

    study    what headscope analyze, importance or prune found out about it; several are joined as by headscope.join
    compare  a second model beside it
    host     where to listen; elsewhere than on this machine a token is needed, and made if none is given
    port     taken: the next one that is free
    wait     until Ctrl-C; otherwise it runs until `.stop()`
    """
    check_token(token)
    if token is None and not is_loopback(host):
        token = secrets.token_urlsafe(24)
    found, notes = studied(study)
    listening, taken = _listen(host, port)
    try:
        states = States()
        named = {"a": model} if compare is None else {"a": model, "b": compare}
        models = {
            name: one if isinstance(one, AttentionModel) else _loaded(one)
            for name, one in named.items()
        }
        sessions = {
            name: Session(name, one, states, max_length=max_length) for name, one in models.items()
        }
        view = None if found is None else StudyView(found, models["a"])
        explorer = Explorer(Server(sessions, states, view), listening, host, token)
    except BaseException:
        listening.close()
        raise
    for note in notes:
        say(f"note: {note}")
    if taken:
        say(f"port {port} is taken: this is {explorer.port}")
    say(explorer.url)
    if explorer.elsewhere:
        say(f"from other machines: {' or '.join(explorer.elsewhere)}")
    if browser:
        webbrowser.open(explorer.url)
    if wait:
        with explorer:
            _until_interrupted(explorer, say)
    return explorer


def _loaded(model: str | Path) -> AttentionModel:
    print(f"loading {model} …", file=sys.stderr, flush=True)
    return load(model)


def _until_interrupted(explorer: Explorer, say: Callable[[str], None]) -> None:
    say("Ctrl-C ends it")
    try:
        explorer.wait()
    except KeyboardInterrupt:
        say("ended")


def studied(given: Given | Sequence[Given] | None) -> tuple[Study | None, list[str]]:
    """The studies of a model as one, and how they were joined; studies of several models are refused."""
    if given is None or isinstance(given, Study):
        return given, []
    studies = [given] if isinstance(given, str | Path) else list(given)
    if not studies:
        return None, []
    chapters = join(studies).chapters
    if len(chapters) != 1:
        named = " and ".join(
            f"{chapter.members[0].name} of {model_name(chapter.study)}" for chapter in chapters
        )
        raise HeadscopeError(
            f"the studies are of different models: {named}" if chapters else "this is a comparison",
            where="`study`",
            expected="studies of one model",
        )
    return chapters[0].study, list(chapters[0].notes)


def _listen(host: str, port: int) -> tuple[socket.socket, bool]:
    """A socket on this port or, where it is taken, on the next that is free; and whether it was taken."""
    if not 0 <= port <= 65535:
        raise HeadscopeError(f"{port} is not a port", where="`port`", expected="0 (any) to 65535")
    last = min(port + TRIED_PORTS, 65536)
    for tried in range(port, last):
        try:
            return _bound(host, tried), tried != port
        except OSError as cause:
            if cause.errno != errno.EADDRINUSE:
                raise HeadscopeError(
                    f"cannot listen on {host} port {tried} ({reason(cause)})", where="`host`"
                ) from cause
    raise HeadscopeError(
        f"ports {port} to {last - 1} are all taken", where="`port`", expected="a free port"
    )


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
