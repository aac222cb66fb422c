"""A task that needs one head keeps that head, whatever the penalty; and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from carrier import CARRIER, classifier, examples

from headscope.learning.gates import Gates
from headscope.tasks import get_task
from headscope.training.loop import LoopSettings, Training
from sampling import slow


@pytest.mark.parametrize(
    "options", [{"penalty": 0.03}, {"keep": 1}, slow({"penalty": 0.01}), slow({"penalty": 0.1})]
)
def test_only_the_head_that_is_needed_stays(options: dict[str, float], tmp_path: Path) -> None:
    model = classifier()
    task = get_task("sst2")
    train = task.prepare(model, task.items(examples(tmp_path, 160), "dev"))
    gates = Gates(model, **options)  # type: ignore[arg-type]
    run = Training(
        model, task, train, LoopSettings(epochs=30, batch_size=16), learned=gates, frozen=True
    )
    with model.edited(gates.edit()):
        list(run)
    kept = [
        f"{head.layer}.{head.head}"
        for head, value in gates.by_head(gates.fixed.tolist()).items()
        if value
    ]
    assert kept == [CARRIER]
