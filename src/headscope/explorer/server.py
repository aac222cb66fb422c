"""The HTTP interface of the explorer (docs/reference/explorer.md): routes and their handlers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from headscope.config.command_line import command_line
from headscope.errors import HeadscopeError, reason
from headscope.explorer.model_thread import ModelThread
from headscope.explorer.predictions import TextVectors
from headscope.explorer.request_queue import MOST_WAITING, RequestQueue
from headscope.explorer.requests import BODY_BYTES, AttendRequest, read_attend_request
from headscope.explorer.responses import Refusal, error_response, json_response
from headscope.explorer.session import Session, State, States
from headscope.explorer.state_maps import (
    THUMBNAIL_SIDE,
    check_comparable,
    difference,
    largest_difference,
    layer_maps,
    no_stack,
    thumbnails,
)
from headscope.explorer.study_view import StudyView
from headscope.report.look.encoding import encode_maps

STATIC = Path(__file__).parent / "static"
BYTES = "application/octet-stream"
MOST_DIGITS = 20  # of a layer number in a URL


class Server:
    """The sessions (one per model), their states, and the handlers of all requests.

    All models run in one thread, one request at a time. Maps are packed into bytes in other threads meanwhile.
    """

    def __init__(
        self, sessions: Mapping[str, Session], states: States, study: StudyView | None = None
    ) -> None:
        self.sessions, self.states, self.study = dict(sessions), states, study
        self.queue = RequestQueue()
        self.model_thread = ModelThread()
        self._about = {
            "models": [session.about() for session in self.sessions.values()],
            "study": None if study is None else study.about,
            "limits": {
                "body_bytes": BODY_BYTES,
                "waiting": MOST_WAITING,
                "thumbnail": THUMBNAIL_SIDE,
            },
        }

    def app(self) -> Starlette:
        routes: list[BaseRoute] = [
            Route("/", self.page),
            Route("/api/about", self.about),
            Route("/api/attend", self.attend, methods=["POST"]),
            Route("/api/maps/{id}/{stack}/{layer}", self.maps),
            Route("/api/thumbnails/{id}/{stack}", self.thumbnails),
            Route("/api/difference/{one}/{other}/{stack}/{layer}", self.difference),
            Route("/api/difference/{one}/{other}/{stack}", self.difference_scale),
            Route("/api/alike/{one}/{other}", self.alike),
            Route("/api/translate", self.translate, methods=["POST"]),
            Route("/api/study/heads", self.study_heads),
            Route("/api/study/cards/{head}", self.study_card),
            Route("/api/study/examples/{head}", self.study_examples),
        ]
        if STATIC.is_dir():  # false in a checkout whose page was not built
            routes.append(Mount("/static", StaticFiles(directory=STATIC)))
        handlers = {HeadscopeError: _refuse, HTTPException: _refuse_http, Exception: _fail}
        return Starlette(routes=routes, exception_handlers=cast("Any", handlers))

    async def page(self, request: Request) -> Response:
        if not (STATIC / "index.html").is_file():
            raise Refusal(404, "the explorer's page was not built", fix="In a checkout: make web")
        return FileResponse(STATIC / "index.html", headers={"Cache-Control": "no-cache"})

    async def about(self, request: Request) -> Response:
        return json_response(self._about)

    async def attend(self, request: Request) -> Response:
        body = await read_attend_request(request)
        attend = self._session(body.model).attend
        answer = await self._run(body, attend, body.text, body.second, body.off, body.lens)
        return json_response(answer)

    async def maps(self, request: Request) -> Response:
        state = self._state(request.path_params["id"])
        stack, layer = request.path_params["stack"], _layer_number(request)
        site, maps = layer_maps(state, stack, layer)
        places = [(layer, head.head) for head in site.heads(len(maps))]
        name = f"{state.id}-{stack}-{layer}"
        signed = state.is_signed
        return await _bytes(request, name, lambda: encode_maps(places, maps, signed=signed))

    async def difference(self, request: Request) -> Response:
        """The maps of the second state minus those of the first, for the heads that both have."""
        layer = _layer_number(request)
        first, second, stack = self._two_states(request)

        def pack() -> bytes:
            numbers, maps = difference(first, second, stack, layer)
            return encode_maps([(layer, number) for number in numbers], maps, signed=True)

        return await _bytes(request, f"{first.id}-{second.id}-{stack}-{layer}", pack)

    async def difference_scale(self, request: Request) -> Response:
        """The largest absolute difference in a stack, where the colour scale ends."""
        largest = await asyncio.to_thread(largest_difference, *self._two_states(request))
        return json_response({"full": largest})

    async def alike(self, request: Request) -> Response:
        """For each text the cosine of the two models' embeddings; null if their dimensions differ."""
        first, second = (self._state(request.path_params[name]) for name in ("one", "other"))
        if (first.kind, second.kind) != (TextVectors.kind, TextVectors.kind):
            raise Refusal(422, "these models do not embed texts", expected="two sentence encoders")
        texts = [(state.reading.text, state.reading.second) for state in (first, second)]
        if texts[0] != texts[1]:
            raise Refusal(422, "the two states are of different texts", expected="the same text")
        if first.answer.shape != second.answer.shape:
            return json_response({"cosines": None})
        cosines = (first.answer * second.answer).sum(dim=-1)
        return json_response({"cosines": cosines.tolist()})

    async def thumbnails(self, request: Request) -> Response:
        state = self._state(request.path_params["id"])
        stack = request.path_params["stack"]
        sites = {site: maps for site, maps in state.weights.items() if site.stack == stack}
        if not sites:
            raise no_stack(stack, state)
        heads = [head for site, maps in sites.items() for head in site.heads(len(maps))]
        places = [(head.layer, head.head) for head in heads]

        def pack() -> bytes:
            small = np.concatenate([thumbnails(maps) for maps in sites.values()])
            return encode_maps(places, small, signed=state.is_signed)

        return await _bytes(request, f"{state.id}-{stack}", pack)

    async def translate(self, request: Request) -> Response:
        body = await read_attend_request(request)
        session = self._session(body.model)
        return json_response(await self._run(body, session.translate, body.text, body.off))

    async def study_heads(self, request: Request) -> Response:
        return json_response(self._study().heads)

    async def study_card(self, request: Request) -> Response:
        study = self._study()
        return json_response(study.card(study.head(request.path_params["head"])))

    async def study_examples(self, request: Request) -> Response:
        study = self._study()
        head = study.head(request.path_params["head"])
        # In the model's thread, since the tokenizer is used.
        return json_response(await self.model_thread.run(study.examples.of, head))

    def _study(self) -> StudyView:
        if self.study is None:
            start = command_line("serve", "MODEL", study="DIR")
            raise Refusal(404, "there is no study", fix=f"Start it with one: {start}")
        return self.study

    async def _run(
        self, request: AttendRequest, function: Callable[..., Any], *arguments: Any
    ) -> Any:
        """Wait in the queue, then call a function in the model's thread."""
        async with self.queue.acquire(request.client, request.turn):
            try:
                return await self.model_thread.run(function, *arguments)
            except MemoryError as cause:
                what = "there is not enough memory for this"
                raise Refusal(503, what, fix="Ask for a shorter text") from cause

    def _session(self, name: str) -> Session:
        if name not in self.sessions:
            expected = " or ".join(self.sessions)
            raise Refusal(404, f'there is no model "{name[:40]}"', expected=expected)
        return self.sessions[name]

    def _state(self, name: str) -> State:
        state = self.states.find(name)
        if state is None:
            raise Refusal(404, "this state is no longer in memory", fix="Ask /api/attend again")
        return state

    def _two_states(self, request: Request) -> tuple[State, State, str]:
        """Two states, and the stack in which they are compared."""
        names = request.path_params
        first, second = self._state(names["one"]), self._state(names["other"])
        check_comparable(first, second, names["stack"])
        return first, second, names["stack"]


