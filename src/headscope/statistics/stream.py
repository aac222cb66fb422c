"""The one loop that asks all questions in one pass over the data. Nothing is dumped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch

from headscope.errors import HeadscopeError
from headscope.model.attention import Attention
from headscope.model.attention_model import AttentionModel
from headscope.model.tokens import Batch
from headscope.statistics.base import Statistic


def stream(model: AttentionModel, batches: Iterable[Batch], statistics: Sequence[Statistic]) -> Iterator[Batch]:
    """Run the model over the batches, updating the statistics; yields each batch when it is done.

    Memory does not grow with the number of sequences: a statistic keeps sums, and weights are forgotten.
    """

    model.check_evaluating()
    for batch in batches:
        indices = batch.indices

        def observe(attention: Attention, indices: tuple[int, ...] = indices) -> None:
            attention.examples = indices[attention.rows]
            for statistic in statistics:
                statistic.update(attention)

        # Entered anew for every batch: nothing stays watched while the caller has the batch, or if it never returns.
        with model.watched(observe), torch.inference_mode():
            output = model(batch)
            finite = bool(torch.isfinite(output[0]).all())
        if not finite:
            raise HeadscopeError(
                f"the model's output is not finite for examples {', '.join(str(i + 1) for i in batch.indices[:5])}",
                where=model.name,
                mend="Load it with dtype float32, or leave these examples out",
            )
        yield batch
