"""A fact for studies in which values or edges of attention were removed."""

from __future__ import annotations

from headscope.report.section import Fact, Section

KNOCK_OUT = Fact("knock_out", lambda record: "what changes when parts of attention are removed")

SECTION = Section(facts={110: KNOCK_OUT})
