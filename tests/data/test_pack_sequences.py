"""Texts one after another, cut into sequences of one length."""

from __future__ import annotations

from transformers import BertForMaskedLM

from headscope.data.examples import Example
from headscope.data.pack_sequences import pack
from worded import WORDS, worded

CLS, SEP = WORDS.index("[CLS]"), WORDS.index("[SEP]")


def ids(text: str) -> list[int]:
    return [WORDS.index(word) for word in text.split()]


def test_the_stream_of_all_texts_is_cut_and_nothing_is_lost() -> None:
    texts = [
        "the cat sat on the mat .",
        "a dog ran",
        "the old red house",
        "who is the dog ?",
        "the",
    ]
    sequences, counts = pack(
        worded(BertForMaskedLM), [Example(text) for text in texts], max_length=8
    )
    stream: list[int] = []
    for text in texts:
        stream += [*([SEP] if stream else []), *ids(text)]
    expected = [[CLS, *stream[i : i + 6], SEP] for i in range(0, len(stream), 6)]
    assert [one.source.ids for one in sequences] == expected
    assert [one.index for one in sequences] == list(range(len(expected)))
    assert {len(one) for one in expected[:-1]} == {8}
    assert (counts.read, counts.used, counts.sequences) == (5, 5, len(expected))
    assert counts.tokens == sum(map(len, expected))
    side = sequences[0].source
    assert side.words == [-1, 0, 1, 2, 3, 4, 5, -1]
    assert side.token_types == side.segments == [0] * 8


def test_what_has_no_content_is_left_out_and_counted() -> None:
    texts = ["the cat sat on the mat", "zzz zzz zzz zzz zzz zzz", "a dog ran"]
    sequences, counts = pack(
        worded(BertForMaskedLM), [Example(text) for text in texts], max_length=8
    )
    unknown = WORDS.index("[UNK]")
    assert all(set(one.source.ids) - {CLS, SEP, unknown} for one in sequences)
    flat = [token for one in sequences for token in one.source.ids]
    assert flat.count(unknown) < 6
    assert counts.sequences == len(sequences)


def test_a_text_that_ends_with_a_sequence_is_followed_by_the_next_one() -> None:
    """No separator is needed where the next sequence begins with a text, and none is lost."""
    sequences, _ = pack(
        worded(BertForMaskedLM),
        [Example("a dog ran on the mat"), Example("the cat sat")],
        max_length=8,
    )
    assert [one.source.ids for one in sequences] == [
        [CLS, *ids("a dog ran on the mat"), SEP],
        [CLS, *ids("the cat sat"), SEP],
    ]
