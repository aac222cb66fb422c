"""Does every topic of the page have its own place on it?"""

from __future__ import annotations

import pytest

from headscope.report.sections import sections


@pytest.mark.parametrize("kind", ["figures", "parts", "findings", "facts"])
def test_no_two_entries_have_the_same_position(kind: str) -> None:
    positions = [position for section in sections().values() for position in getattr(section, kind)]
    assert positions
    assert len(positions) == len(set(positions))
