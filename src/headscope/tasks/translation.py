"""Translation: the likelihood of a given translation.

The loss of a pair is the mean over the tokens of the target, each given the ones before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from headscope.data.examples import read_examples
from headscope.data.text_lines import read_lines
from headscope.errors import HeadscopeError
from headscope.model.attention_model import AttentionModel
from headscope.model.tokens import Batch
from headscope.tasks.items import Item, sample_evenly, select_half, two_files
from headscope.tasks.per_token import PerToken, score_tokens
from headscope.tasks.prepared import Prepared, encode_items, labels_of


class Translation(PerToken):
    """Accuracy of the next target token with teacher forcing; the loss in nats per target token."""

    names: ClassVar[tuple[str, ...]] = ("translation",)
    model_class = "AutoModelForSeq2SeqLM"
    smoothing: float = 0.0

    def items(
        self, data: str | Path, split: str = "dev", *, limit: int | None = None
    ) -> list[Item]:
        """The pairs of a tab-separated file, or of two parallel files joined by a comma."""
        files = two_files(data)
        if files is None:
            return super().items(data, split, limit=limit)
        source, target = (list(read_lines(path)) for path in files)
        if len(source) != len(target):
            what = f"both files must have as many lines, got {len(source)} and {len(target)}"
            raise HeadscopeError(what, where=data)
        pairs = [
            Item((first, second), None, f"{files[0]}:{number}")
            for (number, first), (_, second) in zip(source, target, strict=True)
            if first.strip() and second.strip()
        ]
        return sample_evenly(select_half(pairs, split), limit, data)

    def read(self, path: Path) -> Iterator[Item]:
        names = tuple(self.columns[name] for name in ("source", "target") if name in self.columns)
        option = '`columns={"source": "NAME", "target": "NAME"}`'
        for example in read_examples([path], pairs=True, column=names or None, option=option):
            assert isinstance(example.first, str)
            assert isinstance(example.second, str)
            yield Item((example.first, example.second), None, example.where)

    def check(self, model: AttentionModel) -> None:
        super().check(model)
        if not model.is_encoder_decoder or model.model.get_output_embeddings() is None:
            raise HeadscopeError(
                f"{type(model.model).__name__} does not translate",
                where=model.name,
                expected="an encoder-decoder with a language model's head, such as opus-mt-en-fr",
            )

    def prepare(
        self, model: AttentionModel, items: list[Item], *, max_length: int | None = None
    ) -> Prepared:
        self.check(model)
        assert model.tokenizer is not None
        plain = encode_items(model, items, max_length)
        end = int(model.tokenizer.eos_token_id)
        labels = []
        for sequence in plain.sequences:
            assert sequence.target is not None
            labels.append([*sequence.target.ids[1:], end])
        return replace(plain, labels=labels)

    def extract_answers(self, output: Any, batch: Batch, prepared: Prepared) -> Tensor:
        """[sequence, 3]: sum of losses, target tokens, right tokens."""
        # Evaluation uses the plain loss
        smoothing = self.smoothing if torch.is_grad_enabled() else 0.0
        return score_tokens(
            output.logits, labels_of(prepared, batch, output.logits.shape[1]), smoothing
        )
