"""Does a study draw itself in a notebook, whatever command made it and whatever was imported before?"""

from __future__ import annotations

import subprocess
import sys

import pytest
from studies import made_up

from headscope.study.study import Study
from headscope.tables import to_frame

PRODUCERS = ("gate", "learn_mask", "compare_masks", "analyze", "search")
FRESH = f"""
import headscope
for name in {PRODUCERS!r}:
    getattr(headscope, name)
from headscope.study.study import Study
from headscope.tables import Row, to_frame
rows = [Row("encoder", 0, head, "cut", float(head), float("nan"), float("nan"), 4) for head in range(2)]
print(Study(to_frame(rows), {{}}, {{"model": {{"name": "tiny"}}}})._repr_html_())
"""


@pytest.mark.slow
def test_a_study_draws_itself_in_a_fresh_process_that_only_made_one() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FRESH], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("<div>")
    assert "<strong>tiny</strong>" in done.stdout
    assert "<img" in done.stdout


@pytest.mark.parametrize("statistics", [("cut",), ("gate-keep-4",), ("mask-open-0.5",)])
def test_what_gates_masks_and_searches_find_has_a_picture(statistics: tuple[str, ...]) -> None:
    drawn = made_up(statistics=statistics, has_maps=False)._repr_html_()
    assert drawn.count("<img") == 1
    assert statistics[0] in drawn


def test_a_study_without_single_heads_draws_its_name() -> None:
    drawn = Study(to_frame([]), {}, {"model": {"name": "tiny"}})._repr_html_()
    assert "<strong>tiny</strong> · no measurements of single heads" in drawn
