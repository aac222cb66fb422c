"""Waiting for what another thread or process does: the only place where tests poll."""

from __future__ import annotations

import time
from collections.abc import Callable

LONGEST = (
    300  # seconds, for what never comes: a limit against hanging, which says nothing about speed
)


def until(is_so: Callable[[], bool]) -> None:
    """Return as soon as it is so."""
    end = time.monotonic() + LONGEST
    while not is_so():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.01)
