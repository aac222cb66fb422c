"""What the tokens of a batch are: real or padding, special, separator, punctuation, which word, which segment.

`Tokens` describes one side of a batch; `Layout` says which side each stack's queries and keys come from, and
cuts a batch into runs of sequences of equal length, so that nothing behind the seam ever meets padding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

CHUNK_CELLS = 800_000  # weights handled at a time: little memory, yet enough of them for what an operation costs


@dataclass(frozen=True)
class Marks:
    """Which token ids mean what, as the tokenizer says; empty where a model has no such token."""

    special: frozenset[int] = frozenset()
    classification: frozenset[int] = frozenset()
    separator: frozenset[int] = frozenset()
    punctuation: frozenset[int] = frozenset()
    padding: int | None = None

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase) -> Marks:
        separator = (
            tokenizer.sep_token_id if tokenizer.sep_token_id is not None else tokenizer.eos_token_id
        )
        vocabulary = tokenizer.get_vocab()
        return cls(
            special=frozenset(tokenizer.all_special_ids),
            classification=_ids(tokenizer.cls_token_id),
            separator=_ids(separator),
            punctuation=frozenset(
                i for token, i in vocabulary.items() if token.lstrip("▁Ġ") in (".", ",")
            ),
            padding=tokenizer.pad_token_id,
        )


def _ids(token_id: int | None) -> frozenset[int]:
    return frozenset() if token_id is None else frozenset([token_id])


def _is_in(ids: Tensor, wanted: Iterable[int]) -> Tensor:
    return torch.isin(ids, torch.tensor(sorted(wanted), dtype=ids.dtype, device=ids.device))


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

    def _marked(self, wanted: frozenset[int]) -> Tensor:
        if self.ids is None or not wanted:
            return torch.zeros_like(self.real)
        return _is_in(self.ids, wanted) & self.real

    @cached_property
    def special(self) -> Tensor:
        return self._marked(self.marks.special)

    @cached_property
    def classification(self) -> Tensor:
        return self._marked(self.marks.classification)

    @cached_property
    def separator(self) -> Tensor:
        return self._marked(self.marks.separator)

    @cached_property
    def punctuation(self) -> Tensor:
        return self._marked(self.marks.punctuation)

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
        """[sequence, token]: what to add to weights so that a special key is never the largest."""
        return self.special * -2.0

    @cached_property
    def content_count(self) -> int:
        """How many content tokens there are in all sequences together."""
        return int(self.content.sum())

    @cached_property
    def averages(self) -> Tensor:
        """[sequence, token, 3]: row values times this are their means over all, content and classification rows.

        NaN where a sequence has no such row.
        """
        chosen = torch.stack([self.real, self.content, self.classification], dim=-1)
        return chosen / chosen.sum(dim=1, keepdim=True)

    @property
    def length(self) -> int:
        return self.real.shape[1]

    def cut(self, rows: slice, kept: slice | Tensor) -> Tokens:
        """These sequences without their padding."""

        def part(tensor: Tensor | None) -> Tensor | None:
            return None if tensor is None else tensor[rows][:, kept]

        real = self.real[rows][:, kept]
        result = Tokens(real, part(self.ids), part(self.words), part(self.segments), self.marks)
        for name in DERIVED:  # worked out once for the batch, not for every part of it
            result.__dict__[name] = part(getattr(self, name))
        return result

    def to(self, device: torch.device) -> Tokens:
        def moved(tensor: Tensor | None) -> Tensor | None:
            return None if tensor is None else tensor.to(device)

        return Tokens(
            self.real.to(device),
            moved(self.ids),
            moved(self.words),
            moved(self.segments),
            self.marks,
        )


DERIVED = (
    "special",
    "classification",
    "separator",
    "punctuation",
    "content",
    "classes",
    "averages",
    "special_penalty",
)
CLASSES = ("classification", "separator", "punctuation", "special")


@dataclass(frozen=True)
class Chunk:
    """Neighbouring sequences of one batch that are equally long, and where their real tokens are."""

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
    _chunks: dict[tuple[str, int], list[Chunk]] = field(
        default_factory=dict, compare=False, repr=False
    )

    def sides(self, stack: str) -> tuple[Tokens, Tokens] | None:
        """The query and key side of a stack; None where this batch does not tell."""
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
        def moved(tokens: Tokens | None) -> Tokens | None:
            return None if tokens is None else tokens.to(device)

        return Layout(moved(self.encoder), moved(self.decoder), moved(self.targets))


def pattern_over_layout(
    layout: Layout | None, stack: str, batch: int, keys: int, make: Callable[[int], Tensor]
) -> Tensor:
    """[sequence or 1, …, key, key]: what `make` gives for each sequence's own length, at its tokens; 1 at padding.

    Positions are counted over real tokens. With a cache of earlier tokens the layout tells only the last: then there is
    no padding, as when an encoder-decoder generates.
    """
    sides = None if layout is None else layout.sides(stack)
    if sides is None or sides[0].real.shape != (batch, keys):
        return make(keys)[None]
    return pattern_over_tokens(sides[0].real, make)


def pattern_over_tokens(real: Tensor, make: Callable[[int], Tensor]) -> Tensor:
    """The same over the real ones [sequence, key] of some keys; one for all sequences where there is no padding."""
    batch, keys = real.shape
    if bool(real.all()):
        return make(keys)[None]
    found: Tensor | None = None
    for row, tokens in enumerate(real.cpu()):
        place = tokens.nonzero()[:, 0]
        own = make(len(place))
        if found is None:
            found = torch.ones(batch, *own.shape[:-2], keys, keys, dtype=own.dtype)
        found[row][..., place[:, None], place[None, :]] = own
    assert found is not None
    return found


def _chunks(query: Tokens, key: Tokens, heads: int) -> list[Chunk]:
    queries, keys = _kept(query.real), _kept(key.real)
    chunks, start = [], 0
    for stop in range(1, len(queries) + 1):
        full = (stop - start + 1) * heads * query.length * key.length > CHUNK_CELLS
        if (
            stop < len(queries)
            and not full
            and _same(queries, start, stop)
            and _same(keys, start, stop)
        ):
            continue
        rows, query_index, key_index = slice(start, stop), queries[start], keys[start]
        cut = query.cut(rows, query_index)
        chunks.append(
            Chunk(
                rows, query_index, key_index, cut, cut if key is query else key.cut(rows, key_index)
            )
        )
        start = stop
    return chunks


def _same(kept: list[slice | Tensor], one: int, other: int) -> bool:
    return isinstance(kept[one], slice) and kept[one] == kept[other]


def _kept(real: Tensor) -> list[slice | Tensor]:
    """Where each sequence's real tokens are: a slice, or indices if there is padding between them."""
    kept: list[slice | Tensor] = []
    first, length = real.int().argmax(dim=1).tolist(), real.sum(dim=1).tolist()
    for row, start, count in zip(real, first, length, strict=True):
        whole = bool(row[start : start + count].all())
        kept.append(slice(start, start + count) if whole else row.nonzero()[:, 0])
    return kept