async def _bytes(request: Request, name: str, pack: Callable[[], bytes]) -> Response:
    """The packed maps; status 304 if the browser has them. A state never changes, so the ETag is its name."""
    tag = f'"{name}"'
    headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
    if tag in request.headers.get("if-none-match", "").replace(" ", "").split(","):
        return Response(status_code=304, headers=headers)
    return Response(await asyncio.to_thread(pack), media_type=BYTES, headers=headers)


def _layer_number(request: Request) -> int:
    """The layer number in a URL. Its length is limited, because int() raises an error for thousands of digits."""
    text = request.path_params["layer"]
    if not (text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS):
        raise Refusal(404, f'"{text[:40]}" is not a layer', expected="a number such as 3")
    return int(text)


async def _refuse(request: Request, error: HeadscopeError) -> Response:
    return error_response(error)


async def _refuse_http(request: Request, error: HTTPException) -> Response:
    message = f"{error.detail}. Expected an address of docs/reference/explorer.md."
    return json_response({"error": message}, error.status_code)


async def _fail(request: Request, error: Exception) -> Response:
    """Answer an internal error with one line. Starlette raises the error again, so the server prints its traceback."""
    message = f"the server failed ({reason(error)}). Its terminal shows the traceback."
    return json_response({"error": message}, 500)
