"""Heads that several layers share (ALBERT): one head is one set of weights, a site is one layer that uses it.

A head is counted once in findings, with the number of its sites, because the same weights attend differently on
the states of different layers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from headscope.report.study_access import entry_of
from headscope.report.text import with_noun

if TYPE_CHECKING:
    import pandas as pd

    from headscope.study.study import Study

HeadKey = tuple[str, int, int]  # stack, layer, head


def head_key(row: Mapping[Any, Any]) -> HeadKey:
    """The head of a row of a table."""
    return str(row["stack"]), int(row["layer"]), int(row["head"])


def keys_of(table: pd.DataFrame) -> list[HeadKey]:
    """The different heads of a table, in its order."""
    keys = table[["stack", "layer", "head"]].drop_duplicates()
    return list(keys.itertuples(index=False, name=None))


def first_layers(study: Study, stack: str) -> dict[int, int]:
    """For each layer of a stack that shares its module: the first layer of its group."""
    groups = entry_of(study.record, "model", "shared_layers", stack)
    lists = [
        group for group in (groups if isinstance(groups, list) else []) if isinstance(group, list)
    ]
    return {int(layer): int(group[0]) for group in lists for layer in group}


def head_of(study: Study, key: HeadKey) -> HeadKey:
    """The same head in the first of the layers that share it; itself if no layers share it."""
    stack, layer, head = key
    return stack, first_layers(study, stack).get(layer, layer), head


def is_shared(study: Study, stack: str | None = None) -> bool:
    """Whether some layers (of this stack) share their heads."""
    stacks = entry_of(study.record, "model", "shared_layers")
    return isinstance(stacks, Mapping) and bool(stacks.get(stack) if stack is not None else stacks)


def count_text(
    study: Study, some: Iterable[HeadKey], every: Iterable[HeadKey], *, noun: str = "head"
) -> str:
    """`3 of 72 heads`; with shared layers `1 of 8 shared heads (8 of 96 sites)`. noun "": `3 of 72` alone."""
    some, every = set(some), set(every)
    if not any(is_shared(study, stack) for stack, _, _ in every):
        return f"{len(some)} of {with_noun(len(every), noun) if noun else len(every)}"
    shared = with_noun(count_heads(study, every), "shared head")
    return (
        f"{count_heads(study, some)} of {shared} ({len(some)} of {with_noun(len(every), 'site')})"
    )


def count_heads(study: Study, some: Iterable[HeadKey]) -> int:
    """The number of different heads; those that layers share count once."""
    return len({head_of(study, key) for key in some})
