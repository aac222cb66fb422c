"""The tokens of a batch: real or padding, special, separator, punctuation, which word, which segment.

`Tokens` describes one side of a batch. `Layout` tells which side the queries and keys of each stack come from, and
divides a batch into runs of sequences of equal length, so that nothing behind the seam ever meets padding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from headscope.model.fold import FoldPlan

CHUNK_CELLS = 800_000  # weights at a time: few enough for little memory, many enough to outweigh the cost of a call


@dataclass(frozen=True)
class Marks:
    """The token ids of each class, by the tokenizer; empty if a model has no such token."""

    special: frozenset[int] = frozenset()
    classification: frozenset[int] = frozenset()
    separator: frozenset[int] = frozenset()
    punctuation: frozenset[int] = frozenset()
    padding: int | None = None

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase) -> Marks:
        def ids(token: int | None) -> frozenset[int]:
            return frozenset() if token is None else frozenset([token])

        vocabulary = tokenizer.get_vocab().items()
        punctuation = frozenset(i for token, i in vocabulary if token.lstrip("▁Ġ") in (".", ","))
        separator = tokenizer.sep_token_id
        return cls(
            special=frozenset(tokenizer.all_special_ids),
            classification=ids(tokenizer.cls_token_id),
            separator=ids(tokenizer.eos_token_id if separator is None else separator),
            punctuation=punctuation,
            padding=tokenizer.pad_token_id,
        )


@dataclass(frozen=True)
class Tokens:
    """One side of a batch. Every tensor is [sequence, token]; `real` is False at padding.

    A side without token ids (image patches, embeddings given directly) has no marked tokens: all is content.
    words     which word of the sequence a piece belongs to, counted from 0; -1 for special tokens and padding
    segments  0 or 1 for the first and second text
    """

    real: Tensor
    ids: Tensor | None = None
    words: Tensor | None = None
    segments: Tensor | None = None
    marks: Marks = field(default_factory=Marks)

    def _of_class(self, class_ids: frozenset[int]) -> Tensor:
        """[sequence, token], bool: the real tokens with one of these ids."""
        if self.ids is None or not class_ids:
            return torch.zeros_like(self.real)
        ids = torch.tensor(sorted(class_ids), dtype=self.ids.dtype, device=self.ids.device)
        return torch.isin(self.ids, ids) & self.real

    @cached_property
    def special(self) -> Tensor:
        return self._of_class(self.marks.special)

    @cached_property
    def classification(self) -> Tensor:
        return self._of_class(self.marks.classification)

    @cached_property
    def separator(self) -> Tensor:
        return self._of_class(self.marks.separator)

    @cached_property
    def punctuation(self) -> Tensor:
        return self._of_class(self.marks.punctuation)

    @cached_property
    def content(self) -> Tensor:
        """Real tokens that are not special."""
        return self.real & ~self.special

    @cached_property
    def classes(self) -> Tensor:
        """[sequence, token, class]: 1 where a token is of a class; classes in the order of CLASSES."""
        return torch.stack([getattr(self, name) for name in CLASSES], dim=-1).float()

    @cached_property
    def special_penalty(self) -> Tensor:
        """[sequence, token]: added to weights, it makes sure that a special key is never the largest."""
        return self.special * -2.0

    @cached_property
    def content_count(self) -> int:
        """The number of content tokens in all sequences together."""
        return int(self.content.sum())

    @cached_property
    def averages(self) -> Tensor:
        """[sequence, token, 3]: row values times this are their means over all, content and classification rows.

        NaN if a sequence has no such row.
        """
        rows = torch.stack([self.real, self.content, self.classification], dim=-1)
        return rows / rows.sum(dim=1, keepdim=True)

    @property
    def length(self) -> int:
        return self.real.shape[1]

    def select(self, rows: slice, index: slice | Tensor) -> Tokens:
        """These sequences, at these tokens."""

        def part(tensor: Tensor | None) -> Tensor | None:
            return None if tensor is None else tensor[rows][:, index]

        real = self.real[rows][:, index]
        result = Tokens(real, part(self.ids), part(self.words), part(self.segments), self.marks)
        for name in DERIVED:  # computed once for the batch, not for every part of it
            result.__dict__[name] = part(getattr(self, name))
        return result

    def to(self, device: torch.device) -> Tokens:
        ids, words, segments = (
            None if tensor is None else tensor.to(device)
            for tensor in (self.ids, self.words, self.segments)
        )
        return Tokens(self.real.to(device), ids, words, segments, self.marks)


CLASSES = ("classification", "separator", "punctuation", "special")
# Cached properties with an axis of tokens.
DERIVED = (*CLASSES, "content", "classes", "averages", "special_penalty")


@dataclass(frozen=True)
class Chunk:
    """Neighbouring sequences of one batch that are equally long, and the indices of their real tokens."""

    rows: slice
    query_index: slice | Tensor
    key_index: slice | Tensor
    query: Tokens
    key: Tokens


@dataclass(frozen=True)
class Layout:
    """The sides of a batch: `encoder`, `decoder` (also of a decoder-only model), `targets` (XLNet's query stream)."""

    encoder: Tokens | None = None
    decoder: Tokens | None = None
    targets: Tokens | None = None
    plans: dict[str, FoldPlan | None] = field(default_factory=dict, compare=False, repr=False)
    _chunks: dict[tuple[str, int], list[Chunk]] = field(
        default_factory=dict, compare=False, repr=False
    )

    def sides(self, stack: str) -> tuple[Tokens, Tokens] | None:
        """The query and key side of a stack; None if this batch does not tell."""
        query, key = {
            "encoder": (self.encoder, self.encoder),
            "decoder": (self.decoder, self.decoder),
            "cross": (self.decoder, self.encoder),
            "query": (self.targets, self.encoder),
        }[stack]
        return None if query is None or key is None else (query, key)

    def chunks(self, stack: str, heads: int) -> list[Chunk]:
        """The batch in runs of equal length of at most CHUNK_CELLS weights; made once for all layers."""
        if (stack, heads) not in self._chunks:
            sides = self.sides(stack)
            assert sides is not None, stack
            self._chunks[stack, heads] = _chunks(*sides, heads)
        return self._chunks[stack, heads]

    def to(self, device: torch.device) -> Layout:
        encoder, decoder, targets = (
            None if side is None else side.to(device)
            for side in (self.encoder, self.decoder, self.targets)
        )
        return Layout(encoder, decoder, targets)


def pattern_over_layout(
    layout: Layout | None, stack: str, batch: int, keys: int, make: Callable[[int], Tensor]
) -> Tensor:
    """[sequence or 1, …, key, key]: the pattern that `make` gives for each sequence's length, at its real tokens.

    1 at padding. With a cache of earlier tokens the layout tells only the last ones: then no padding is assumed, as
    when an encoder-decoder generates.
    """
    sides = None if layout is None else layout.sides(stack)
    if sides is None or sides[0].real.shape != (batch, keys):
        return make(keys)[None]
    return pattern_over_tokens(sides[0].real, make)


def pattern_over_tokens(real: Tensor, make: Callable[[int], Tensor]) -> Tensor:
    """The same at the real ones [sequence, key] of some keys; one pattern for all sequences if there is no padding."""
    batch, keys = real.shape
    if bool(real.all()):
        return make(keys)[None]
    result: Tensor | None = None
    for row, tokens in enumerate(real.cpu()):
        index = tokens.nonzero()[:, 0]
        pattern = make(len(index))
        if result is None:
            result = torch.ones(batch, *pattern.shape[:-2], keys, keys, dtype=pattern.dtype)
        result[row][..., index[:, None], index[None, :]] = pattern
    assert result is not None
    return result


def _chunks(query: Tokens, key: Tokens, heads: int) -> list[Chunk]:
    queries, keys = _real_indices(query.real), _real_indices(key.real)
    cells = heads * query.length * key.length  # of one sequence
    chunks, start = [], 0
    for stop in range(1, len(queries) + 1):
        is_full = (stop - start + 1) * cells > CHUNK_CELLS
        if (
            stop < len(queries)
            and not is_full
            and _are_same_slice(queries[start], queries[stop])
            and _are_same_slice(keys[start], keys[stop])
        ):
            continue
        rows, query_index, key_index = slice(start, stop), queries[start], keys[start]
        query_part = query.select(rows, query_index)
        # One object for both sides tells statistics that positions can be compared (Attention.within_one_text).
        key_part = query_part if key is query else key.select(rows, key_index)
        chunks.append(Chunk(rows, query_index, key_index, query_part, key_part))
        start = stop
    return chunks


def _are_same_slice(first: slice | Tensor, second: slice | Tensor) -> bool:
    return isinstance(first, slice) and first == second


def _real_indices(real: Tensor) -> list[slice | Tensor]:
    """Each sequence's real tokens: a slice, or indices if there is padding between them."""
    indices: list[slice | Tensor] = []
    first, length = real.int().argmax(dim=1).tolist(), real.sum(dim=1).tolist()
    for row, start, count in zip(real, first, length, strict=True):
        is_contiguous = bool(row[start : start + count].all())
        indices.append(slice(start, start + count) if is_contiguous else row.nonzero()[:, 0])
    return indices


@dataclass(frozen=True)
class Batch:
    """The inputs of a forward pass, and what its tokens are.

    Parameters
    ----------
    inputs
        Tensors by name, as the model takes them.
    layout
        The tokens of each stack: which are real, special, punctuation, content.
    indices
        The numbers of the examples in the batch.
    labels
        [sequence, token]: the right answer at each token, for tasks that judge single tokens; -100 to ignore one.

    Examples
    --------
    >>> batch = next(headscope.encode("minilm", ["The cat sat."]))
    >>> len(batch), sorted(batch.inputs)
    (1, ['attention_mask', 'input_ids', 'token_type_ids'])
    """

    inputs: Mapping[str, Tensor]
    layout: Layout
    indices: tuple[int, ...] = ()
    labels: Tensor | None = None

    def __len__(self) -> int:
        return len(next(iter(self.inputs.values())))


def layout_of(inputs: Mapping[str, Any], marks: Marks, *, decoder_only: bool = False) -> Layout:
    """The layout that a model's own inputs tell: token ids, padding mask, segments; no words."""
    encoder = _side(inputs, marks, "")
    if decoder_only:
        return Layout(decoder=encoder)
    targets = None
    mapping = inputs.get("target_mapping")  # [sequence, target, token], of XLNet
    if mapping is not None and encoder is not None:
        # The rows of the query stream are the targets.
        is_target = encoder.real & (mapping.sum(dim=1) > 0)
        targets = Tokens(is_target, encoder.ids, segments=encoder.segments, marks=marks)
    return Layout(encoder=encoder, decoder=_side(inputs, marks, "decoder_"), targets=targets)


def _side(inputs: Mapping[str, Any], marks: Marks, prefix: str) -> Tokens | None:
    ids: Tensor | None = inputs.get(f"{prefix}input_ids")
    tokens: Tensor | None = inputs.get(f"{prefix}inputs_embeds") if ids is None else ids
    if tokens is None:
        return None
    mask: Tensor | None = inputs.get(f"{prefix}attention_mask")
    if mask is None and not prefix and inputs.get("input_mask") is not None:
        mask = 1 - inputs["input_mask"]  # XLNet's is 1 at padding
    if mask is not None and mask.dim() != 2:
        return None  # a mask between tokens does not say which of them are padding
    if mask is None:
        mask = torch.ones(tokens.shape[:2])
    segments = None if prefix else inputs.get("token_type_ids")
    return Tokens(real=mask.to(tokens.device).bool(), ids=ids, segments=segments, marks=marks)
