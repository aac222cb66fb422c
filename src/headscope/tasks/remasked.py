"""Masked language modelling as one pre-trains: another mask in every epoch, and not every asked token is masked.

Of the tokens that are asked, four in five are replaced by the mask token, one in ten by any token and one in ten by
nothing, as BERT has it. Which they are follows from the seed, the epoch and the sequence's number alone, so that a run
that was killed, or is spread over processes, sees the same.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

from headscope.model.attention_model import AttentionModel
from headscope.tasks.base import Item, Prepared
from headscope.tasks.masked import SHARE, MaskedTokenTask
from headscope.tasks.per_token import IGNORED

MASKED, REPLACED = 0.8, 0.1  # of the tokens that are asked; the others stay as they are


class Remasked(MaskedTokenTask):
    """The pre-training objective. Judged like `masked`: the held-out sequences are masked once and for all."""

    names: ClassVar[
        tuple[str, ...]
    ] = ()  # made by `pretrain`, from packed sequences: no task by name

    def bind(self, model: AttentionModel) -> None:
        """What may be put in a token's place: the mask, or any token that is not special."""
        assert model.tokenizer is not None
        self.special = model.marks.special
        self.mask = int(model.tokenizer.mask_token_id)
        ordinary = set(model.tokenizer.get_vocab().values()) - self.special
        self.ordinary = np.array(sorted(ordinary))

    def drawn(self, prepared: Prepared, items: list[int], epoch: int) -> tuple[Prepared, list[int]]:
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
