"""The tokens of a batch: which are padding, special, separators or punctuation, and their words and segments.

`Tokens` describes one side of a batch: the tokens of the encoder or those of the decoder. `Layout` knows from which
side the queries and keys of each stack come. It divides a batch into chunks of sequences of equal length, so that
observers never see padding.
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

CHUNK_CELLS = 800_000  # weights per chunk: few enough to save memory, enough to outweigh the overhead of a chunk


@dataclass(frozen=True)
class Marks:
    """The token ids of each class of tokens, from the tokenizer; empty if it has no token of the class."""

    special: frozenset[int] = frozenset()
    classification: frozenset[int] = frozenset()
    separator: frozenset[int] = frozenset()
    punctuation: frozenset[int] = frozenset()
    padding: int | None = None

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase) -> Marks:
        """The marks of a tokenizer. Punctuation is comma and full stop, which are frequent sinks."""

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
    """One side of a batch: the tokens of the encoder or of the decoder. Every tensor is [sequence, token].

    Without token ids (image patches, or if a model is called with embeddings) every real token counts as content.

    real      False at padding
    ids       token ids
    words     the index of the word that the token is a part of, from 0; -1 for special tokens and padding
    segments  0 for tokens of the first text of a pair, 1 for the second
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
        """[sequence, token], bool: special tokens of any kind."""
        return self._of_class(self.marks.special)

    @cached_property
    def classification(self) -> Tensor:
        """[sequence, token], bool: classification tokens, such as [CLS]."""
        return self._of_class(self.marks.classification)

    @cached_property
    def separator(self) -> Tensor:
        """[sequence, token], bool: separators, such as [SEP], or ends of text."""
        return self._of_class(self.marks.separator)

    @cached_property
    def punctuation(self) -> Tensor:
        """[sequence, token], bool: commas and full stops."""
        return self._of_class(self.marks.punctuation)

    @cached_property
    def content(self) -> Tensor:
        """[sequence, token], bool: real tokens that are not special."""
        return self.real & ~self.special

    @cached_property
    def classes(self) -> Tensor:
        """[sequence, token, class]: 1 if a token is of a class, else 0; classes in the order of CLASSES."""
        return torch.stack([getattr(self, name) for name in CLASSES], dim=-1).float()

    @cached_property
    def special_penalty(self) -> Tensor:
        """[sequence, token]: -2 at special tokens. Added to weights, it ensures that no special key has the largest."""
        return self.special * -2.0

    @cached_property
    def content_count(self) -> int:
        """The number of content tokens in all sequences together."""
        return int(self.content.sum())

    @cached_property
    def averages(self) -> Tensor:
        """[sequence, token, 3]: factors that turn values of rows into means over all, content and classification rows.

        values [sequence, row] @ averages gives [sequence, 3] means. NaN if a sequence has no such row.
        """
        rows = torch.stack([self.real, self.content, self.classification], dim=-1)
        return rows / rows.sum(dim=1, keepdim=True)

    @property
    def length(self) -> int:
        """The number of tokens of each sequence, including padding."""
        return self.real.shape[1]

    def select(self, rows: slice, index: slice | Tensor) -> Tokens:
        """These sequences, reduced to the tokens at these indices."""

        def take(tensor: Tensor | None) -> Tensor | None:
            return None if tensor is None else tensor[rows][:, index]

        real = self.real[rows][:, index]
        result = Tokens(real, take(self.ids), take(self.words), take(self.segments), self.marks)
        # Derived tensors are computed once per batch and then selected from, instead of once per chunk.
        for name in DERIVED:
            result.__dict__[name] = take(getattr(self, name))
        return result

    def to(self, device: torch.device) -> Tokens:
        """The same tokens on a device."""
        ids, words, segments = (
            None if tensor is None else tensor.to(device)
            for tensor in (self.ids, self.words, self.segments)
        )
        return Tokens(self.real.to(device), ids, words, segments, self.marks)


CLASSES = ("classification", "separator", "punctuation", "special")
# The cached properties of `Tokens` that have an axis of tokens.
DERIVED = (*CLASSES, "content", "classes", "averages", "special_penalty")


@dataclass(frozen=True)
class Chunk:
    """Neighbouring sequences of one batch with the same number of real tokens at the same positions.

    rows                    the sequences
    query_index, key_index  the positions of their real tokens
    query, key              these tokens; the same object in self attention
    """

    rows: slice
    query_index: slice | Tensor
    key_index: slice | Tensor
    query: Tokens
    key: Tokens


