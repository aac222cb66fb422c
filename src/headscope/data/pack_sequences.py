"""Texts to sequences of equal length: put one after another, with a separator between, and cut."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from headscope.data.encode import Counts, Encoder, Sequence, Side
from headscope.data.examples import Example
from headscope.model.attention_model import AttentionModel

TEXTS = 1024  # tokenized at a time


def pack(
    model: AttentionModel, texts: Iterable[Example], *, max_length: int
) -> tuple[list[Sequence], Counts]:
    """The sequences, all of `max_length` tokens with the special ones around them, the last one shorter.

    A text may begin in one sequence and end in the next; it is left out, and counted, if it has no tokens.
    """
    encoder = Encoder(model, max_length=max_length)
    before, after = _around(encoder)
    room = max_length - len(before) - len(after)
    counts, found, waiting = encoder.counts, [], list[int]()
    same = list(range(1 + max(encoder.tokenizer.get_vocab().values())))
    separator = sorted(model.marks.separator)[:1]
    for text, pieces in _pieces(encoder, texts):
        counts.read += 1
        if not pieces:
            counts.skip("no tokens")
            continue
        counts.used += 1
        encoder.unknown.add(pieces, (text.first,), text.where)
        # One object a token id.
        waiting += [same[piece] for piece in [*(separator if waiting else []), *pieces]]
        while len(waiting) >= room:
            found.append([*before, *waiting[:room], *after])
            waiting = waiting[room:]
    encoder.unknown.warn()
    found.append([*before, *waiting, *after])
    # Sequences of unknown tokens alone are special throughout.
    found = [ids for ids in found if not model.marks.special.issuperset(ids)]
    for ids in found:
        counts.add_lengths(len(ids), 0)
    sides = [_side(ids, len(before), len(after), encoder) for ids in found]
    return [Sequence(i, side) for i, side in enumerate(sides)], counts


def _around(encoder: Encoder) -> tuple[list[int], list[int]]:
    """The special tokens that the tokenizer puts before and after a text."""
    text = next(
        token
        for token, i in sorted(encoder.tokenizer.get_vocab().items())
        if i not in encoder.model.marks.special
    )
    plain = encoder.tokenizer(text, add_special_tokens=False)["input_ids"]
    whole = encoder.tokenizer(text)["input_ids"]
    start = next(i for i in range(len(whole)) if whole[i : i + len(plain)] == plain)
    return whole[:start], whole[start + len(plain) :]


def _pieces(encoder: Encoder, texts: Iterable[Example]) -> Iterator[tuple[Example, list[int]]]:
    """Each text with its token ids."""
    remaining = iter(texts)
    while some := list(islice(remaining, TEXTS)):
        given = [str(text.first) for text in some]
        ids = encoder.tokenizer(given, add_special_tokens=False, verbose=False)["input_ids"]
        yield from zip(some, ids, strict=True)


def _side(ids: list[int], before: int, after: int, encoder: Encoder) -> Side:
    content = len(ids) - before - after
    words = [*[-1] * before, *range(content), *[-1] * after]
    types = [0] * len(ids) if "token_type_ids" in encoder.tokenizer.model_input_names else None
    return Side(ids, words, [0] * len(ids), types)
