"""How much syntax does a parser read off attention?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headscope.report.finding import (
    Finding,
    excludes,
    finite,
    read_measured,
    short_number,
    strength_of,
)
from headscope.report.section import Fact, Section

if TYPE_CHECKING:
    from headscope.study.study import Study


def findings(study: Study) -> Iterator[Finding]:
    """What a parser reads off attention alone, beside the one that sees random attention."""
    table = study.tables.get("probes")
    rows = {} if table is None else {str(row["probe"]): row for row in table.to_dict("records")}
    if not {"attention-only", "random-attention"} <= set(rows):
        return
    found, random = (
        read_measured(rows[name], ("uas", "low", "high"))
        for name in ("attention-only", "random-attention")
    )
    rival = max(
        finite(row["uas"]) for name, row in rows.items() if not name.startswith("attention")
    )
    sentence = (
        f"A parser from attention alone finds {found.text()} of the governors; with words and random attention "
        f"{random.text()}, the best without this model's attention {short_number(rival)}"
    )
    strength = strength_of(found.value, found.low, found.high, rival)
    yield Finding(
        "", sentence, (), kind="relations", is_clear=excludes(found, rival), strength=strength
    )


SECTION = Section(
    findings={170: findings},
    facts={130: Fact("test", lambda record: "how much syntax a parser reads off its attention")},
)
