"""Language modelling from left to right: which token comes next?

The loss of a text is the mean over its tokens but the first, each given the ones before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from headscope.data.examples import Example, read_examples
from headscope.errors import HeadscopeError
from headscope.model.attention_model import AttentionModel
from headscope.model.tokens import Batch
from headscope.tasks.base import Item, Prepared, encoded, keep_whole, labels_of
from headscope.tasks.per_token import IGNORED, PerToken, taught


class Causal(PerToken):
    """The share of tokens that are guessed right from those before them; the loss in nats a token."""

    names: ClassVar[tuple[str, ...]] = ("causal",)
    model_class = "AutoModelForCausalLM"
    is_free_of_labels = True

    def read(self, path: Path) -> Iterator[Item]:
        column = self.columns.get("text")
        names = None if column is None else (column,)
        for example in read_examples([path], column=names, option='`columns={"text": "NAME"}`'):
            assert isinstance(example.first, str)
            yield Item((example.first,), None, example.where)

    def check(self, model: AttentionModel) -> None:
        super().check(model)
        is_decoder = {site.stack for site in model.sites} == {"decoder"}
        if not is_decoder or model.model.get_output_embeddings() is None:
            raise HeadscopeError(
                f"{type(model.model).__name__} does not guess the next token",
                where=model.name,
                expected="a decoder with a language model's head, such as GPT-2's",
            )

    def prepare(
        self, model: AttentionModel, items: list[Item], *, max_length: int | None = None
    ) -> Prepared:
        self.check(model)
        found, counts = encoded(
            model, [Example(item.texts[0], where=item.where) for item in items], max_length
        )
        for number, sequence in enumerate(found):
            if sequence is not None and len(sequence.source.ids) < 2:
                found[number] = None
                counts.skip("of one token, before which there is nothing")
        kept, sequences, parts = keep_whole(items, [[one] for one in found], counts)
        labels = [[*sequence.source.ids[1:], IGNORED] for sequence in sequences]
        return Prepared(kept, sequences, parts, None, counts, labels)

    def read_out(self, output: Any, batch: Batch, prepared: Prepared) -> Tensor:
        """[sequence, 3]: sum of losses, tokens asked, right ones."""
        return taught(output.logits, labels_of(prepared, batch, output.logits.shape[1]))
