"""Accuracy of a parser that reads attention."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headscope.report.finding import Finding, finite, percent, read_estimate, short_number
from headscope.report.section import Fact, Section
from headscope.report.study_access import records_of

if TYPE_CHECKING:
    from headscope.study.study import Study


def findings(study: Study) -> Iterator[Finding]:
    """The accuracy of a parser from attention alone, compared with random attention and other baselines."""
    rows = {str(row["probe"]): row for row in records_of(study, "probes")}
    if not {"attention-only", "random-attention"} <= set(rows):
        return
    parser, random = (
        read_estimate(rows[name], ("uas", "low", "high"))
        for name in ("attention-only", "random-attention")
    )
    others = [row for name, row in rows.items() if not name.startswith("attention")]
    rival = max(finite(row["uas"]) for row in others)
    sentence = f"A parser that reads only attention finds {percent(parser.value)} of the syntactic heads of words"
    after = (
        f"{parser.text()}; with words and random attention: {random.text()}; best parser without the attention of "
        f"this model: {short_number(rival)}"
    )
    yield Finding("", sentence, (), kind="relations", after=after, **parser.evidence(rival))


SECTION = Section(
    findings={170: findings},
    facts={130: Fact("test", lambda record: "how much syntax a parser can read from attention")},
)
