"""Who may ask the model next: one at a time, few waiting, and nothing that its page no longer wants.

A page numbers its requests. Once a newer one of the same page has come, older ones are refused, also those that wait.
Everything here happens in one event loop, between awaits: no locks.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from headscope.explorer.responses import Refusal

WAITING = 8
KNOWN_PAGES = 256


@dataclass(frozen=True)
class _Waiting:
    page: str
    turn: int | None
    called: asyncio.Future[None]


class RequestQueue:
    """The line before the model."""

    def __init__(self, most: int = WAITING) -> None:
        self.most = most
        self._waiting: deque[_Waiting] = deque()
        self._is_busy = False
        self._newest: OrderedDict[str, int] = OrderedDict()  # turns by page, the latest pages

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @asynccontextmanager
    async def place(self, page: str, turn: int | None) -> AsyncIterator[None]:
        """The model, as soon as it is free; refused where this request is stale or too many wait."""
        self._meet(page, turn)
        if self._is_busy:
            await self._wait(page, turn)
        self._is_busy = True
        try:
            yield
        finally:
            self._call_next()

    def _meet(self, page: str, turn: int | None) -> None:
        if turn is None:
            return
        newest = self._newest.get(page, turn)
        if turn < newest:
            raise _stale(turn, newest)
        self._newest[page] = turn
        self._newest.move_to_end(page)
        if len(self._newest) > KNOWN_PAGES:
            self._newest.popitem(last=False)
        for one in list(self._waiting):
            if one.page == page and one.turn is not None and one.turn < turn:
                self._waiting.remove(one)
                if not one.called.done():
                    one.called.set_exception(_stale(one.turn, turn))

    async def _wait(self, page: str, turn: int | None) -> None:
        if len(self._waiting) >= self.most:
            raise Refusal(429, f"{self.most} requests wait already", fix="Ask again in a moment")
        mine = _Waiting(page, turn, asyncio.get_running_loop().create_future())
        self._waiting.append(mine)
        try:
            await mine.called
        except asyncio.CancelledError:
            called = mine.called
            if mine in self._waiting:
                self._waiting.remove(mine)
            elif called.done() and not called.cancelled() and called.exception() is None:
                self._call_next()  # it was this one's turn when it went away
            raise

    def _call_next(self) -> None:
        while self._waiting:
            following = self._waiting.popleft()
            if not following.called.done():
                following.called.set_result(None)  # busy stays true: it passes from hand to hand
                return
        self._is_busy = False


def _stale(turn: int, newest: int) -> Refusal:
    what = f"turn {turn} is over: this page has asked turn {newest} since"
    return Refusal(409, what, fix="Nothing is to be done")
