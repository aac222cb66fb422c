"""The thread in which the model runs. Calls run one at a time, and do not delay the end of the program.

A thread pool would: at exit Python waits for its threads, however long their work takes. This thread is a daemon. When
it is ended, waiting calls fail at once, and the running call is stopped before the model's next module.
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

STOPPING_SECONDS = 1.0  # how long `end` waits for the running call

_Item = tuple[Future[Any], Callable[[], Any]]


class _Stopped(BaseException):
    """Raised inside the running call to stop it. A BaseException, so that no error handler in the model catches it."""


class ModelThread:
    """A thread for calls: `await run(function, …)` returns the function's result or raises its error."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._pending: set[Future[Any]] = set()
        self._lock = threading.Lock()
        self._is_ended = False
        self._thread = threading.Thread(target=self._loop, name="model", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    async def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        result: Future[Any] = Future()
        with self._lock:
            if self._is_ended:
                raise _ending()
            self._pending.add(result)
        result.add_done_callback(self._pending.discard)
        self._work.put((result, lambda: function(*arguments)))
        return await asyncio.wrap_future(result)

    def end(self) -> None:
        """Fail all waiting calls, and try for a second to stop the running one."""
        with self._lock:
            self._is_ended = True
            pending = list(self._pending)
        for result in pending:
            with suppress(InvalidStateError):  # it has finished in the meantime
                result.set_exception(_ending())
        self._work.put(None)
        handle = register_module_forward_pre_hook(self._stop)
        self._thread.join(STOPPING_SECONDS)
        handle.remove()

    def _stop(self, module: object, inputs: object) -> None:
        if threading.current_thread() is self._thread:
            raise _Stopped

    def _loop(self) -> None:
        while (item := self._work.get()) is not None:
            result, work = item
            if not result.done():
                self._call(work, result)

    def _call(self, work: Callable[[], Any], result: Future[Any]) -> None:
        try:
            value = work()
        except _Stopped:
            return
        except BaseException as error:  # passed to the caller; this thread goes on
            with suppress(InvalidStateError):
                result.set_exception(error)
        else:
            with suppress(InvalidStateError):
                result.set_result(value)


def _ending() -> Refusal:
    return Refusal(503, "the explorer is shutting down", fix="Start it again: headscope serve")