@dataclass(frozen=True)
class Batch:
    """What a model is called with, and what its tokens are. `indices` are the numbers of the examples in it.

    labels: [sequence, token], what is right at each token, for tasks that judge single ones; -100 for no matter
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
    mapping = inputs.get(
        "target_mapping"
    )  # [sequence, target, token]: the query stream's rows are the targets
    targets = None
    if mapping is not None and encoder is not None:
        targets = Tokens(
            encoder.real & (mapping.sum(dim=1) > 0),
            encoder.ids,
            segments=encoder.segments,
            marks=marks,
        )
    return Layout(encoder=encoder, decoder=_side(inputs, marks, "decoder_"), targets=targets)


def _side(inputs: Mapping[str, Any], marks: Marks, prefix: str) -> Tokens | None:
    ids: Tensor | None = inputs.get(f"{prefix}input_ids")
    embeddings: Tensor | None = inputs.get(f"{prefix}inputs_embeds")
    given = embeddings if ids is None else ids
    if given is None:
        return None
    mask: Tensor | None = inputs.get(f"{prefix}attention_mask")
    if (
        mask is None and not prefix and inputs.get("input_mask") is not None
    ):  # XLNet's: 1 at padding
        mask = 1 - inputs["input_mask"]
    if mask is not None and mask.dim() != 2:
        return None  # a mask between tokens does not say which of them are padding
    if mask is None:
        mask = torch.ones(given.shape[:2])
    segments = None if prefix else inputs.get("token_type_ids")
    return Tokens(real=mask.to(given.device).bool(), ids=ids, segments=segments, marks=marks)
