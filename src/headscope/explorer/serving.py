"""The explorer of a model as a running server: start, wait, stop."""

from __future__ import annotations

import errno
import secrets
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import uvicorn

from headscope.analysis.join import join
from headscope.config.option import fill
from headscope.config.serve import ServeConfig
from headscope.config.shared import Reading, Run, no_log
from headscope.errors import HeadscopeError, reason
from headscope.explorer.addresses import addresses_of, in_url, is_everywhere, is_loopback
from headscope.explorer.guard import Guard
from headscope.explorer.predictions import TextVectors, prediction_of
from headscope.explorer.server import Server
from headscope.explorer.session import Session, States
from headscope.explorer.study_view import StudyView
from headscope.masks.open_model import open_model
from headscope.model import zoo
from headscope.model.attention_model import AttentionModel
from headscope.report.study_access import model_name
from headscope.study.study import Study

TRIED_PORTS = 20
DEFAULT_MODEL = (
    "smollm2"  # predicts the next word, where the effect of ablating a head is easy to read
)
StudySource = Study | str | Path  # a study, or the directory of one


def print_line(line: str) -> None:
    """Print a line and flush it at once, since programs may read the address from a file or pipe."""
    print(line, flush=True)


class Explorer:
    """A running server, in a thread of its own. It ends with `stop()` or at the end of a `with` block.

    url        its address on this machine
    elsewhere  its addresses for other machines, if it listens on all addresses of this one
    """

    def __init__(
        self, server: Server, listening: socket.socket, host: str, token: str | None
    ) -> None:
        port = listening.getsockname()[1]
        end = "" if token is None else f"?token={token}"
        names = [host, *addresses_of(host)]
        if is_everywhere(host):
            names[0] = "[::1]" if ":" in host else "127.0.0.1"
        self.url, *self.elsewhere = (f"http://{in_url(name)}:{port}/{end}" for name in names)
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
        """Block until the server is stopped. Ctrl-C raises KeyboardInterrupt here."""
        while self._thread.is_alive():
            self._thread.join(0.5)

    def stop(self) -> None:
        """Stop the server: pending requests are refused, and running ones are not waited for."""
        self.server.model_thread.end()
        self._uvicorn.should_exit = True
        self._thread.join()

    @property
    def is_working(self) -> bool:
        """Whether the model's thread still runs. It may do so for a while after `stop`."""
        return self.server.model_thread.is_alive

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"Explorer({self.url!r})"


def serve(
    model: AttentionModel | str | Path | None = None,
    config: ServeConfig | None = None,
    *,
    reading: Reading | None = None,
    run: Run | None = None,
    **options: Any,
) -> Explorer:
    """Explore a model in the browser: its heads on any text, and its predictions without some of them.

    Parameters
    ----------
    model
        A loaded model, or the name, directory or hub id of one. By default smollm2, a small decoder. If smollm2 cannot
        be downloaded, a named model that is on this machine already is opened instead.
    config, reading, run
        Options; see `ServeConfig`, `Reading` and `Run`. The address and notes about the study and the port go to
        `run.log`, by default to stdout. Messages about loading models go to stderr. If the port is taken, the
        following ones are tried, 20 ports in all.
    **options
        Fields of these configs, instead of or in addition to them.

    Returns
    -------
    Explorer
        The running server (`url`, `stop()`), or the stopped one with `wait=True`, which is the default.

    Raises
    ------
    HeadscopeError
        If the model cannot be loaded, or if all 20 ports are taken.

    Examples
    --------
    >>> explorer = headscope.serve("minilm", wait=False)  # doctest: +SKIP
    >>> explorer.stop()  # doctest: +SKIP
    """
    config, reading, run = fill(
        "serve", options, (ServeConfig, config), (Reading, reading), (Run, run)
    )
    log = print_line if run.log is no_log else run.log
    token = config.token
    if token is None and not is_loopback(config.host):
        token = secrets.token_urlsafe(24)
    study, notes = read_studies(config.study)  # first: errors in it should not wait for the model
    listening = _listen(config.host, config.port)
    try:
        models = _open_models(model, config, reading, run)
        states = States()
        sessions = {
            name: Session(name, opened, states, max_length=config.max_length)
            for name, opened in models.items()
        }
        view = None if study is None else StudyView(study, models["a"], sessions["a"].max_tokens)
        explorer = Explorer(Server(sessions, states, view), listening, config.host, token)
    except BaseException:
        listening.close()
        raise
    for note in notes:
        log(f"note: {note}")
    if config.port not in (0, explorer.port):
        log(f"port {config.port} is taken, using {explorer.port}")
    log(explorer.url)
    if explorer.elsewhere:
        log(f"from other machines: {' or '.join(explorer.elsewhere)}")
    if config.browser:
        webbrowser.open(explorer.url)
    if config.wait:
        with explorer:
            log("Press Ctrl-C to stop")
            try:
                explorer.wait()
            except KeyboardInterrupt:
                log("stopped")
    return explorer


