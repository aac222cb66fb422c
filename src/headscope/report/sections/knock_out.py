"""What changes when values or edges of attention are taken away?"""

from __future__ import annotations

from headscope.report.section import Fact, Section

KNOCK_OUT = Fact("knock_out", lambda record: "what changes when parts of attention are taken away")

SECTION = Section(facts={110: KNOCK_OUT})
