"""The queue for the model: one request runs at a time, few wait, and stale ones are dropped.

A page numbers its requests. A request is refused once a newer one of the same page has come, also while it waits.
Everything happens in one event loop, between awaits: no locks.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from headscope.explorer.responses import Refusal

MOST_WAITING = 8
MOST_PAGES = 256  # whose newest turns are remembered


@dataclass(frozen=True)
class _Waiter:
    page: str
    turn: int | None
    ready: asyncio.Future[None]


class RequestQueue:
    """Requests that wait for the model, at most `most` of them."""

    def __init__(self, most: int = MOST_WAITING) -> None:
        self.most = most
        self._waiting: deque[_Waiter] = deque()
        self._is_busy = False
        self._newest: OrderedDict[str, int] = OrderedDict()  # turns by page, the latest pages

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @asynccontextmanager
    async def acquire(self, page: str, turn: int | None) -> AsyncIterator[None]:
        """Hold the model as soon as it is free; refused if this request is stale or too many wait."""
        if turn is not None:
            self._register(page, turn)
        if self._is_busy:
            await self._wait(page, turn)
        self._is_busy = True
        try:
            yield
        finally:
            self._release()

    def _register(self, page: str, turn: int) -> None:
        """Note the newest turn of a page, and refuse its older ones that wait."""
        newest = self._newest.get(page, turn)
        if turn < newest:
            raise _stale(turn, newest)
        self._newest[page] = turn
        self._newest.move_to_end(page)
        if len(self._newest) > MOST_PAGES:
            self._newest.popitem(last=False)
        for waiter in list(self._waiting):
            if waiter.page == page and waiter.turn is not None and waiter.turn < turn:
                self._waiting.remove(waiter)
                if not waiter.ready.done():
                    waiter.ready.set_exception(_stale(waiter.turn, turn))

    async def _wait(self, page: str, turn: int | None) -> None:
        if len(self._waiting) >= self.most:
            raise Refusal(429, f"{self.most} requests wait already", fix="Try again in a moment")
        ready = asyncio.get_running_loop().create_future()
        waiter = _Waiter(page, turn, ready)
        self._waiting.append(waiter)
        try:
            await ready
        except asyncio.CancelledError:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            elif ready.done() and not ready.cancelled() and ready.exception() is None:
                self._release()  # it was cancelled when its turn had come
            raise

    def _release(self) -> None:
        """Hand the model to the next request that still waits."""
        while self._waiting:
            ready = self._waiting.popleft().ready
            if not ready.done():
                ready.set_result(None)  # busy stays true for the next one
                return
        self._is_busy = False


def _stale(turn: int, newest: int) -> Refusal:
    what = f"turn {turn} is stale: this page has sent turn {newest} since"
    return Refusal(409, what, fix="Nothing to do")
