"""What did training change? The maps of two models of one shape on the same inputs, head by head.

After Kovaleva: the cosine of the two maps of a head, flattened, one number a text, averaged over texts. Maps that share
a sink are alike whatever else they do, so two things stand beside it: the Jensen-Shannon divergence of the rows (nats),
and a floor, which is both numbers between one model's maps of different texts cut to equal length. `change` is the
divergence as a part of its floor: 0 where nothing changed, 1 where the two models differ as other texts do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from headscope.data.batches import collate
from headscope.data.encode import Encoder, Sequence
from headscope.data.examples import Example
from headscope.errors import HeadscopeError
from headscope.heads import Site
from headscope.model.attention import Attention
from headscope.model.attention_model import AttentionModel
from headscope.model.tokens import Batch
from headscope.study.schema.tables import COMPARISON_TABLES
from headscope.tables import Moments, TableRow

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

# Of each sequence of a batch at each site: [head, query, key]
Maps = dict[tuple[Site, int], Tensor]


def check_same_shape(before: AttentionModel, after: AttentionModel) -> None:
    """Refuse two models of which head 3.2 and token 7 are not the same thing."""
    where = f"{before.name}, {after.name}"
    if before.heads != after.heads:
        raise HeadscopeError(
            f"the models have different heads ({_shape(before)}; {_shape(after)})",
            where=where,
            expected="one shape, as before and after fine-tuning",
            fix="Compare their studies alone: heads are then matched by behaviour",
        )
    vocabularies = [
        None if one.tokenizer is None else one.tokenizer.get_vocab() for one in (before, after)
    ]
    if vocabularies[0] is None or vocabularies[0] != vocabularies[1]:
        raise HeadscopeError(
            "the models have different tokenizers, so their maps are of different tokens",
            where=where,
            expected="one tokenizer, as before and after fine-tuning",
            fix="Compare their studies alone: heads are then matched by behaviour",
        )


def _shape(model: AttentionModel) -> str:
    stacks = dict.fromkeys(site.stack for site in model.sites)
    sizes = {stack: [head for head in model.heads if head.stack == stack] for stack in stacks}
    return ", ".join(
        f"{stack} {len({h.layer for h in heads})} layers, {len(heads)} heads"
        for stack, heads in sizes.items()
    )


def changes_between(
    before: AttentionModel,
    after: AttentionModel,
    examples: Iterable[Example],
    *,
    max_length: int | None = None,
    batch_size: int = 4,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[pd.DataFrame, pd.DataFrame, dict[str, Any]]:
    """(one row a head, one row a layer, what was read). Maps of one batch are held at a time."""
    check_same_shape(before, after)
    given = list(examples)
    encoder = Encoder(before, max_length=max_length)
    sequences = sorted(encoder.encode(given, 0), key=lambda one: len(one.source.ids), reverse=True)
    encoder.unknown.warn()
    if not sequences:
        raise HeadscopeError(
            "no text could be used", where="corpus", expected="texts that become tokens"
        )
    _check_same_tokens(sequences, Encoder(after, max_length=encoder.max_length), given)
    total, done = len(sequences) + len(sequences) // 2 * 2, 0  # then two by two, for the floor
    changed, floor = _Sums(), _Sums()
    for start in range(0, len(sequences), batch_size):
        batch = collate(before, sequences[start : start + batch_size])
        old = _maps(before, batch)
        changed.add({key: (old[key], new) for key, new in _maps(after, batch).items()})
        progress(done := done + len(batch), total)
    for one, other in zip(sequences[::2], sequences[1::2], strict=False):
        floor.add(
            _between_texts(before, given[one.index], given[other.index], len(other.source.ids))
        )
        progress(done := done + 2, total)
    counts = encoder.counts
    read: dict[str, Any] = {"read": counts.read, "used": counts.used, "truncated": counts.truncated}
    read |= {"skipped": dict(counts.skipped), "unknown": asdict(counts.unknown)}
    return *_tables(changed, floor), read


def _check_same_tokens(sequences: list[Sequence], other: Encoder, given: list[Example]) -> None:
    """A vocabulary may be the same and the cutting not: lower case, say."""
    again = {one.index: one for one in other.encode(given, 0)}
    for one in sequences:
        if (
            one.index not in again
            or again[one.index].source != one.source
            or again[one.index].target != one.target
        ):
            raise HeadscopeError(
                "the two tokenizers cut this text differently",
                where=given[one.index].where or f"text {one.index + 1}",
                expected="one tokenizer, as before and after fine-tuning",
            )


def _between_texts(
    model: AttentionModel, one: Example, other: Example, length: int
) -> dict[tuple[Site, int], tuple[Tensor, Tensor]]:
    """The maps of two different texts cut to equal length; a stack in which they are not equal is left out."""
    pair = list(Encoder(model, max_length=length).encode([one, other], 0))
    if len(pair) < 2 or pair[0].source.ids == pair[1].source.ids:
        return {}
    maps = _maps(model, collate(model, pair))
    found = {(site, 0): (maps[site, 0], maps[site, 1]) for site, row in maps if row == 0}
    return {key: both for key, both in found.items() if both[0].shape == both[1].shape}


def _maps(model: AttentionModel, batch: Batch) -> Maps:
    held: Maps = {}

    def hold(attention: Attention) -> None:
        for row, weights in zip(range(len(batch))[attention.rows], attention.weights, strict=True):
            held[attention.site, row] = weights.clone()

    model.check_evaluating()
    with model.watched(hold), torch.inference_mode():
        model(batch)
    return held


def compared(left: Tensor, right: Tensor) -> Tensor:
    """[2, head]: the cosine of two flattened maps, and the mean Jensen-Shannon divergence of their rows in nats."""
    left, right = left.double().cpu(), right.double().cpu()
    cosine = torch.cosine_similarity(left.flatten(1), right.flatten(1), dim=1, eps=1e-300)
    middle = (left + right) / 2
    js = torch.xlogy(left, left) / 2 + torch.xlogy(right, right) / 2 - torch.xlogy(middle, middle)
    return torch.stack([cosine.clamp(max=1.0), js.sum(dim=-1).mean(dim=-1).clamp_min(0.0)])


class _Sums:
    """Per head, and per layer (the mean of its heads, one number a text): cosine and divergence."""

    def __init__(self) -> None:
        self.heads: dict[Site, Moments] = {}
        self.layers: dict[Site, Moments] = {}

    def add(self, maps: dict[tuple[Site, int], tuple[Tensor, Tensor]]) -> None:
        for (site, _), (left, right) in maps.items():
            values: NDArray[np.float64] = compared(left, right).numpy()
            self.heads.setdefault(site, Moments(values.shape)).add(values[None])
            means = values.mean(axis=1, keepdims=True)
            self.layers.setdefault(site, Moments((2, 1))).add(means[None])


def _tables(changed: _Sums, floor: _Sums) -> tuple[pd.DataFrame, pd.DataFrame]:
    heads = [
        {"stack": site.stack, "layer": site.layer, "head": head}
        | _row(moments, floor.heads.get(site), head)
        for site, moments in sorted(changed.heads.items())
        for head in range(moments.total.shape[1])
    ]
    layers = [
        {"stack": site.stack, "layer": site.layer} | _row(moments, floor.layers.get(site), 0)
        for site, moments in sorted(changed.layers.items())
    ]
    return (
        COMPARISON_TABLES["changes"].frame(heads),
        COMPARISON_TABLES["layer_changes"].frame(layers),
    )


def _row(moments: Moments, floor: Moments | None, i: int) -> TableRow:
    mean, (low, high) = moments.mean()[:, i], (end[:, i] for end in moments.interval())
    least = np.full(2, np.nan) if floor is None else floor.mean()[:, i]
    return {
        "cosine": mean[0],
        "cosine_low": low[0],
        "cosine_high": high[0],
        "js": mean[1],
        "js_low": low[1],
        "js_high": high[1],
        "floor_cosine": least[0],
        "floor_js": least[1],
        "change": mean[1] / least[1] if least[1] > 0 else np.nan,
        "count": int(moments.count[0, i]),
        "floor_count": 0 if floor is None else int(floor.count[0, i]),
    }