@dataclass(frozen=True)
class Layout:
    """The sides of a batch.

    encoder  the tokens of the encoder
    decoder  the tokens of the decoder, also in a decoder-only model
    targets  the tokens to predict, which are the queries of XLNet's query stream
    plans    {stack: how `fold` goes through the batch; None if it cannot}, computed once for all layers
    _chunks  {(stack, number of heads): chunks of the batch}, computed once for all layers
    """

    encoder: Tokens | None = None
    decoder: Tokens | None = None
    targets: Tokens | None = None
    plans: dict[str, FoldPlan | None] = field(default_factory=dict, compare=False, repr=False)
    _chunks: dict[tuple[str, int], list[Chunk]] = field(
        default_factory=dict, compare=False, repr=False
    )

    def sides(self, stack: str) -> tuple[Tokens, Tokens] | None:
        """The tokens of the queries and of the keys of a stack; None if they are not known."""
        query, key = {
            "encoder": (self.encoder, self.encoder),
            "decoder": (self.decoder, self.decoder),
            "cross": (self.decoder, self.encoder),
            "query": (self.targets, self.encoder),
        }[stack]
        return None if query is None or key is None else (query, key)

    def chunks(self, stack: str, heads: int) -> list[Chunk]:
        """The batch as chunks of equally long sequences with at most CHUNK_CELLS weights (or one sequence)."""
        if (stack, heads) not in self._chunks:
            sides = self.sides(stack)
            assert sides is not None, stack
            self._chunks[stack, heads] = _chunks(*sides, heads)
        return self._chunks[stack, heads]

    def to(self, device: torch.device) -> Layout:
        """The same layout on a device."""
        encoder, decoder, targets = (
            None if side is None else side.to(device)
            for side in (self.encoder, self.decoder, self.targets)
        )
        return Layout(encoder, decoder, targets)


def pattern_over_layout(
    layout: Layout | None, stack: str, batch: int, keys: int, make: Callable[[int], Tensor]
) -> Tensor:
    """[sequence or 1, …, key, key]: a pattern of attention at the real tokens of each sequence; 1 at padding.

    make  function of a number of tokens n: the pattern [..., n, n]

    With a cache of earlier tokens, as in generation, the layout contains only the last tokens. Padding is then unknown,
    and it is assumed that there is none.
    """
    sides = None if layout is None else layout.sides(stack)
    if sides is None or sides[0].real.shape != (batch, keys):
        return make(keys)[None]
    return pattern_over_tokens(sides[0].real, make)


def pattern_over_tokens(real: Tensor, make: Callable[[int], Tensor]) -> Tensor:
    """[sequence or 1, …, key, key]: as `pattern_over_layout`, for keys whose padding is known.

    real  [sequence, key], False at padding
    """
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
    """Divide a batch into chunks, in order; a sequence with padding between its tokens is a chunk of its own."""
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
        query_tokens = query.select(rows, query_index)
        # If both sides are one object, statistics may compare positions of queries and keys (within_one_text).
        key_tokens = query_tokens if key is query else key.select(rows, key_index)
        chunks.append(Chunk(rows, query_index, key_index, query_tokens, key_tokens))
        start = stop
    return chunks


def _are_same_slice(first: slice | Tensor, second: slice | Tensor) -> bool:
    """Whether two sequences have their real tokens in the same slice."""
    return isinstance(first, slice) and first == second


def _real_indices(real: Tensor) -> list[slice | Tensor]:
    """The positions of the real tokens of each sequence: a slice, or a tensor if there is padding between them."""
    indices: list[slice | Tensor] = []
    first, length = real.int().argmax(dim=1).tolist(), real.sum(dim=1).tolist()
    for row, start, count in zip(real, first, length, strict=True):
        is_contiguous = bool(row[start : start + count].all())
        indices.append(slice(start, start + count) if is_contiguous else row.nonzero()[:, 0])
    return indices


@dataclass(frozen=True)
class Batch:
    """The inputs of a forward pass, and a description of its tokens.

    Parameters
    ----------
    inputs
        Tensors by name, as the model takes them.
    layout
        The tokens of each stack: which are padding, special, punctuation, content.
    indices
        The numbers of the examples in the batch.
    labels
        [sequence, token]: the correct answer at each token, for tasks that judge single tokens; -100 at ignored tokens.

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
    """The layout derived from the inputs of a model: token ids, padding mask and segments, but no words."""
    encoder = _side(inputs, marks, "")
    if decoder_only:
        return Layout(decoder=encoder)
    targets = None
    mapping = inputs.get("target_mapping")  # [sequence, target, token], of XLNet
    if mapping is not None and encoder is not None:
        # The queries of the query stream are the targets.
        is_target = encoder.real & (mapping.sum(dim=1) > 0)
        targets = Tokens(is_target, encoder.ids, segments=encoder.segments, marks=marks)
    return Layout(encoder=encoder, decoder=_side(inputs, marks, "decoder_"), targets=targets)


def _side(inputs: Mapping[str, Any], marks: Marks, prefix: str) -> Tokens | None:
    """The tokens of the inputs whose names have this prefix ("" or "decoder_"); None if they are not known."""
    ids: Tensor | None = inputs.get(f"{prefix}input_ids")
    tokens: Tensor | None = inputs.get(f"{prefix}inputs_embeds") if ids is None else ids
    if tokens is None:
        return None
    mask: Tensor | None = inputs.get(f"{prefix}attention_mask")
    if mask is None and not prefix and inputs.get("input_mask") is not None:
        mask = 1 - inputs["input_mask"]  # XLNet's input_mask is 1 at padding
    if mask is not None and mask.dim() != 2:
        return None  # a mask between pairs of tokens does not show which tokens are padding
    if mask is None:
        mask = torch.ones(tokens.shape[:2])
    segments = None if prefix else inputs.get("token_type_ids")
    return Tokens(real=mask.to(tokens.device).bool(), ids=ids, segments=segments, marks=marks)