def _default_model(log: Callable[[str], None]) -> str:
    """The model to open if none is named: the default or, if it cannot be downloaded, one that is on this machine."""
    try:
        zoo.fetch(DEFAULT_MODEL, log)
    except HeadscopeError as error:
        present = [name for name in zoo.MODELS if zoo.find(name) is not None]
        if not present:
            raise
        log(f"note: {error} Opening {present[0]} instead, which is on this machine")
        return present[0]
    return DEFAULT_MODEL


def _open_models(
    model: AttentionModel | str | Path | None, config: ServeConfig, reading: Reading, run: Run
) -> dict[str, AttentionModel]:
    """The opened models by their ids on the page: `a` and, with `config.compare`, `b`."""
    # Messages about loading go to stderr; stdout gets only the lines that `serve` itself logs, such as the address.
    run = replace(run, log=partial(print, file=sys.stderr, flush=True))
    if model is None:
        model = _default_model(run.log)
        run.log(f"loading {model} …")
    models = {"a": open_model(model, reading, run)}
    if config.compare is not None:
        if not isinstance(config.compare, AttentionModel):
            run.log(f"loading {config.compare} …")
        same = replace(reading, mask=None, open_special=False)
        models["b"] = open_model(config.compare, same, replace(run, revision=None))
    pools = any(isinstance(prediction_of(opened), TextVectors) for opened in models.values())
    for name in ("pooling", "prompt"):
        if getattr(reading, name) is not None and not pools:
            raise HeadscopeError(
                "has no effect on this model, which does not embed texts",
                where=f"`{name}`",
                fix="Leave it out",
            )
    return models


def read_studies(
    source: StudySource | Sequence[StudySource] | None,
) -> tuple[Study | None, list[str]]:
    """Join the studies of one model, and return notes on how they were joined; raise an error for several models."""
    if source is None or isinstance(source, Study):
        return source, []
    studies = [source] if isinstance(source, str | Path) else list(source)
    if not studies:
        return None, []
    if len(studies) == 1 and isinstance(studies[0], Study):
        return studies[0], []
    chapters = join(studies).chapters
    if len(chapters) != 1:
        names = " and ".join(f"{c.members[0].name} of {model_name(c.study)}" for c in chapters)
        what = f"the studies must be of one model, got {names or 'a comparison'}"
        raise HeadscopeError(what, where="`study`", fix="Leave out those of other models")
    return chapters[0].study, list(chapters[0].notes)


def _listen(host: str, port: int) -> socket.socket:
    """A listening socket on this port or, if it is taken, on the first free one of the next 19."""
    last = min(port + TRIED_PORTS, 65536)
    for candidate in range(port, last):
        try:
            return _bind(host, candidate)
        except OSError as cause:
            if cause.errno != errno.EADDRINUSE:
                what = f"cannot listen on {host} port {candidate} ({reason(cause)})"
                raise HeadscopeError(what, where="`host`") from cause
    what = f"ports {port} to {last - 1} are all taken"
    raise HeadscopeError(what, where="`port`", fix="Choose another one")


def _bind(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        # At once, because another process can still take a port that is only bound.
        listening.listen(128)
    except BaseException:
        listening.close()
        raise
    return listening
