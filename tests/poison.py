"""A loss that becomes NaN."""

from __future__ import annotations

import pytest
import torch

from headscope.tasks.classification import Classification


def poisoned(monkeypatch: pytest.MonkeyPatch, at: int, *, gradient: bool = False) -> None:
    """From this step on the loss is NaN, or its gradient alone."""
    plain, steps = Classification.losses, [0]

    def losses(self: Classification, answers: torch.Tensor, *args: object) -> torch.Tensor:
        result = plain(self, answers, *args)  # type: ignore[arg-type]
        steps[0] += torch.is_grad_enabled()
        if steps[0] < at or not torch.is_grad_enabled():
            return result
        return result + (answers.sum() * 0).sqrt() if gradient else result * float("nan")

    monkeypatch.setattr(Classification, "losses", losses)
