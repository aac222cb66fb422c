"""Coreference files say what is in them, bad ones are refused by file and line, long documents are cut, not lost."""

from __future__ import annotations

import gzip
import random
from collections import Counter
from pathlib import Path

import pytest

from coreferent import conll, documents, random_document, reader
from headscope.data.batches import batches
from headscope.data.coreference import (
    Document,
    Mention,
    head_word,
    kind_of,
    read_coreference,
    windows,
)
from headscope.data.encode import Counts, Encoder
from headscope.errors import HeadscopeError

SHARED = Path(__file__).parents[3] / "shared" / "data" / "coref"
MEND = "Fix the file, or pass `lenient=True` to leave such documents out."
COLUMNS = (
    "Expected document, part, number, word, … , coreference: at least 5 columns, as many"
    " in every line of a sentence."
)
BEGIN = '"#begin document (NAME); part 000"'


def spans(document: Document) -> list[tuple[str, str, str, str]]:
    """(words, entity, head word, kind) of every mention."""
    words = document.words
    return [
        (" ".join(words[m.start : m.end]), m.entity, words[m.head], m.kind)
        for m in document.mentions
    ]


# Reading


def test_nested_and_crossing_mentions_are_read_in_order(tmp_path: Path) -> None:
    (document,) = documents(
        tmp_path, conll("The/(0 king/(1)|(2 of France/0)|(3)|2) slept", "He/(0) snored")
    )
    assert spans(document) == [
        ("The king of France", "0", "king", "nominal"),
        ("king of France", "2", "king", "nominal"),
        ("king", "1", "king", "nominal"),
        ("France", "3", "France", "proper"),
        ("He", "0", "He", "pronoun"),
    ]
    assert document.sentences == (("The", "king", "of", "France", "slept"), ("He", "snored"))
    assert (document.name, document.tags) == ("d", None)
    assert document.where.endswith("documents.conll:1")


def test_one_entity_may_be_nested_in_itself(tmp_path: Path) -> None:
    (document,) = documents(tmp_path, conll("his/(0|(0) friend/0) left"))
    assert [(m.start, m.end) for m in document.mentions] == [(0, 2), (0, 1)]


@pytest.mark.parametrize("cell", ["-", "_", ""])
def test_no_mention_may_be_written_in_three_ways(tmp_path: Path, cell: str) -> None:
    text = f"#begin document (a); part 0\na\t0\t0\tcat\t_\t{cell}\na\t0\t1\tsat\t_\t(4)\n#end document\n"
    (single,) = documents(tmp_path, text)
    assert spans(single) == [("sat", "4", "sat", "nominal")]


def test_blanks_part_columns_where_there_are_no_tabs_and_their_number_may_change_with_the_sentence(
    tmp_path: Path,
) -> None:
    text = (
        "#begin document (bc/x/00);  part 012\nx 12  0   -LRB-  NN  (1\nx 12 1 dog NN"
        " 1)(2)\n\nx 12 0 it PRP a b (1)\n"
    )
    (document,) = documents(tmp_path, text + "#end document")
    assert (document.name, document.words) == ("bc/x/00, part 12", ("(", "dog", "it"))
    assert [m.entity for m in document.mentions] == ["1", "2", "1"]
    assert document.tags == (("NN", "NN"), ("PRP",))


def test_five_columns_have_no_tag(tmp_path: Path) -> None:
    (document,) = documents(tmp_path, "#begin document (a)\na 0 0 cat (1)\n#end document\n")
    assert (document.tags, document.mentions) == (None, (Mention(0, 1, "1", 0, "nominal"),))


def test_gzip_and_several_files_are_read_in_order(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(conll("a", name="first").encode()))
    (tmp_path / "b").write_text(
        "# a comment\n\n" + conll("b", name="second") + conll("c", name="third")
    )
    counts = Counts()
    result = read_coreference([tmp_path / "a.gz", tmp_path / "b"], counts=counts)
    assert [one.name for one in result] == ["first", "second", "third"]
    assert (counts.read, counts.used, counts.skipped) == (3, 3, {})


@pytest.mark.parametrize(
    ("mention", "head"),
    [
        ("the cat", "cat"),
        ("the King of France", "King"),
        ("Sir Walter Elliot , of Kellynch Hall", "Elliot"),
        ("a man who slept", "man"),
        ("that man", "man"),
        ("that", "that"),
        ("which", "which"),
        ("Islam 's", "Islam"),
        ("the queen ’s", "queen"),
        ("the union ( EU )", "EU"),
        (", of", ","),
        ("...", "..."),
    ],
)
def test_the_head_is_the_last_word_before_what_follows_it(mention: str, head: str) -> None:
    words = mention.split()
    assert words[head_word(words)] == head


