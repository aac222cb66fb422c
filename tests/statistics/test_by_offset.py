"""Offsets further than MOST_OFFSET are left out of the sums by offset, and nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from headscope.statistics import by_offset, select_statistics, stream
from tiny import batch_for, examples, shared


def test_far_offsets_are_left_out_of_the_stored_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    model = shared("bert")
    batch = batch_for(model, examples("bert", lengths=((12, None), (9, None), (5, None))))

    def measure() -> tuple[dict[str, float], np.ndarray]:
        statistics = select_statistics(["previous", "distance", "argmax-share", "argmax-offset"])
        for _ in stream(model, [batch], statistics):
            pass
        rows = [row for statistic in statistics for row in statistic.table()]
        maps = {name: array for s in statistics for name, array in s.maps().items()}
        return {f"{row.statistic} {row.head}": row.value for row in rows}, maps["offset/encoder"]

    every, wide = measure()
    monkeypatch.setattr(by_offset, "MOST_OFFSET", 3)
    near, narrow = measure()
    middle = wide.shape[-1] // 2
    assert narrow.shape[-1] == 7 < wide.shape[-1]
    np.testing.assert_array_equal(narrow, wide[..., middle - 3 : middle + 4])
    for name, value in every.items():
        offset = every.get(name.replace("argmax-share", "argmax-offset"), 0.0)
        if not name.startswith("argmax") or abs(offset) <= 3:
            assert near[name] == pytest.approx(value, abs=1e-12), name


def test_near_offsets_are_aligned_at_the_middle() -> None:
    values = torch.arange(2 * 3000 - 1)[None]
    near = by_offset.near_offsets(values)
    assert near.shape[-1] == 2 * by_offset.MOST_OFFSET + 1
    assert near[0, by_offset.MOST_OFFSET] == 2999
    assert torch.equal(by_offset.near_offsets(values[:, :7]), values[:, :7])
