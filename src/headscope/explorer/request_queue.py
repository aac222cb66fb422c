"""The queue for the model: one request runs at a time, a few wait, and stale ones are refused.

A page numbers its requests (`turn`). A waiting request is refused as soon as the same page sends a newer one.
All code runs in one event loop and changes the state only between awaits, so it needs no locks.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from headscope.explorer.responses import Refusal

MOST_WAITING = 8
MOST_PAGES = 256  # number of pages whose newest turns are stored


@dataclass(frozen=True)
class _Waiter:
    page: str
    turn: int | None
    ready: asyncio.Future[None]


class RequestQueue:
    """The requests that wait for the model, at most `most`."""

    def __init__(self, most: int = MOST_WAITING) -> None:
        self.most = most
        self._waiting: deque[_Waiter] = deque()
        self._is_busy = False
        # Newest turn by page, for the most recent pages.
        self._newest: OrderedDict[str, int] = OrderedDict()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @asynccontextmanager
    async def acquire(self, page: str, turn: int | None) -> AsyncIterator[None]:
        """Wait until the model is free and hold it; raise a Refusal if this request is stale or too many wait."""
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
        """Store the newest turn of a page, and refuse its older requests that still wait."""
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
                self._release()  # cancelled after the model was handed to it: hand it on
            raise

    def _release(self) -> None:
        """Hand the model to the next request that still waits."""
        while self._waiting:
            ready = self._waiting.popleft().ready
            if not ready.done():
                # `_is_busy` stays True: the next request holds the model now.
                ready.set_result(None)
                return
        self._is_busy = False


def _stale(turn: int, newest: int) -> Refusal:
    what = f"turn {turn} is stale: this page has sent turn {newest} since"
    return Refusal(409, what, fix="Nothing to do")
