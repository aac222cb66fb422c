"""Masked language modelling. The same tokens of a text are masked in every run.

A share of a text's content tokens is replaced by the mask token, determined by the token ids and the seed. The loss of
a text is the mean over its masked tokens. `DynamicMasking` is the objective of pre-training, which masks other
tokens in every epoch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from headscope.errors import HeadscopeError
from headscope.model.attention_model import AttentionModel
from headscope.model.tokens import Batch
from headscope.tasks.items import Item
from headscope.tasks.per_token import PerToken
from headscope.tasks.prepared import IGNORED, Prepared, encode_items

SHARE = 0.15
MASKED, REPLACED = (
    0.8,
    0.1,
)  # shares of the selected tokens in pre-training; the others are unchanged


class MaskedTokenTask(PerToken):
    """Accuracy over the masked tokens of all texts; the loss in nats per masked token."""

    names: ClassVar[tuple[str, ...]] = ("masked", "mlm")
    model_class = "AutoModelForMaskedLM"
    is_free_of_labels = True

    def __init__(
        self,
        name: str = "masked",
        *,
        columns: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(name, columns=columns, labels=labels)
        self.seed = seed

    def check(self, model: AttentionModel) -> None:
        super().check(model)
        if "MaskedLM" not in type(model.model).__name__ or model.tokenizer is None:
            raise HeadscopeError(
                f"{type(model.model).__name__} does not predict masked tokens",
                where=model.name,
                expected="a model with a head for masked language modelling",
            )
        if model.tokenizer.mask_token_id is None:
            raise HeadscopeError("the tokenizer has no mask token", where=model.name)

    def prepare(
        self, model: AttentionModel, items: list[Item], *, max_length: int | None = None
    ) -> Prepared:
        self.check(model)
        return self.mask_tokens(model, encode_items(model, items, max_length))

    def mask_tokens(self, model: AttentionModel, plain: Prepared) -> Prepared:
        """The sequences with a share of their tokens masked; the labels are the original tokens."""
        assert model.tokenizer is not None
        mask = int(model.tokenizer.mask_token_id)
        sequences, labels = [], []
        for sequence in plain.sequences:
            ids = sequence.source.ids
            positions = self.masked_positions(ids, model.marks.special)
            shown = [mask if i in positions else token for i, token in enumerate(ids)]
            labels.append([token if i in positions else IGNORED for i, token in enumerate(ids)])
            sequences.append(replace(sequence, source=replace(sequence.source, ids=shown)))
        return replace(plain, sequences=sequences, labels=labels)

    def masked_positions(self, ids: Sequence[int], special: frozenset[int]) -> set[int]:
        """The positions of the masked tokens: 15 % of the content, at least one."""
        content = [i for i, token in enumerate(ids) if token not in special]
        if not content:
            return {len(ids) // 2}
        text = f"{self.seed}:{','.join(map(str, ids))}".encode()
        seed = int.from_bytes(hashlib.sha256(text).digest()[:8], "little")
        rng = np.random.default_rng(seed)
        return set(rng.choice(content, size=_count(content), replace=False).tolist())

    def call(self, model: AttentionModel, batch: Batch) -> Any:
        """Apply the head at the masked positions only: they are few, and its output is as wide as the vocabulary."""
        assert batch.labels is not None
        is_masked = (batch.labels != IGNORED).to(model.device)

        def pick(module: nn.Module, args: Any, output: Any) -> Any:
            output.last_hidden_state = output.last_hidden_state[is_masked][None]
            return output

        handle = model.model.base_model.register_forward_hook(pick)
        try:
            return model(batch)
        finally:
            handle.remove()

    def extract_answers(self, output: Any, batch: Batch, prepared: Prepared) -> Tensor:
        """[sequence, 3]: sum of losses, masked tokens, right tokens."""
        assert batch.labels is not None
        labels = batch.labels.to(output.logits.device)
        is_masked = labels != IGNORED
        logits: Tensor = output.logits[0]  # [masked token, vocabulary]
        right = labels[is_masked]
        losses = nn.functional.cross_entropy(logits.float(), right, reduction="none")
        hits = (logits.argmax(dim=-1) == right).to(losses)
        owner = is_masked.nonzero()[:, 0]
        sums = losses.new_zeros(len(labels), 3)
        return sums.index_add(0, owner, torch.stack([losses, torch.ones_like(losses), hits], dim=1))


class DynamicMasking(MaskedTokenTask):
    """The objective of pre-training: other tokens are selected in every epoch. Evaluation is as in `masked`.

    As in BERT, 80 % of the selected tokens become the mask token, 10 % a random token, and 10 % are unchanged.
    The selection follows from the seed, the epoch and the number of the sequence, so that resumed and distributed runs
    select the same tokens.
    """

    names: ClassVar[tuple[str, ...]] = ()  # made by `pretrain` from packed sequences, not by name

    def set_vocabulary(self, model: AttentionModel) -> None:
        """Set the mask token, and the tokens that may replace others: all that are not special."""
        assert model.tokenizer is not None
        self.special = model.marks.special
        self.mask = int(model.tokenizer.mask_token_id)
        ordinary = set(model.tokenizer.get_vocab().values()) - self.special
        self.ordinary = np.array(sorted(ordinary))

    def training_examples(
        self, prepared: Prepared, items: list[int], epoch: int
    ) -> tuple[Prepared, list[int]]:
        """These sequences, masked for this epoch, numbered from 0."""
        sequences, labels = [], []
        for number, item in enumerate(items):
            plain = prepared.sequences[item]
            ids, targets = self._mask(plain.source.ids, item, epoch)
            sequences.append(replace(plain, index=number, source=replace(plain.source, ids=ids)))
            labels.append(targets)
        numbers = list(range(len(items)))
        chosen, counts = [prepared.items[item] for item in items], prepared.counts
        return Prepared(chosen, sequences, [(i,) for i in numbers], None, counts, labels), numbers

    def _mask(self, ids: list[int], item: int, epoch: int) -> tuple[list[int], list[int]]:
        """The token ids that the model reads, and the labels."""
        rng = np.random.default_rng([self.seed, epoch, item])
        content = [i for i, token in enumerate(ids) if token not in self.special]
        positions = rng.choice(content, size=_count(content), replace=False)
        draws, others = rng.random(len(positions)), rng.choice(self.ordinary, size=len(positions))
        shown, labels = list(ids), [IGNORED] * len(ids)
        for position, draw, other in zip(
            positions.tolist(), draws.tolist(), others.tolist(), strict=True
        ):
            labels[position] = ids[position]
            if draw < MASKED:
                shown[position] = self.mask
            elif draw < MASKED + REPLACED:
                shown[position] = other
        return shown, labels


def _count(content: list[int]) -> int:
    return max(1, round(SHARE * len(content)))