def test_the_kind_follows_from_lists_and_capitals_or_tags() -> None:
    words = ["His", "friend", "Anna", "met", "the", "London", "doctor", "and", "Mine"]
    assert [kind_of(words, i, i) for i in (0, 1, 2, 5, 6, 8)] == [
        "pronoun",
        "nominal",
        "proper",
        "proper",
        "nominal",
        "pronoun",
    ]
    assert kind_of(["Anna", "left"], 0, 0) == "nominal"  # every sentence begins with a capital
    assert kind_of(["Anna", "left"], 0, 0, "NNP") == "proper"
    assert kind_of(["the", "Cat"], 0, 1, "NN") == "nominal"
    assert kind_of(["the", "gold", "mine"], 0, 2) == "nominal"


# Bad files

BAD = {
    "nothing in it": ("", f"bad.conll: no document in it. Expected a line {BEGIN}."),
    "another format": (
        "# sent_id = 1\n1\tcat\t_\n",
        f"bad.conll:2: a word outside of any document. Expected a line {BEGIN} before it. "
        "Check that this is a CoNLL-2012 file.",
    ),
    "no end": (
        conll("a", end=""),
        f'bad.conll:1: the document that begins here does not end. Expected "#end document". {MEND}',
    ),
    "no end before the next": (
        conll("a") + conll("a", end="") + conll("b"),
        f'bad.conll:5: the document that begins here does not end. Expected "#end document". {MEND}',
    ),
    "words after the end": (
        conll("a") + "d\t0\t0\ta\t-\t*\t-\n",
        f"bad.conll:5: a word outside of any document. Expected a line {BEGIN} before it. "
        "Check that this is a CoNLL-2012 file.",
    ),
    "no words": (conll(), f"bad.conll:1: a document without words. {MEND}"),
    "never closed": (
        conll("a/(7 b", "c/7)"),
        f'bad.conll:2: "(7" is not closed within its sentence. Expected "7)". {MEND}',
    ),
    "never opened": (
        conll("a/(6) b", "b/7)"),
        f'bad.conll:5: "7)" closes a mention that is not open. Expected "(7" before it in the sentence. {MEND}',
    ),
    "closed twice": (
        conll("a/(7 b/7)|7)"),
        f'bad.conll:3: "7)" closes a mention that is not open. Expected "(7" before it in the sentence. {MEND}',
    ),
    "a bare number": (
        conll("a b/12"),
        'bad.conll:3: the last column is "12". '
        f"Expected coreference marks such as (12, 12), (12) or (12|3), or - for none. {MEND}",
    ),
    "empty brackets": (
        conll("a/()"),
        'bad.conll:2: the last column is "()". '
        f"Expected coreference marks such as (12, 12), (12) or (12|3), or - for none. {MEND}",
    ),
    "four columns": (
        "#begin document (d)\nd\t0\t0\tcat\n#end document\n",
        f"bad.conll:2: 4 columns. {COLUMNS} {MEND}",
    ),
    "a line cut short": (
        conll("a b c").replace("1\tb\t-\t*\t-", "1\tb"),
        f"bad.conll:3: 4 columns, 7 in the lines before. {COLUMNS} {MEND}",
    ),
    "no word": (
        conll("a b").replace("1\tb", "1\t"),
        f"bad.conll:3: column 4 (the word) is empty. {MEND}",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_refused_by_file_and_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    text, message = BAD[case]
    monkeypatch.chdir(tmp_path)
    Path("bad.conll").write_text(text)
    with pytest.raises(HeadscopeError) as error:
        list(read_coreference(["bad.conll"]))
    assert str(error.value) == message


def test_lenient_leaves_bad_documents_out_and_counts_them(tmp_path: Path) -> None:
    good, bad = conll("a/(1) b", name="good"), conll("a/(1 b", name="bad")
    (tmp_path / "c").write_text(bad + good + conll("a", name="cut", end="") + good + conll(end=""))
    counts = Counts()
    result = list(read_coreference([tmp_path / "c"], lenient=True, counts=counts))
    assert [one.name for one in result] == ["good", "good"]
    assert (counts.read, counts.used, counts.skipped) == (5, 2, {"malformed documents": 3})


# Windows


def test_windows_hold_the_whole_document_and_fit(tmp_path: Path) -> None:
    model = reader()
    (document,) = documents(tmp_path, random_document(random.Random(0), sentences=12))
    cut = list(windows([document], model, max_length=40))
    assert sum((window.words for window in cut), ()) == document.words
    encoder = Encoder(model, max_length=40, long="error")
    lengths = [
        batch.inputs["input_ids"].shape[1]
        for batch in batches(encoder, [w.example for w in cut], batch_size=1)
    ]
    assert len(lengths) == len(cut) > 3
    assert max(lengths) <= 40
    ends = [sum(map(len, document.sentences[: i + 1])) for i in range(12)]
    stops = [sum(len(window.words) for window in cut[: i + 1]) for i in range(len(cut))]
    assert set(stops) <= set(ends), "cut between sentences"
    # As many sentences as fit: the next one would not have.
    for window, stop in zip(cut[:-1], stops, strict=False):
        longer = (*window.words, *document.sentences[ends.index(stop) + 1])
        assert sum(map(len, longer)) + 2 > 40  # a letter is a piece


def test_mentions_are_counted_by_the_windows_own_words(tmp_path: Path) -> None:
    (single,) = documents(tmp_path, conll("a/(0) b c d", "a b/(1 c/1) d/(0)"))
    first, second = windows([single], reader(), max_length=6)
    assert first.mentions == (Mention(0, 1, "0", 0, "nominal"),)
    assert second.mentions == (Mention(1, 3, "1", 2, "nominal"), Mention(3, 4, "0", 3, "nominal"))
    assert second.example.first == ("a", "b", "c", "d")
    assert second.document is single


def test_a_sentence_longer_than_a_window_is_cut_between_words(tmp_path: Path) -> None:
    (document,) = documents(tmp_path, conll("a/(0) bb c/(1 d/1) e", "f"))
    cut = list(windows([document], reader(), max_length=6))
    assert [" ".join(window.words) for window in cut] == ["a bb c", "d e f"]
    assert [len(window.mentions) for window in cut] == [
        1,
        0,
    ]  # what the cut goes through is in no window


def test_words_without_tokens_or_too_long_for_any_window_stand_alone() -> None:
    words = ("a", "\u00a0", "b", "abcdefgh", "c")
    single = Document("d", "d:1", (words,), None, ())
    cut = list(windows([single], reader(), max_length=6))
    assert [window.words for window in cut] == [("a",), ("\u00a0",), ("b",), ("abcdefgh",), ("c",)]
    encoder = Encoder(reader(), max_length=6)
    assert len(list(batches(encoder, [window.example for window in cut], batch_size=1))) == 4
    assert (encoder.counts.skipped, encoder.counts.truncated) == ({"no tokens": 1}, 1)


def test_a_window_carries_its_tags(tmp_path: Path) -> None:
    (document,) = documents(tmp_path, conll("a/(0) b", "c d", tags={"a": "NN", "d": "NNS"}))
    assert [window.tags for window in windows([document], reader(), max_length=4)] == [
        ("NN", "X"),
        ("X", "NNS"),
    ]


# The real files

FACTS = {  # documents, words, mentions, entities, of which singletons
    "litbank_75docs": (75, 157_694, 21_914, 5_827, 4_224),
    "ontogum_50docs": (50, 43_115, 5_008, 1_234, 0),
    "winobias_dev_type1_pro": (396, 5_513, 801, 396, 0),
    "winobias_dev_type2_anti": (396, 5_327, 798, 396, 0),
}


@pytest.mark.parametrize("name", FACTS)
def test_the_real_files_hold_what_is_known_of_them(name: str) -> None:
    file = SHARED / f"{name}.conll.gz"
    if not file.exists():
        pytest.skip("../shared/data/coref is not there")
    result = list(read_coreference([file]))
    entities = Counter(
        (i, mention.entity) for i, one in enumerate(result) for mention in one.mentions
    )
    words, mentions = (
        sum(len(x) for x in xs) for xs in ([d.words for d in result], [d.mentions for d in result])
    )
    once = sum(count == 1 for count in entities.values())
    assert (len(result), words, mentions, len(entities), once) == FACTS[name]
    assert (result[0].tags is not None) == (name == "ontogum_50docs")
