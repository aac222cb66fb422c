"""The HTTP interface of the explorer (docs/explorer.md): routes, and one thread for the model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from headscope.config.command_line import command_line
from headscope.errors import HeadscopeError, reason
from headscope.explorer.model_thread import ModelThread
from headscope.explorer.predictions import Alike
from headscope.explorer.request_queue import WAITING, RequestQueue
from headscope.explorer.requests import BODY_BYTES, AskedToAttend, body_of
from headscope.explorer.responses import Refusal, answered, refused
from headscope.explorer.session import Session, State, States
from headscope.explorer.study_view import StudyView
from headscope.explorer.thumbnails import SIDE, thumbnails
from headscope.heads import Site
from headscope.report.look.encoding import packed

STATIC = Path(__file__).parent / "static"
BYTES = "application/octet-stream"
MOST_DIGITS = 20  # of a number in an address


class Server:
    """The sessions, what they remember, and the answers to every request.

    The model runs in a thread of its own, one request at a time; maps are packed in other threads meanwhile.
    """

    def __init__(
        self, sessions: Mapping[str, Session], states: States, study: StudyView | None = None
    ) -> None:
        self.sessions, self.states, self.study = dict(sessions), states, study
        self.line = RequestQueue()
        self.model_thread = ModelThread()
        self._about = {
            "models": [session.about() for session in self.sessions.values()],
            "study": None if study is None else study.told,
            "limits": {"body_bytes": BODY_BYTES, "waiting": WAITING, "thumbnail": SIDE},
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
        if STATIC.is_dir():  # not in a checkout whose page was not built
            routes.append(Mount("/static", StaticFiles(directory=STATIC)))
        handlers = {HeadscopeError: _refuse, HTTPException: _refuse_http, Exception: _fail}
        return Starlette(routes=routes, exception_handlers=cast("Any", handlers))

    async def page(self, request: Request) -> Response:
        if not (STATIC / "index.html").is_file():
            raise Refusal(404, "the explorer's page was not built", fix="In a checkout: make web")
        return FileResponse(STATIC / "index.html", headers={"Cache-Control": "no-cache"})

    async def about(self, request: Request) -> Response:
        return answered(self._about)

    async def attend(self, request: Request) -> Response:
        asked = AskedToAttend.of(await body_of(request))
        question = (asked.text, asked.second, asked.off, asked.lens)
        return answered(await self._run(asked, self._session(asked.model).attend, *question))

    async def maps(self, request: Request) -> Response:
        state = self._state(request.path_params["id"])
        stack, layer = request.path_params["stack"], _number(request.path_params["layer"])
        site, maps = _layer(state, stack, layer)
        places = [(layer, head.head) for head in site.heads(len(maps))]
        name = f"{state.id}-{stack}-{layer}"
        return await _bytes(request, name, lambda: packed(places, maps, signed=state.is_signed))

    async def difference(self, request: Request) -> Response:
        """The other's maps minus the one's, of the heads that both have."""
        given = request.path_params
        stack, layer = given["stack"], _number(given["layer"])
        one, other = self._two_states(given["one"], given["other"], stack)
        numbers, _ = _in_common(one, other, stack, layer)
        places = [(layer, number) for number in numbers]

        def pack() -> bytes:
            return packed(places, _apart(one, other, stack, layer), signed=True)

        return await _bytes(request, f"{one.id}-{other.id}-{stack}-{layer}", pack)

    async def difference_scale(self, request: Request) -> Response:
        """What the deepest colour of all differences of a stack stands for."""
        given = request.path_params
        one, other = self._two_states(given["one"], given["other"], given["stack"])
        layers = [site.layer for site in one.weights if site.stack == given["stack"]]

        def largest() -> float:
            apart = (_apart(one, other, given["stack"], layer) for layer in layers)
            sizes = [float(np.abs(maps).max(initial=0)) for maps in apart]
            return float(f"{max(sizes, default=0):.5g}") or 1.0

        return answered({"full": await asyncio.to_thread(largest)})

    async def alike(self, request: Request) -> Response:
        """The cosine of what two models made of each text; null where their vectors have different lengths."""
        one, other = (self._state(request.path_params[name]) for name in ("one", "other"))
        if (one.kind, other.kind) != (Alike.kind, Alike.kind):
            raise Refusal(422, "these models do not give vectors", expected="two sentence encoders")
        if (one.reading.text, one.reading.second) != (other.reading.text, other.reading.second):
            raise Refusal(422, "the two states are of different texts", expected="the same text")
        if one.answer.shape != other.answer.shape:
            return answered({"cosines": None})
        return answered({"cosines": (one.answer * other.answer).sum(dim=-1).tolist()})

    def _two_states(self, name: str, other_name: str, stack: str) -> tuple[State, State]:
        """Two states whose maps of this stack can be compared."""
        one, other = self._state(name), self._state(other_name)
        for state in (one, other):
            if stack not in state.sides:
                raise _no_stack(stack, state)
        tokens = [[side.tokens for side in state.sides[stack]] for state in (one, other)]
        if tokens[0] != tokens[1]:
            what = "the two states are of different tokens"
            raise Refusal(422, what, expected="the same text, tokenized alike")
        return one, other

    async def thumbnails(self, request: Request) -> Response:
        state = self._state(request.path_params["id"])
        stack = request.path_params["stack"]
        sites = {site: maps for site, maps in state.weights.items() if site.stack == stack}
        if not sites:
            raise _no_stack(stack, state)
        heads = [head for site, maps in sites.items() for head in site.heads(len(maps))]
        places = [(head.layer, head.head) for head in heads]

        def pack() -> bytes:
            small = np.concatenate([thumbnails(maps) for maps in sites.values()])
            return packed(places, small, signed=state.is_signed)

        return await _bytes(request, f"{state.id}-{stack}", pack)

    async def translate(self, request: Request) -> Response:
        asked = AskedToAttend.of(await body_of(request))
        session = self._session(asked.model)
        return answered(await self._run(asked, session.translate, asked.text, asked.off))

    async def study_heads(self, request: Request) -> Response:
        return answered(self._study().told_heads)

    async def study_card(self, request: Request) -> Response:
        study = self._study()
        return answered(study.card(study.head(request.path_params["head"])))

    async def study_examples(self, request: Request) -> Response:
        study = self._study()
        head, longest = study.head(request.path_params["head"]), self.sessions["a"].max_tokens
        # In the model's thread, since the tokenizer is used.
        return answered(await self.model_thread.run(study.examples, head, longest))

    def _study(self) -> StudyView:
        if self.study is None:
            start = command_line("serve", "MODEL", study="DIR")
            raise Refusal(404, "there is no study", fix=f"Start it with one: {start}")
        return self.study

    async def _run(self, asked: AskedToAttend, work: Callable[..., Any], *given: Any) -> Any:
        """What the model's thread makes of it, when it is this request's turn."""
        async with self.line.place(asked.client, asked.turn):
            try:
                return await self.model_thread.run(work, *given)
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
            raise Refusal(404, "this state is forgotten", fix="Ask /api/attend again")
        return state


async def _bytes(request: Request, name: str, pack: Callable[[], bytes]) -> Response:
    """Bytes that are made when the browser does not have them already; a state never changes, so its name tells."""
    tag = f'"{name}"'
    headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
    if tag in request.headers.get("if-none-match", "").replace(" ", "").split(","):
        return Response(status_code=304, headers=headers)
    return Response(await asyncio.to_thread(pack), media_type=BYTES, headers=headers)


def _number(text: str) -> int:
    """The number of a layer in an address: Python refuses to read one of thousands of digits."""
    if not (text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS):
        raise Refusal(404, f'"{text[:40]}" is no layer', expected="a number such as 3")
    return int(text)


def _layer(state: State, stack: str, layer: int) -> tuple[Site, NDArray[np.float32]]:
    for site, maps in state.weights.items():
        if site == Site(stack, layer):
            return site, maps
    what = f'there are no maps of "{stack[:40]}" layer {layer} in this state'
    raise Refusal(404, what, expected=_extent(state))


def _in_common(
    one: State, other: State, stack: str, layer: int
) -> tuple[list[int], tuple[Site, Site]]:
    """The heads of a layer that both have, and where they are."""
    (site, maps), (other_site, other_maps) = _layer(one, stack, layer), _layer(other, stack, layer)
    numbers = {head.head for head in site.heads(len(maps))}
    both = [head.head for head in other_site.heads(len(other_maps)) if head.head in numbers]
    if not both:
        what = f"the two have no head of {stack} layer {layer} in common"
        raise Refusal(422, what, expected="heads that both have")
    return both, (site, other_site)


def _apart(one: State, other: State, stack: str, layer: int) -> NDArray[np.float32]:
    """[head, query, key]: the other's minus the one's, of the heads that both have; none where they have none."""
    try:
        both, (site, other_site) = _in_common(one, other, stack, layer)
    except Refusal:
        return np.zeros((0, 1, 1), np.float32)
    before, after = one.weights[site], other.weights[other_site]
    difference: NDArray[np.float32] = (
        after[[other_site.index_of(n) for n in both]] - before[[site.index_of(n) for n in both]]
    )
    return difference


def _no_stack(stack: str, state: State) -> Refusal:
    return Refusal(404, f'there is no stack "{stack[:40]}" in this state', expected=_extent(state))


def _extent(state: State) -> str:
    layers: dict[str, list[str]] = {site.stack: [] for site in state.weights}
    for site in state.weights:
        layers[site.stack].append(str(site.layer))
    return ", ".join(f"{stack} layers {', '.join(numbers)}" for stack, numbers in layers.items())


async def _refuse(request: Request, error: HeadscopeError) -> Response:
    return refused(error)


async def _refuse_http(request: Request, error: HTTPException) -> Response:
    message = f"{error.detail}. Expected an address of docs/explorer.md."
    return answered({"error": message}, error.status_code)


async def _fail(request: Request, error: Exception) -> Response:
    """A mistake of ours: one line for the page. The traceback is printed where the server runs, which lives on."""
    return answered({"error": f"the server failed ({reason(error)}). Its terminal says more."}, 500)
