"""Choice of the findings that come first: at most three, by a rule that is simple and the same for every page.

Kinds of findings have a fixed order of priority: what heads do, then which of them matter. One finding of each kind
comes first, in that order. If there are fewer kinds than places, others follow: those with another topic and another
head than any before, the strongest first. A finding that nothing was found comes after all others. A finding whose
interval includes chance is never among the first, unless that is what it states.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headscope.report.finding import KINDS, Finding

MOST = 3


def select_top(
    of_chapters: Sequence[Sequence[Finding]], of_models: Sequence[Finding] = ()
) -> tuple[list[Finding], list[Finding]]:
    """(the findings that come first, the others), each with its chapter; None for those about several models."""
    chapters = [(number, findings) for number, findings in enumerate(of_chapters)]
    numbered = [
        replace(f, chapter=n) for n, findings in [*chapters, (None, of_models)] for f in findings
    ]
    candidates = [finding for finding in numbered if finding.is_clear and not finding.is_null]
    first: list[Finding] = []

    def has_new_head(finding: Finding) -> bool:
        head = finding.first_head
        return head is None or all(head != other.first_head for other in first)

    def order(finding: Finding) -> tuple[int, float, int]:
        """Repetition of topic and head, then strength, then priority of the kind."""
        same_topic = sum(
            (finding.kind, finding.topic) == (other.kind, other.topic) for other in first
        )
        repetition = same_topic + 2 * (not has_new_head(finding))
        return repetition, -finding.strength, KINDS.index(finding.kind)

    for kind in KINDS:
        if of_kind := [finding for finding in candidates if finding.kind == kind]:
            first.append(next(filter(has_new_head, of_kind), of_kind[0]))
    while rest := [finding for finding in candidates if not _holds(first, finding)]:
        if len(first) >= MOST:
            break
        first.append(min(rest, key=order))
    nulls = [finding for finding in numbered if finding.is_clear and finding.is_null]
    nulls.sort(key=lambda finding: KINDS.index(finding.kind))  # stable
    first = [*first, *nulls][:MOST]
    others = [finding for finding in numbered if not _holds(first, finding)]
    return first, sorted(others, key=lambda finding: finding.is_null)


def _holds(findings: Sequence[Finding], finding: Finding) -> bool:
    """Whether this very finding is among them: two equal sentences of different origin are two findings."""
    return any(finding is other for other in findings)
