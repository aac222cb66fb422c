"""Which findings come first: at most five, by a rule that is simple and the same for every page.

Kinds of findings have a fixed order of priority. One finding of each kind comes first, in that order; where there are
fewer kinds than places, the strongest of the others follow. A finding whose interval includes chance is never among
them, unless that is what it says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headscope.report.finding import KINDS, Finding

MOST = 5


def five_of(
    of_chapters: Sequence[Sequence[Finding]], of_models: Sequence[Finding] = ()
) -> tuple[list[Finding], list[Finding]]:
    """(those that come first, the others), each with the number of its chapter; None: it is of several models."""
    every = [replace(one, chapter=number) for number, of in enumerate(of_chapters) for one in of]
    every += [replace(one, chapter=None) for one in of_models]
    clear = [one for one in every if one.is_clear]
    by_kind = sorted(clear, key=lambda one: KINDS.index(one.kind))  # stable: within a kind as they were found
    first: list[Finding] = []
    for one in by_kind:
        if all(one.kind != other.kind for other in first):
            first.append(one)
    left = [one for one in by_kind if all(one is not other for other in first)]
    left.sort(key=lambda one: -one.strength)
    first = [*first, *left][:MOST]
    return first, [one for one in every if all(one is not other for other in first)]
