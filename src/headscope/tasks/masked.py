"""Masked language modelling: which token was here? Every text is masked the same way each time.

A share of a text's content tokens is replaced by the mask token; which ones follows from the token ids and the seed
alone. The loss of a text is the mean over its masked tokens. `DynamicMasking` is the pre-training
objective, with another mask in every epoch.
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
from headscope.tasks.base import Item, Prepared, encode_items
from headscope.tasks.per_token import IGNORED, PerToken

SHARE = 0.15
MASKED, REPLACED = (
    0.8,
    0.1,
)  # in pre-training, of the tokens that are asked; the others stay as they are


class MaskedTokenTask(PerToken):
    """The share of masked tokens that are guessed right, over all texts; the loss in nats a masked token."""

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
                f"{type(model.model).__name__} does not guess masked tokens",
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
        """Whole sequences with a share of their tokens masked, and these as labels."""
        assert model.tokenizer is not None
        mask = int(model.tokenizer.mask_token_id)
        sequences, labels = [], []
        for sequence in plain.sequences:
            chosen = self.masked_positions(sequence.source.ids, model.marks.special)
            ids = [mask if i in chosen else token for i, token in enumerate(sequence.source.ids)]
            labels.append(
                [token if i in chosen else IGNORED for i, token in enumerate(sequence.source.ids)]
            )
            sequences.append(replace(sequence, source=replace(sequence.source, ids=ids)))
        return replace(plain, sequences=sequences, labels=labels)

    def masked_positions(self, ids: Sequence[int], special: frozenset[int]) -> set[int]:
        """The places of the masked tokens: 15 % of the content, one at least."""
        content = [i for i, token in enumerate(ids) if token not in special]
        if not content:
            return {len(ids) // 2}
        text = f"{self.seed}:{','.join(map(str, ids))}".encode()
        chance = np.random.default_rng(int.from_bytes(hashlib.sha256(text).digest()[:8], "little"))
        count = max(1, round(SHARE * len(content)))
        return set(chance.choice(content, size=count, replace=False).tolist())

    def call(self, model: AttentionModel, batch: Batch) -> Any:
        """The head guesses at the asked places alone: it is as large as the vocabulary, and they are few."""
        assert batch.labels is not None
        places = (batch.labels != IGNORED).to(model.device)

        def pick(module: nn.Module, args: Any, output: Any) -> Any:
            output.last_hidden_state = output.last_hidden_state[places][None]
            return output

        handle = model.model.base_model.register_forward_hook(pick)
        try:
            return model(batch)
        finally:
            handle.remove()

    def extract_answers(self, output: Any, batch: Batch, prepared: Prepared) -> Tensor:
        """[sequence, 3]: sum of losses, masked tokens, right ones."""
        assert batch.labels is not None
        labels = batch.labels.to(output.logits.device)
        asked = labels != IGNORED
        logits: Tensor = output.logits[0]
        right = labels[asked]
        losses = nn.functional.cross_entropy(logits.float(), right, reduction="none")
        hits = (logits.argmax(dim=-1) == right).to(losses)
        owner = asked.nonzero()[:, 0]
        sums = losses.new_zeros(len(labels), 3)
        return sums.index_add(0, owner, torch.stack([losses, torch.ones_like(losses), hits], dim=1))


class DynamicMasking(MaskedTokenTask):
    """The pre-training objective. Judged like `masked`: the held-out sequences are masked once and for all.

    In every epoch another mask. Of the tokens that are asked, four in five are replaced by the mask token, one in ten
    by any token and one in ten by nothing, as in BERT. Which they are follows from the seed, the epoch and the
    sequence's number alone, so that a resumed run, or one spread over processes, sees the same.
    """

    # Made by `pretrain`, from packed sequences: no task by name
    names: ClassVar[tuple[str, ...]] = ()

    def set_vocabulary(self, model: AttentionModel) -> None:
        """What may be put in a token's place: the mask, or any token that is not special."""
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
            whole = prepared.sequences[item]
            ids, asked = self._masked(whole.source.ids, item, epoch)
            sequences.append(replace(whole, index=number, source=replace(whole.source, ids=ids)))
            labels.append(asked)
        here = list(range(len(items)))
        kept: list[Item] = [prepared.items[item] for item in items]
        return Prepared(kept, sequences, [(i,) for i in here], None, prepared.counts, labels), here

    def _masked(self, ids: list[int], item: int, epoch: int) -> tuple[list[int], list[int]]:
        """What the model reads, and what is right at each of its tokens."""
        chance = np.random.default_rng([self.seed, epoch, item])
        content = [i for i, token in enumerate(ids) if token not in self.special]
        places = chance.choice(content, size=max(1, round(SHARE * len(content))), replace=False)
        fates, others = chance.random(len(places)), chance.choice(self.ordinary, size=len(places))
        shown, labels = list(ids), [IGNORED] * len(ids)
        for place, fate, other in zip(
            places.tolist(), fates.tolist(), others.tolist(), strict=True
        ):
            labels[place] = ids[place]
            if fate < MASKED:
                shown[place] = self.mask
            elif fate < MASKED + REPLACED:
                shown[place] = other
        return shown, labels
