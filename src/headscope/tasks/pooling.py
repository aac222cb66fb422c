"""One vector for a text, pooled as `model.reading` says; and tasks that compare such vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from headscope.data.encode import DEFAULT_LENGTH, Counts, model_limit
from headscope.data.encode import Sequence as Encoded
from headscope.data.examples import Example
from headscope.errors import HeadscopeError, note
from headscope.model.attention_model import AttentionModel
from headscope.model.reading import BY_OPTION, TextReading, normalize
from headscope.model.relevance.targets import component_along
from headscope.model.tokens import Batch
from headscope.tasks.base import Prepared, Task, encode_examples


@dataclass(frozen=True)
class Pooling:
    """How the sequences of a prepared task are pooled.

    skipped  for each sequence the number of its first tokens, those of a prompt, that do not take part
    """

    reading: TextReading
    skipped: tuple[int, ...] = ()

    def of(self, batch: Batch) -> Tensor | int:
        return torch.tensor([self.skipped[i] for i in batch.indices]) if any(self.skipped) else 0


class PooledTask(Task):
    """A task about pairs of texts, each of which is read by itself and becomes a vector."""

    pools: ClassVar[bool] = True

    def check(self, model: AttentionModel) -> None:
        """Refuse a model whose output is not its tokens' states, or of which nothing says how they are pooled."""
        if model.model.base_model is not model.model or model.is_encoder_decoder:
            raise HeadscopeError(
                f"{type(model.model).__name__} does not give its tokens' states",
                where=model.name,
                expected=f"a bare encoder for {self.name}",
                fix='Load it with model_class="AutoModel"',
            )
        check_pooling(model, model.name)
        if model.reading.similarity not in (None, "cosine", "dot") or (
            model.reading.similarity == "dot" and not model.reading.is_normalized
        ):
            note(
                f"{model.name} states the similarity {model.reading.similarity}; {self.name} uses the cosine"
            )

    def extract_answers(self, output: Any, batch: Batch, prepared: Prepared) -> Tensor:
        return pool_states(output, batch, prepared.extras.reading, prepared.extras.of(batch))

    def relevance_target(
        self,
        model: AttentionModel,
        batch: Batch,
        prepared: Prepared,
        *,
        seed: int = 0,
        answers: Tensor | None = None,
    ) -> Tensor:
        """How near a text's vector is to that of the other text of its pair, which is held fixed."""
        assert answers is not None
        pooling: Pooling = prepared.extras
        output = model(batch)
        vectors = pooling.reading.vectors(
            output[0], batch.inputs["attention_mask"], pooling.of(batch), hold_lengths=True
        )
        return component_along(vectors, _others(answers, prepared.parts)[list(batch.indices)])

    def imitation(self, answers: Tensor, wanted: Tensor) -> Tensor:
        """[sequence]: one minus the cosine of two vectors of length 1."""
        return 1 - (answers * wanted).sum(dim=-1)


def check_pooling(model: AttentionModel, where: str) -> None:
    """As `check_readable`; name the default where nothing states the pooling."""
    check_readable(model, where)
    if not model.reading.is_stated:
        told = "no file states the pooling (modules.json), so the mean of the token states is used; see `pooling`"
        note(f"{where}: {told}")


def check_readable(model: AttentionModel, where: str) -> None:
    """Refuse a reading that cannot be applied, and a decoder of which nothing states the pooling."""
    reading = model.reading
    reading.check(where)
    if not reading.is_stated and {site.stack for site in model.sites} == {"decoder"}:
        raise HeadscopeError(
            "no file states how its token states become one vector, and for a decoder there is no default",
            where=where,
            fix='Pass `pooling="last"` (the usual one for decoders), mean, first or max',
        )


def pool_states(
    output: Any, batch: Batch, reading: TextReading, skipped: Tensor | int = 0
) -> Tensor:
    """[sequence, width]: one vector a text, of length 1."""
    return normalize(reading.vectors(output[0], batch.inputs["attention_mask"], skipped).float())


def length_of(model: AttentionModel, max_length: int | None) -> int:
    """Tokens of a text at most: as asked, else as the model's files state, else what is usual elsewhere."""
    limit, reading = model_limit(model), model.reading
    if max_length is not None:
        return max_length
    if reading.max_length is not None:
        return min(limit, reading.max_length)
    # Newer versions of sentence-transformers state the length in the tokenizer alone.
    is_limited = reading.stated_by not in (None, BY_OPTION) and limit < 1_000_000
    return limit if is_limited else min(limit, DEFAULT_LENGTH)


def encode_texts(
    model: AttentionModel, texts: Sequence[tuple[str, str, str | None]], max_length: int | None
) -> tuple[list[Encoded | None], Counts, list[int]]:
    """Sequences of (text, where, role) with their prompts, what became of them, and how many tokens pooling skips."""
    reading, length = model.reading, length_of(model, max_length)
    skipped = {
        role: 0 if reading.include_prompt else _tokens_of_prompt(model, role)
        for _, _, role in texts
    }
    if max(skipped.values()) >= length - 1:
        raise HeadscopeError(
            f"the prompt has {max(skipped.values())} tokens, which leaves no room for text",
            where=model.name,
            expected=f"fewer than {length - 1}",
        )
    prompted = [Example(reading.text(text, role), where=where) for text, where, role in texts]
    found, counts = encode_examples(model, prompted, length)
    if counts.truncated:
        note(
            f"{counts.truncated} of {counts.read} texts were truncated to {length} tokens; see `max_length`"
        )
    return found, counts, [skipped[role] for _, _, role in texts]


def _tokens_of_prompt(model: AttentionModel, role: str | None) -> int:
    """How many tokens a prompt has with the special ones before it, as sentence-transformers counts them."""
    prompt = model.reading.prompt_for(role)
    if not prompt:
        return 0
    assert model.tokenizer is not None
    ids = model.tokenizer(prompt.lower() if model.reading.lower_case else prompt, verbose=False)[
        "input_ids"
    ]
    return len(ids) - (bool(ids) and ids[-1] in model.marks.special)


def _others(answers: Tensor, parts: Sequence[tuple[int, ...]]) -> Tensor:
    """[sequence, width]: the vector of the other sequence of its item; the mean where there are several."""
    sums = torch.zeros_like(answers)
    for one, other in parts:
        sums[one] += answers[other]
        sums[other] += answers[one]
    return torch.nn.functional.normalize(sums, dim=-1)
