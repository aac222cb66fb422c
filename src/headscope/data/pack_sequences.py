"""Packs texts into sequences of equal length: joins them with a separator, then splits the result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from headscope.data.encode import Counts, Encoder, Sequence, Side
from headscope.data.examples import Example
from headscope.model.attention_model import AttentionModel

TEXTS = 1024  # number of texts tokenized at a time


def pack(
    model: AttentionModel, texts: Iterable[Example], *, max_length: int
) -> tuple[list[Sequence], Counts]:
    """Sequences of `max_length` tokens including the special ones around them; the last may be shorter.

    A text may begin in one sequence and end in the next. Texts without tokens are skipped and counted.
    """
    encoder = Encoder(model, max_length=max_length)
    before, after = _special_tokens(encoder)
    space = max_length - len(before) - len(after)
    counts, sequences, waiting = encoder.counts, [], list[int]()
    interned = list(range(1 + max(encoder.tokenizer.get_vocab().values())))
    separator = sorted(model.marks.separator)[:1]
    for text, pieces in _pieces(encoder, texts):
        counts.read += 1
        if not pieces:
            counts.skip("no tokens")
            continue
        counts.used += 1
        encoder.unknown.add(pieces, (text.first,), text.where)
        # One integer object per token id, to save memory.
        waiting += [interned[piece] for piece in [*(separator if waiting else []), *pieces]]
        while len(waiting) >= space:
            sequences.append([*before, *waiting[:space], *after])
            waiting = waiting[space:]
    encoder.unknown.warn()
    sequences.append([*before, *waiting, *after])
    # Drop sequences without content, such as one of unknown tokens only.
    sequences = [ids for ids in sequences if not model.marks.special.issuperset(ids)]
    for ids in sequences:
        counts.add_lengths(source=len(ids), target=0)
    sides = [_side(ids, len(before), len(after), encoder) for ids in sequences]
    return [Sequence(i, side) for i, side in enumerate(sides)], counts


def _special_tokens(encoder: Encoder) -> tuple[list[int], list[int]]:
    """The special tokens that the tokenizer puts before and after a text."""
    special = encoder.model.marks.special
    text = next(w for w, i in sorted(encoder.tokenizer.get_vocab().items()) if i not in special)
    without_special = encoder.tokenizer(text, add_special_tokens=False)["input_ids"]
    with_special = encoder.tokenizer(text)["input_ids"]
    start = next(
        i
        for i in range(len(with_special))
        if with_special[i : i + len(without_special)] == without_special
    )
    return with_special[:start], with_special[start + len(without_special) :]


def _pieces(encoder: Encoder, texts: Iterable[Example]) -> Iterator[tuple[Example, list[int]]]:
    """Each text with its token ids."""
    remaining = iter(texts)
    while group := list(islice(remaining, TEXTS)):
        strings = [str(text.first) for text in group]
        ids = encoder.tokenizer(strings, add_special_tokens=False, verbose=False)["input_ids"]
        yield from zip(group, ids, strict=True)


def _side(ids: list[int], before: int, after: int, encoder: Encoder) -> Side:
    """The sequence as one text in which each token is a word of its own.

    before, after  number of special tokens at the beginning and at the end
    """
    content = len(ids) - before - after
    words = [*[-1] * before, *range(content), *[-1] * after]
    types = [0] * len(ids) if "token_type_ids" in encoder.tokenizer.model_input_names else None
    return Side(ids, words, segments=[0] * len(ids), token_types=types)
