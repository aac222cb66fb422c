"""Changes of each head's maps by training: two models with the same shape are run on the same inputs.

The first measure is that of Kovaleva et al. (2019): the cosine of the two flattened maps of a head, averaged over
texts. Maps with the same sink have a high cosine in any case. Therefore there are two more numbers: the Jensen-Shannon
divergence of the rows (in nats), and a floor for both measures. The floor is their value between maps of two different
texts of equal length in the first model. `change` is the divergence divided by its floor: 0 if nothing changed, 1 if
the models differ as much as different texts do.
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

# {(site, index of the sequence in its batch): [head, query, key]}
Maps = dict[tuple[Site, int], Tensor]
Pairs = dict[tuple[Site, int], tuple[Tensor, Tensor]]  # the same for two maps that are compared
ONE_TOKENIZER = "one tokenizer, as before and after fine-tuning"
STUDIES_ALONE = "Compare their studies alone: heads are then matched by behaviour"


def check_same_shape(before: AttentionModel, after: AttentionModel) -> None:
    """Raise an error if two models have different heads or tokenizers."""
    where = f"{before.name}, {after.name}"
    if before.heads != after.heads:
        raise HeadscopeError(
            f"the models have different heads ({_shape(before)}; {_shape(after)})",
            where=where,
            expected="one shape, as before and after fine-tuning",
            fix=STUDIES_ALONE,
        )
    vocabularies = [m.tokenizer and m.tokenizer.get_vocab() for m in (before, after)]
    if vocabularies[0] is None or vocabularies[0] != vocabularies[1]:
        raise HeadscopeError(
            "the models have different tokenizers, so their maps are of different tokens",
            where=where,
            expected=ONE_TOKENIZER,
            fix=STUDIES_ALONE,
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
    """The tables `changes` (by head) and `layer_changes`, and counts of texts for the run record.

    Only the maps of one batch are in memory at a time.
    """
    check_same_shape(before, after)
    texts = list(examples)
    encoder = Encoder(before, max_length=max_length)
    sequences = sorted(encoder.encode(texts, 0), key=lambda s: len(s.source.ids), reverse=True)
    encoder.unknown.warn()
    if not sequences:
        raise HeadscopeError(
            "no text could be used", where="corpus", expected="texts that become tokens"
        )
    _check_same_tokens(sequences, Encoder(after, max_length=encoder.max_length), texts)
    # All texts are run through both models, then pairs of texts through the first one, for the floor.
    total, done = len(sequences) + len(sequences) // 2 * 2, 0
    changed, floor = _Sums(), _Sums()
    for start in range(0, len(sequences), batch_size):
        batch = collate(before, sequences[start : start + batch_size])
        old = _maps(before, batch)
        changed.add({key: (old[key], new) for key, new in _maps(after, batch).items()})
        progress(done := done + len(batch), total)
    for longer, shorter in zip(sequences[::2], sequences[1::2], strict=False):
        pair = texts[longer.index], texts[shorter.index]
        floor.add(_between_texts(before, pair, len(shorter.source.ids)))
        progress(done := done + 2, total)
    counts = encoder.counts
    read: dict[str, Any] = {"read": counts.read, "used": counts.used, "truncated": counts.truncated}
    read |= {"skipped": dict(counts.skipped), "unknown": asdict(counts.unknown)}
    return *_tables(changed, floor), read


def _check_same_tokens(sequences: list[Sequence], other: Encoder, texts: list[Example]) -> None:
    """Raise an error if tokenizers with the same vocabulary split a text differently, e.g. since one lowercases it."""
    others = {sequence.index: sequence for sequence in other.encode(texts, 0)}
    for sequence in sequences:
        same = others.get(sequence.index)
        if same is None or (same.source, same.target) != (sequence.source, sequence.target):
            raise HeadscopeError(
                "the two tokenizers split this text differently",
                where=texts[sequence.index].where or f"text {sequence.index + 1}",
                expected=ONE_TOKENIZER,
            )


def _between_texts(model: AttentionModel, pair: tuple[Example, Example], length: int) -> Pairs:
    """The maps of two different texts truncated to equal length, by site; empty if the texts are equal then.

    Stacks in which the lengths still differ are left out.
    """
    sequences = list(Encoder(model, max_length=length).encode(list(pair), 0))
    if len(sequences) < 2 or sequences[0].source.ids == sequences[1].source.ids:
        return {}
    maps = _maps(model, collate(model, sequences))
    pairs = {(site, 0): (maps[site, 0], maps[site, 1]) for site, row in maps if row == 0}
    return {key: both for key, both in pairs.items() if both[0].shape == both[1].shape}


def _maps(model: AttentionModel, batch: Batch) -> Maps:
    """The maps of all sites for each sequence of a batch."""
    maps: Maps = {}

    def keep(attention: Attention) -> None:
        for row, weights in zip(range(len(batch))[attention.rows], attention.weights, strict=True):
            maps[attention.site, row] = weights.clone()

    model.check_evaluating()
    with model.watched(keep), torch.inference_mode():
        model(batch)
    return maps


def map_similarity(left: Tensor, right: Tensor) -> Tensor:
    """[2, head]: the cosine of two flattened maps, and the mean Jensen-Shannon divergence of their rows in nats."""
    left, right = left.double().cpu(), right.double().cpu()
    cosine = torch.cosine_similarity(left.flatten(1), right.flatten(1), dim=1, eps=1e-300)
    middle = (left + right) / 2
    js = torch.xlogy(left, left) / 2 + torch.xlogy(right, right) / 2 - torch.xlogy(middle, middle)
    return torch.stack([cosine.clamp(max=1.0), js.sum(dim=-1).mean(dim=-1).clamp_min(0.0)])


class _Sums:
    """Sums over texts of cosine and divergence, by head and by layer (mean over its heads)."""

    def __init__(self) -> None:
        self.heads: dict[Site, Moments] = {}
        self.layers: dict[Site, Moments] = {}

    def add(self, pairs: Pairs) -> None:
        for (site, _), (left, right) in pairs.items():
            values: NDArray[np.float64] = map_similarity(left, right).numpy()
            self.heads.setdefault(site, Moments(values.shape)).add(values[None])
            means = values.mean(axis=1, keepdims=True)
            self.layers.setdefault(site, Moments((2, 1))).add(means[None])


def _tables(changed: _Sums, floor: _Sums) -> tuple[pd.DataFrame, pd.DataFrame]:
    heads = [
        {"stack": site.stack, "layer": site.layer, "head": i}
        | _row(moments, floor.heads.get(site), i)
        for site, moments in sorted(changed.heads.items())
        for i in range(moments.total.shape[1])
    ]
    layers = [
        {"stack": site.stack, "layer": site.layer} | _row(moments, floor.layers.get(site), 0)
        for site, moments in sorted(changed.layers.items())
    ]
    tables = COMPARISON_TABLES
    return tables["changes"].frame(heads), tables["layer_changes"].frame(layers)


def _row(moments: Moments, floor: Moments | None, i: int) -> TableRow:
    mean, (low, high) = moments.mean()[:, i], (end[:, i] for end in moments.interval())
    of_texts = np.full(2, np.nan) if floor is None else floor.mean()[:, i]
    return {
        "cosine": mean[0],
        "cosine_low": low[0],
        "cosine_high": high[0],
        "js": mean[1],
        "js_low": low[1],
        "js_high": high[1],
        "floor_cosine": of_texts[0],
        "floor_js": of_texts[1],
        "change": mean[1] / of_texts[1] if of_texts[1] > 0 else np.nan,
        "count": int(moments.count[0, i]),
        "floor_count": 0 if floor is None else int(floor.count[0, i]),
    }
