"""The loop over batches that updates all statistics in one pass. Weights are not stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headscope.errors import HeadscopeError
from headscope.model.attention_model import AttentionModel
from headscope.model.lenses import Lens
from headscope.model.lenses.gradient import track_embeddings
from headscope.model.load import as_model
from headscope.model.row_sums import Wanted
from headscope.model.seam import Observer
from headscope.model.tokens import Batch
from headscope.statistics.base import Statistic

Losses = Callable[[AttentionModel, Batch], Tensor]


def stream(
    model: AttentionModel | str | Path,
    batches: Iterable[Batch],
    statistics: Sequence[Statistic],
    *,
    through: Mapping[Lens, Sequence[Statistic]] | None = None,
    losses: Losses | None = None,
) -> Iterator[Batch]:
    """Run a model over batches and update statistics; yields each batch when it is done.

    Memory does not grow with the number of sequences: statistics keep sums only.

    Parameters
    ----------
    model
        A loaded model, or the name, directory or hub id of one.
    batches
        Batches of `encode`.
    statistics
        Statistics of raw attention, updated in place.
    through
        Further statistics, by lens. They share the forward pass, except lenses that need gradients.
    losses
        A function that runs the model on a batch and returns the loss of each sequence, with its autograd graph.
        Required for lenses that need gradients.

    Returns
    -------
    iterator of Batch
        The batches that were measured.

    Raises
    ------
    HeadscopeError
        If the model is in training mode, or its output is not finite.

    Examples
    --------
    >>> from headscope.statistics import select_statistics
    >>> statistics = select_statistics(["entropy"])
    >>> model = headscope.load("minilm")
    >>> for batch in headscope.stream(model, headscope.encode(model, ["The cat sat."]), statistics):
    ...     print(batch.indices)
    (0,)
    """
    model = as_model(model)
    model.check_evaluating()
    through = through or {}
    for batch in batches:
        # Hooks are set per batch, so that none is left while the caller handles a batch, or if it stops iterating.
        with ExitStack() as stack, torch.inference_mode():
            for observed, wanted in _by_need(batch, statistics):
                stack.enter_context(model.watched(_observer(batch, observed), wanted=wanted))
            for lens, of_lens in through.items():
                if not lens.needs_gradient:
                    stack.enter_context(model.watched(_observer(batch, of_lens), lens=lens))
            output = model(batch)
            finite = bool(torch.isfinite(output[0]).all())
        if not finite:
            numbers = ", ".join(str(i + 1) for i in batch.indices[:5])
            raise HeadscopeError(
                f"the model's output is not finite for examples {numbers}",
                where=model.name,
                fix="Load it with dtype float32, or leave these examples out",
            )
        for lens, of_lens in through.items():
            if lens.needs_gradient:
                assert losses is not None, f"the lens {lens.name} needs losses"
                observer = _observer(batch, of_lens)
                with model.watched(observer, lens=lens), track_embeddings(model) as embeddings:
                    loss = losses(model, batch).sum()
                    torch.autograd.grad(loss, embeddings, allow_unused=True)
        yield batch


def _by_need(
    batch: Batch, statistics: Sequence[Statistic]
) -> Iterator[tuple[Sequence[Statistic], Wanted | None]]:
    """The statistics that need entire maps, then those that need only sums of rows, with these sums."""
    of_maps = [statistic for statistic in statistics if statistic.quantities is None]
    of_sums = [statistic for statistic in statistics if statistic.quantities is not None]
    if of_maps:
        yield of_maps, None
    if of_sums:
        yield of_sums, reduce(or_, (statistic.wanted(batch.indices) for statistic in of_sums))


def _observer(batch: Batch, statistics: Sequence[Statistic]) -> Observer:
    def observe(attention: Any) -> None:
        attention.examples = batch.indices[attention.rows]
        for statistic in statistics:
            statistic.update(attention)

    return observe
