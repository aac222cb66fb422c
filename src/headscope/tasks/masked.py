"""Masked language modelling: which token was here? Every text is masked the same way each time.

A share of a text's content tokens is replaced by the mask token; which ones follows from the token ids and the seed
alone. The loss of a text is the mean over its masked tokens.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from headscope.data.examples import Example, read_examples
from headscope.errors import HeadscopeError
from headscope.model.attention_model import AttentionModel
from headscope.model.tokens import Batch
from headscope.tasks.base import Item, Prepared, encoded, keep_whole
from headscope.tasks.per_token import IGNORED, PerToken

SHARE = 0.15


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

    def read(self, path: Path) -> Iterator[Item]:
        column = self.columns.get("text")
        names = None if column is None else (column,)
        for example in read_examples([path], column=names, option='`columns={"text": "NAME"}`'):
            assert isinstance(example.first, str)
            yield Item((example.first,), None, example.where)

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
        assert model.tokenizer is not None
        found, counts = encoded(
            model, [Example(item.texts[0], where=item.where) for item in items], max_length
        )
        kept, whole, parts = keep_whole(items, [[one] for one in found], counts)
        return self.hidden(model, Prepared(kept, whole, parts, None, counts))

    def hidden(self, model: AttentionModel, plain: Prepared) -> Prepared:
        """Whole sequences with a share of their tokens masked, and these as labels."""
        assert model.tokenizer is not None
        mask = int(model.tokenizer.mask_token_id)
        sequences, labels = [], []
        for sequence in plain.sequences:
            chosen = self.places(sequence.source.ids, model.marks.special)
            ids = [mask if i in chosen else token for i, token in enumerate(sequence.source.ids)]
            labels.append(
                [token if i in chosen else IGNORED for i, token in enumerate(sequence.source.ids)]
            )
            sequences.append(replace(sequence, source=replace(sequence.source, ids=ids)))
        return replace(plain, sequences=sequences, labels=labels)

    def places(self, ids: Sequence[int], special: frozenset[int]) -> set[int]:
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

    def read_out(self, output: Any, batch: Batch, prepared: Prepared) -> Tensor:
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
