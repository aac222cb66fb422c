"""Which findings come first: at most five, by a rule that is simple and the same for every page.

Kinds of findings have a fixed order of priority. One finding of each kind comes first, in that order; where there are
fewer kinds than places, others follow: those of another topic and about another head than any before, the strongest
first. A finding whose interval includes chance is never among them, unless that is what it says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headscope.report.finding import KINDS, Finding

MOST = 5


def select_top(
    of_chapters: Sequence[Sequence[Finding]], of_models: Sequence[Finding] = ()
) -> tuple[list[Finding], list[Finding]]:
    """(those that come first, the others), each with the number of its chapter; None: it is of several models."""
    every = [replace(one, chapter=number) for number, of in enumerate(of_chapters) for one in of]
    every += [replace(one, chapter=None) for one in of_models]
    left = [one for one in every if one.is_clear]
    first: list[Finding] = []
    for kind in KINDS:
        if of_kind := [one for one in left if one.kind == kind]:
            first.append(
                min(of_kind, key=lambda one: _leads_again(one, first))
            )  # the first of those that are new
    left = [one for one in left if all(one is not other for other in first)]
    while left and len(first) < MOST:
        first.append(
            min(left, key=lambda one: (_repeats(one, first), -one.strength, KINDS.index(one.kind)))
        )
        left = [one for one in left if one is not first[-1]]
    first = first[:MOST]
    return first, [one for one in every if all(one is not other for other in first)]


def _leads_again(one: Finding, first: Sequence[Finding]) -> bool:
    """Whether the head it names first is named first by one of these."""
    return one.leads is not None and any(one.leads == other.leads for other in first)


def _repeats(one: Finding, first: Sequence[Finding]) -> int:
    """How much of it has been said: its topic, its head."""
    return sum(one.about == other.about for other in first) + 2 * _leads_again(one, first)
