"""One vector per text, pooled as `model.reading` states, and the base class of tasks that compare such vectors."""

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
from headscope.tasks.base import Task
from headscope.tasks.prepared import Prepared, encode_examples


@dataclass(frozen=True)
class Pooling:
    """How the sequences of a prepared task are pooled.

    skipped  for each sequence, the number of prompt tokens that are excluded from pooling
    """

    reading: TextReading
    skipped: tuple[int, ...] = ()

    def of(self, batch: Batch) -> Tensor | int:
        return torch.tensor([self.skipped[i] for i in batch.indices]) if any(self.skipped) else 0


class PooledTask(Task):
    """A task about pairs of texts that are encoded separately as vectors."""

    pools: ClassVar[bool] = True

    def check(self, model: AttentionModel) -> None:
        """Refuse a model whose output is not its token states, and a decoder without a stated pooling."""
        if model.model.base_model is not model.model or model.is_encoder_decoder:
            raise HeadscopeError(
                f"{type(model.model).__name__} does not return token states",
                where=model.name,
                expected=f"a bare encoder for {self.name}",
                fix='Load it with model_class="AutoModel"',
            )
        check_pooling(model, model.name)
        similarity = model.reading.similarity
        # The dot product of normalised vectors is their cosine.
        is_cosine = similarity == "cosine" or (similarity == "dot" and model.reading.is_normalized)
        if similarity is not None and not is_cosine:
            note(f"{model.name} states the similarity {similarity}; {self.name} uses the cosine")

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
        """Similarity of a text's vector to the vector of the other text of its pair, which is a constant here."""
        assert answers is not None
        pooling: Pooling = prepared.extras
        output = model(batch)
        vectors = pooling.reading.vectors(
            output[0], batch.inputs["attention_mask"], pooling.of(batch), hold_lengths=True
        )
        return component_along(vectors, _others(answers, prepared.parts)[list(batch.indices)])

    def imitation(self, answers: Tensor, teacher: Tensor) -> Tensor:
        """[sequence]: one minus the cosine of two vectors of length 1."""
        return 1 - (answers * teacher).sum(dim=-1)


def check_pooling(model: AttentionModel, where: str) -> None:
    """Check as in `check_readable`; warn if no file states the pooling, so that the default is used."""
    check_readable(model, where)
    if not model.reading.is_stated:
        default = "so the mean of the token states is used; see `pooling`"
        note(f"{where}: no file states the pooling (modules.json), {default}")


def check_readable(model: AttentionModel, where: str) -> None:
    """Refuse a pooling that cannot be applied, and a decoder without a stated pooling."""
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
    """[sequence, width]: one vector per text, of length 1."""
    return normalize(reading.vectors(output[0], batch.inputs["attention_mask"], skipped).float())


def length_of(model: AttentionModel, max_length: int | None) -> int:
    """Maximum number of tokens of a text: the option, else what the model's files state, else the usual default."""
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
    """Sequences of (text, where, role) with their prompts, counts, and the numbers of prompt tokens to skip."""
    reading, length = model.reading, length_of(model, max_length)
    prompt_tokens = {role: _prompt_length(model, role) for _, _, role in texts}
    longest = max(prompt_tokens.values())
    if longest >= length - 1:
        raise HeadscopeError(
            f"the prompt must have fewer than {length - 1} tokens, which leaves room for text, got {longest}",
            where=model.name,
        )
    prompted = [Example(reading.text(text, role), where=where) for text, where, role in texts]
    sequences, counts = encode_examples(model, prompted, length)
    if counts.truncated:
        note(
            f"{counts.truncated} of {counts.read} texts were truncated to {length} tokens; see `max_length`"
        )
    return sequences, counts, [prompt_tokens[role] for _, _, role in texts]


def _prompt_length(model: AttentionModel, role: str | None) -> int:
    """Number of tokens of an excluded prompt with the special tokens before it, as in sentence-transformers."""
    reading = model.reading
    prompt = reading.prompt_for(role)
    if not prompt or reading.include_prompt:
        return 0
    assert model.tokenizer is not None
    text = prompt.lower() if reading.lower_case else prompt
    ids = model.tokenizer(text, verbose=False)["input_ids"]
    return len(ids) - (bool(ids) and ids[-1] in model.marks.special)


def _others(answers: Tensor, parts: Sequence[tuple[int, ...]]) -> Tensor:
    """[sequence, width]: the vector of the other sequence of its item; the mean direction of several."""
    sums = torch.zeros_like(answers)
    for first, second in parts:
        sums[first] += answers[second]
        sums[second] += answers[first]
    return torch.nn.functional.normalize(sums, dim=-1)
