"""Models along the way: at which steps, whole or not there, and thrown away where they are made again."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import BertForMaskedLM

import headscope
from headscope.errors import HeadscopeError
from headscope.training.checkpoints import (
    drop_checkpoints,
    read_checkpoints,
    steps_to_keep,
    write_checkpoint,
)
from worded import worded


def test_early_steps_are_closer_together() -> None:
    assert steps_to_keep(3000, 10) == [0, 30, 53, 95, 169, 300, 533, 949, 1687, 3000]
    assert steps_to_keep(100, 3) == [0, 1, 100]
    assert steps_to_keep(7, 2) == [0, 7]


@settings(deadline=None, derandomize=True, database=None)
@given(st.data())
def test_there_are_as_many_as_asked_from_the_first_to_the_last(data: st.DataObject) -> None:
    total = data.draw(st.integers(1, 400))
    count = data.draw(st.integers(2, min(total + 1, 40)))
    steps = steps_to_keep(total, count)
    assert len(steps) == len(set(steps)) == count
    assert steps == sorted(steps)
    assert (steps[0], steps[-1]) == (0, total)


@pytest.mark.parametrize("count", [-1, 0, 1, 12])
def test_what_cannot_be_kept_is_refused(count: int) -> None:
    with pytest.raises(
        HeadscopeError,
        match=rf"`checkpoints`: a training of 10 steps can keep 2 to 11 checkpoints, got {count}\.",
    ):
        steps_to_keep(10, count)


def test_they_are_found_by_step_and_later_ones_are_dropped(tmp_path: Path) -> None:
    model = worded(BertForMaskedLM)
    for step in (0, 20, 3):
        write_checkpoint(model, tmp_path, step)
    (tmp_path / "checkpoints" / ".step-000030").mkdir()  # what a kill left
    result = read_checkpoints(tmp_path)
    assert [step for step, _ in result] == [0, 3, 20]
    assert len(headscope.load(result[1][1]).heads) == 4
    drop_checkpoints(tmp_path, after=3)
    assert [step for step, _ in read_checkpoints(tmp_path)] == [0, 3]
    drop_checkpoints(tmp_path, after=-1)
    with pytest.raises(
        HeadscopeError,
        match=r"two checkpoints or more, got no checkpoints\. Train it with `checkpoints=N`",
    ):
        read_checkpoints(tmp_path)
    with pytest.raises(HeadscopeError, match="there is no such directory"):
        read_checkpoints(tmp_path / "nowhere")
