"""Losses that need no labels, for the lens `gradient` on plain texts. The model's class decides which loss is used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from headscope.errors import HeadscopeError
from headscope.model.attention_model import AttentionModel
from headscope.model.tokens import Batch
from headscope.tasks.masked import MaskedTokenTask
from headscope.tasks.pooling import check_pooling
from headscope.tasks.prepared import IGNORED

LENS = "lens gradient"
STANDS_IN = (
    "stands in, as this model has no head: minus the dot product of the two texts' vectors ({pooling}{left_out}), "
    "each divided by its length, which is held fixed"
)


@dataclass(frozen=True)
class Loss:
    """A loss of every sequence of a batch.

    sentence  describes the loss in the record and on the page
    of        function that computes it: [sequence]
    """

    name: str
    sentence: str
    of: Callable[[AttentionModel, Batch], Tensor]


def loss_of(model: AttentionModel, *, pairs: bool, seed: int = 0) -> Loss:
    """The loss for this class of model; an error if there is none, or if the loss needs pairs of texts."""
    kind = type(model.model).__name__
    untrained = [name for name in model.untrained if "pooler" not in name]
    if untrained:
        raise HeadscopeError(
            f"this model's head was never trained ({untrained[0]} is not in its files), so its loss is meaningless",
            where=f"{model.name}, {LENS}",
            fix="Train it first (headscope finetune), or leave the lens gradient out",
        )
    stacks = {site.stack for site in model.sites}
    if "MaskedLM" in kind:
        sentence = "of guessing 15 % of a text's tokens, which were masked"
        return Loss("masked", sentence, _MaskedLoss(model, seed))
    if "SequenceClassification" in kind and model.model.config.num_labels > 1:
        sentence = "of the class that the model itself finds most probable"
        return Loss("classification", sentence, _own_class)
    generates = model.model.get_output_embeddings() is not None
    is_bare = model.model.base_model is model.model
    if model.is_encoder_decoder and generates:
        _check_pairs(model, pairs, "a source and its translation")
        return Loss("translation", "of the given translation, a mean over its tokens", _next_tokens)
    if "encoder" not in stacks and generates:
        return Loss("next-token", "of each token given those before it", _next_tokens)
    if is_bare and not model.is_encoder_decoder and model.family.takes_text:
        _check_pairs(model, pairs, "two texts whose vectors are compared, as there is no head")
        check_pooling(model, f"{model.name}, {LENS}")
        left_out = "" if model.reading.reads_one_token else ", special ones left out"
        sentence = STANDS_IN.format(pooling=model.reading.in_words, left_out=left_out)
        return Loss("dot-product", sentence, _negative_cosine)
    raise HeadscopeError(
        f"{kind} has no loss that could be derived without labels",
        where=f"{model.name}, {LENS}",
        expected="a head for masked or causal language modelling, classes or translation, or a bare encoder of pairs",
    )


def _check_pairs(model: AttentionModel, pairs: bool, what: str) -> None:
    if not pairs:
        raise HeadscopeError(
            "the loss needs pairs of texts",
            where=f"{model.name}, {LENS}",
            expected=what,
            fix="Add `pairs=True`",
        )


class _MaskedLoss:
    """Masked language modelling. The ids and the seed determine which tokens are masked."""

    def __init__(self, model: AttentionModel, seed: int) -> None:
        self.task = MaskedTokenTask(seed=seed)
        self.task.check(model)

    def __call__(self, model: AttentionModel, batch: Batch) -> Tensor:
        assert model.tokenizer is not None
        ids = batch.inputs["input_ids"].clone()
        labels = torch.full_like(ids, IGNORED)
        real = batch.inputs["attention_mask"].bool()
        for row, is_real in enumerate(real):
            positions = is_real.nonzero()[:, 0]
            of_row = ids[row, positions].tolist()
            masked_positions = self.task.masked_positions(of_row, model.marks.special)
            masked_at = positions[sorted(masked_positions)]
            labels[row, masked_at] = ids[row, masked_at]
            ids[row, masked_at] = int(model.tokenizer.mask_token_id)
        masked = replace(batch, inputs={**batch.inputs, "input_ids": ids}, labels=labels)
        sums = self.task.extract_answers(self.task.call(model, masked), masked, None)  # type: ignore[arg-type]
        return sums[:, 0] / sums[:, 1]


def _own_class(model: AttentionModel, batch: Batch) -> Tensor:
    """Cross entropy of the class that the model itself predicts."""
    # float64, since 1 - p of a confident model would be lost to rounding in float32
    logits = model(batch).logits.double()
    return nn.functional.cross_entropy(logits, logits.detach().argmax(dim=-1), reduction="none")


def _next_tokens(model: AttentionModel, batch: Batch) -> Tensor:
    """The mean loss of the tokens of a sequence, given those before; of a translation including the end token."""
    ids, real, last = _target_ids(model, batch)
    following = torch.nn.functional.pad(ids[:, 1:], (0, 1), value=IGNORED)
    has_next = torch.nn.functional.pad(real[:, 1:], (0, 1), value=False)
    labels = torch.where(has_next, following, IGNORED)
    if last is not None:
        ends = real & ~has_next
        labels = torch.where(ends, last, labels)
    labels = labels.to(model.device)
    logits = model(batch).logits.float()
    losses = nn.functional.cross_entropy(
        logits.transpose(1, 2), labels, reduction="none", ignore_index=IGNORED
    )
    return losses.sum(dim=1) / (labels != IGNORED).sum(dim=1).clamp_min(1)


def _target_ids(model: AttentionModel, batch: Batch) -> tuple[Tensor, Tensor, int | None]:
    """(ids, is_real, end): token ids of the predicted text, False at padding, and the id that follows the last one.

    `end` is None if the model does not predict a token after the last one.
    """
    inputs: Any = batch.inputs
    if model.is_encoder_decoder:
        assert model.tokenizer is not None
        side = batch.layout.decoder
        assert side is not None
        return inputs["decoder_input_ids"].cpu(), side.real.cpu(), int(model.tokenizer.eos_token_id)
    return inputs["input_ids"].cpu(), inputs["attention_mask"].bool().cpu(), None


def _negative_cosine(model: AttentionModel, batch: Batch) -> Tensor:
    """Minus the cosine of the vectors of the two segments. For the gradient, the vectors' lengths are constants."""
    states = model(batch)[0]
    side = batch.layout.encoder or batch.layout.decoder
    assert side is not None
    assert side.segments is not None
    # If pooling reads one token, it is usually a special one. If it reads several, special tokens are left out.
    among = side.real if model.reading.reads_one_token else side.content
    vectors = [
        model.reading.vectors(states, (side.segments == segment) & among, hold_lengths=True)
        for segment in (0, 1)
    ]
    lengths = [vector.detach().norm(dim=-1).clamp_min(1e-12) for vector in vectors]
    loss: Tensor = -(vectors[0] * vectors[1]).sum(dim=-1) / (lengths[0] * lengths[1])
    return loss
