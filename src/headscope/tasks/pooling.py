"""One vector for a text: the mean of its tokens' last states; and tasks that compare such vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from headscope.errors import HeadscopeError
from headscope.model.attention_model import AttentionModel
from headscope.model.relevance.predictions import towards
from headscope.model.tokens import Batch
from headscope.tasks.base import Prepared, Task


class PooledTask(Task):
    """A task about pairs of texts, each of which is read by itself and becomes a vector."""

    def read_out(self, output: Any, batch: Batch, prepared: Prepared) -> Tensor:
        return pooled(output, batch)

    def said(
        self, model: AttentionModel, batch: Batch, prepared: Prepared, *, seed: int = 0, answers: Tensor | None = None
    ) -> Tensor:
        """How near a text's vector is to that of the other text of its pair, which is held fixed."""
        assert answers is not None
        return _beside(model(batch), batch, _others(answers, prepared.parts))

    def imitation(self, answers: Tensor, wanted: Tensor) -> Tensor:
        """[sequence]: one minus the cosine of two vectors of length 1."""
        return 1 - (answers * wanted).sum(dim=-1)


def check_bare(model: AttentionModel, task: str) -> None:
    """Refuse a model whose output is not its tokens' states."""
    if model.model.base_model is not model.model or model.is_encoder_decoder:
        raise HeadscopeError(
            f"{type(model.model).__name__} does not give its tokens' states",
            where=model.name,
            expected=f"a bare encoder for {task}",
            mend='Load it with model_class="AutoModel"',
        )


def pooled(output: Any, batch: Batch) -> Tensor:
    """[sequence, width]: the mean state of the real tokens, of length 1."""
    states: Tensor = output[0]
    real = batch.inputs["attention_mask"].to(states.device, states.dtype)[..., None]
    mean = (states * real).sum(dim=1) / real.sum(dim=1)
    return torch.nn.functional.normalize(mean.float(), dim=-1)


def _others(answers: Tensor, parts: Sequence[tuple[int, ...]]) -> Tensor:
    """[sequence, width]: the vector of the other sequence of its item; the mean where there are several."""
    sums = torch.zeros_like(answers)
    for one, other in parts:
        sums[one] += answers[other]
        sums[other] += answers[one]
    return torch.nn.functional.normalize(sums, dim=-1)


def _beside(output: Any, batch: Batch, directions: Tensor) -> Tensor:
    """[sequence]: the cosine of the pooled vector with the direction of its sequence, lengths held fixed."""
    real = batch.inputs["attention_mask"].to(output[0].device)
    return towards(output[0], real, directions[list(batch.indices)])
