"""Does every topic of the page have its own place on it?"""

from __future__ import annotations

import pytest

from headscope.report.sections import sections, title_of_table


@pytest.mark.parametrize("kind", ["figures", "parts", "findings", "facts"])
def test_no_two_entries_have_the_same_position(kind: str) -> None:
    positions = [place for section in sections().values() for place in getattr(section, kind)]
    assert positions
    assert len(positions) == len(set(positions))


def test_no_table_has_two_titles() -> None:
    names = [name for section in sections().values() for name in section.tables]
    assert len(names) == len(set(names))


def test_a_table_without_a_title_is_called_by_its_name() -> None:
    assert title_of_table("search") == "Every set that was tried"
    assert title_of_table("my_table") == "my table"
