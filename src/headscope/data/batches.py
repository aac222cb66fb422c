"""Makes padded batches of examples, in an order that depends only on the input.

WINDOW examples at a time are encoded, sorted by length and split into batches. This keeps padding small and memory
constant. Results do not depend on which sequences share a batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

from headscope.config.value_types import describe_type, describe_value, has_type
from headscope.data.encode import Encoder, Sequence, Side
from headscope.data.examples import Example, examples_of
from headscope.errors import HeadscopeError
from headscope.model.attention_model import AttentionModel
from headscope.model.load import as_model
from headscope.model.tokens import Batch, Layout, Tokens

WINDOW = 1024


def batches(
    encoder: Encoder, examples: Iterable[Example], *, batch_size: int = 32
) -> Iterator[Batch]:
    """Padded batches of at most `batch_size` sequences; within each WINDOW of examples the longest come first."""
    remaining = iter(examples)
    start = 0
    while window := list(islice(remaining, WINDOW)):
        sequences = list(encoder.encode(window, start))
        sequences.sort(key=lambda sequence: sequence.lengths, reverse=True)
        start += len(window)
        for first in range(0, len(sequences), batch_size):
            yield collate(encoder.model, sequences[first : first + batch_size])


def encode(
    model: AttentionModel | str | Path,
    texts: Iterable[str | tuple[str, str]],
    *,
    batch_size: int = 32,
    max_length: int | None = None,
) -> Iterator[Batch]:
    """Encode texts, or pairs of texts, as batches for a model.

    Parameters
    ----------
    model
        A loaded model, or the name, directory or hub id of one.
    texts
        Texts, or pairs of texts.
    batch_size
        Maximum number of sequences in a batch.
    max_length
        Maximum number of tokens of a sequence; by default that of the model. Longer texts are truncated.

    Returns
    -------
    iterator of Batch
        Sequences of similar length share a batch; `batch.indices` are the indices of its texts.

    Raises
    ------
    HeadscopeError
        If the model or an option is not usable.

    Examples
    --------
    >>> batches = list(headscope.encode("minilm", ["The cat sat.", "A dog."], batch_size=2))
    >>> len(batches), batches[0].indices
    (1, (0, 1))
    """
    for name, value, kind in (
        ("batch_size", batch_size, int),
        ("max_length", max_length, int | None),
    ):
        if not has_type(value, kind):
            what = f"`{name}` must be {describe_type(kind)}, got {describe_value(value)}"
            raise HeadscopeError(what)
    examples = examples_of(texts)
    return batches(Encoder(as_model(model), max_length=max_length), examples, batch_size=batch_size)


def batch_of_texts(model: AttentionModel, texts: str | Iterable[str | tuple[str, str]]) -> Batch:
    """One batch of one or several texts, in their order; raises an error for a text that is too long."""
    examples = examples_of([texts] if isinstance(texts, str) else texts)
    if not examples:
        raise HeadscopeError("no text was given", where="texts", expected="one or more")
    sequences = list(Encoder(model, long="error").encode(examples, 0))
    if len(sequences) < len(examples):
        missing = min(set(range(len(examples))) - {sequence.index for sequence in sequences})
        what = f"text {missing + 1} has no tokens"
        raise HeadscopeError(what, where="texts", expected="texts with tokens")
    return collate(model, sequences)


def collate(model: AttentionModel, sequences: list[Sequence]) -> Batch:
    """One padded batch with its layout."""
    sources = [sequence.source for sequence in sequences]
    targets = [sequence.target for sequence in sequences if sequence.target is not None]
    if targets and len(targets) < len(sources):
        what = "some texts have a target and some have none"
        raise HeadscopeError(what, expected="pairs throughout, or single texts")
    padding = model.marks.padding or 0
    tokens = _tokens(model, sources, padding)
    assert tokens.ids is not None
    inputs: dict[str, Tensor] = {"input_ids": tokens.ids, "attention_mask": tokens.real.long()}
    types = [side.token_types for side in sources if side.token_types is not None]
    if len(types) == len(sources) and model.takes_segments:
        inputs["token_type_ids"] = _pad(types, 0)
    indices = tuple(sequence.index for sequence in sequences)
    if not model.is_encoder_decoder and {site.stack for site in model.sites} == {"decoder"}:
        return Batch(inputs, Layout(decoder=tokens), indices)
    if not (targets and model.is_encoder_decoder):
        return Batch(inputs, Layout(encoder=tokens), indices)
    decoder = _tokens(model, targets, padding)
    assert decoder.ids is not None
    inputs |= {"decoder_input_ids": decoder.ids, "decoder_attention_mask": decoder.real.long()}
    return Batch(inputs, Layout(encoder=tokens, decoder=decoder), indices)


def _tokens(model: AttentionModel, sides: list[Side], padding: int) -> Tokens:
    return Tokens(
        real=_pad([[1] * len(side.ids) for side in sides], 0).bool(),
        ids=_pad([side.ids for side in sides], padding),
        words=_pad([side.words for side in sides], -1),
        segments=_pad([side.segments for side in sides], 0),
        marks=model.marks,
    )


def _pad(rows: list[list[int]], value: int) -> Tensor:
    longest = max(len(row) for row in rows)
    return torch.tensor([row + [value] * (longest - len(row)) for row in rows])
