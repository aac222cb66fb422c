"""Labelled examples of a task, and how a split of them is selected."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headscope.config.checks import check_count
from headscope.errors import HeadscopeError


@dataclass(frozen=True)
class Item:
    """One example of a task: its texts and its target (a label, a score, an answer …)."""

    texts: tuple[str, ...]
    target: Any
    where: str = ""


def select_half(items: list[Item], split: str) -> list[Item]:
    """The examples of a split: about half of them for `dev:half-a` and `dev:half-b`, all for `dev`.

    The half is determined by a hash of an example's longest text: files are often sorted, and examples that share the
    text (questions about one paragraph) must not be in both halves.
    """
    half = split.partition(":")[2]
    if not half:
        return items
    longest = (max(item.texts, key=len, default="") for item in items)
    parities = [hashlib.sha256(text.encode()).digest()[0] % 2 for text in longest]
    return [
        item for item, parity in zip(items, parities, strict=True) if parity == (half == "half-b")
    ]


def check_apart(selected: Sequence[Item], reported: Sequence[Item], where: str) -> None:
    """Refuse to report on examples that were used for selection or training."""
    shared = {item.where for item in selected if item.where} & {item.where for item in reported}
    if shared:
        raise HeadscopeError(
            f"{len(shared)} examples are selected on and reported on, for example {min(shared)}",
            where=where,
            expected="two splits without common examples, such as dev:half-a and dev:half-b",
        )


def sample_evenly(items: list[Item], limit: int | None, where: str | Path) -> list[Item]:
    """At most `limit` of the examples, evenly spaced; all without a limit. No examples are an error."""
    if not items:
        raise HeadscopeError("no example in it", where=where, expected="one or more")
    if limit is None or limit >= len(items):
        return items
    check_count(limit, "`limit`")
    return [items[i * len(items) // limit] for i in range(limit)]


def two_files(data: str | Path) -> tuple[str, str] | None:
    """Source and target if `data` is two files joined by a comma; None if it is one path."""
    if "," not in str(data) or Path(data).exists():
        return None
    source, target = (part.strip() for part in str(data).split(",", 1))
    return source, target
