"""The thread in which the model runs: one piece of work at a time, and none that keeps the program from ending.

A thread pool's threads are waited for when Python ends, however long their work takes. This one is not; when it is
ended, whoever waits for it is told so at once, and the work itself is stopped before the model's next layer.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any

from torch.nn.modules.module import register_module_forward_pre_hook

from headscope.explorer.responses import Refusal

STOPPING_SECONDS = 1.0  # that the work under way may take to come to its end


_Item = tuple[Future[Any], Callable[[], Any]]


class _Stopped(BaseException):
    """Ends work that nobody waits for: no handler of errors may take it for one of the model's."""


class ModelThread:
    """`await run(work, …)` gives what the work gives, or raises what it raises."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._waited_for: set[Future[Any]] = set()
        self._lock = threading.Lock()
        self._is_ended = False
        self._thread = threading.Thread(target=self._go_on, name="model", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    async def run(self, work: Callable[..., Any], *given: Any) -> Any:
        result: Future[Any] = Future()
        with self._lock:
            if self._is_ended:
                raise _ending()
            self._waited_for.add(result)
        result.add_done_callback(self._waited_for.discard)
        self._work.put((result, lambda: work(*given)))
        return await asyncio.wrap_future(result)

    def end(self) -> None:
        """Tell all who wait that nothing will come, and stop what is under way if it can be stopped soon."""
        with self._lock:
            self._is_ended = True
            waiting = list(self._waited_for)
        for result in waiting:
            with suppress(InvalidStateError):  # it came just now
                result.set_exception(_ending())
        self._work.put(None)
        handle = register_module_forward_pre_hook(self._stop_here)
        self._thread.join(STOPPING_SECONDS)
        handle.remove()

    def _stop_here(self, module: object, given: object) -> None:
        if threading.current_thread() is self._thread:
            raise _Stopped

    def _go_on(self) -> None:
        while (item := self._work.get()) is not None:
            result, work = item
            if not result.done():
                self._do(result, work)

    def _do(self, result: Future[Any], work: Callable[[], Any]) -> None:
        try:
            value = work()
        except _Stopped:
            return
        except BaseException as error:  # for whoever waits: this thread goes on
            with suppress(InvalidStateError):
                result.set_exception(error)
        else:
            with suppress(InvalidStateError):
                result.set_result(value)


def _ending() -> Refusal:
    return Refusal(503, "the explorer is being ended", fix="Start it again: headscope serve")
