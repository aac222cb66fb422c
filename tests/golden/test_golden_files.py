"""Golden files are compared line by line: a tolerance for numbers, none for the text between them."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden_files import Golden, differences

STORED = "head,value\n0.1,0.123456789\n0.2,0.5000000001\n0.3,stress 0.25\n"


def test_close_numbers_agree_and_others_are_shown() -> None:
    assert not differences(STORED, STORED.replace("0.123456789", "0.123456788"))
    changed = differences(STORED, STORED.replace("0.123456789", "0.133456789"))
    assert "-0.1,0.123456789\n+0.1,0.133456789" in changed
    assert differences(STORED, STORED.replace("stress", "loss"))


def test_an_added_line_is_the_only_difference() -> None:
    lines = differences(STORED, STORED.replace("0.1,", "0.0,added\n0.1,")).splitlines()[2:]
    assert [line for line in lines if line.startswith(("-", "+"))] == ["+0.0,added"]


def test_an_update_keeps_the_digits_of_numbers_that_are_close(tmp_path: Path) -> None:
    tmp_path.joinpath("table.csv").write_text(STORED, "utf-8")
    actual = STORED.replace("0.5000000001", "0.5000000002").replace("0.25", "0.75")
    with pytest.raises(AssertionError, match="differs"):
        Golden(folder=tmp_path).check("table.csv", actual)
    Golden(update=True, folder=tmp_path).check("table.csv", actual)
    assert tmp_path.joinpath("table.csv").read_text("utf-8") == STORED.replace("0.25", "0.75")
