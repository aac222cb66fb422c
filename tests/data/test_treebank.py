"""Trees are read as they stand; every malformed one is refused by file, line and sentence, or counted."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from headscope.data.treebank import ParsedSentence, read_treebank
from headscope.errors import HeadscopeError

SHARED = Path(__file__).parents[3] / "shared" / "data"
MEND = "Fix the line, or pass `lenient=True` to leave such sentences out; run.json will count them."
FORMAT = "Expected sentences in CoNLL-U: ten columns with a tab between them, a blank line after each sentence."
ONE_ROOT = "Expected one word with HEAD 0."


def row(
    number: int | str, form: str, head: int | str, relation: str = "dep", tag: str = "X"
) -> str:
    return f"{number}\t{form}\t_\t{tag}\t_\t_\t{head}\t{relation}\t_\t_\n"


GOOD = "# sent_id = good\n" + row(1, "It", 2, "nsubj", "PRON") + row(2, "rains", 0, "root", "VERB")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(text: str, **options: object) -> list[ParsedSentence]:
    Path("t.conllu").write_bytes(text.encode())
    return list(read_treebank("t.conllu", **options))


# What follows GOOD and a blank line (its first line is the fourth of the file), and what must be said of it
BAD: dict[str, tuple[str, str, str]] = {
    "nine columns": (
        "# sent_id = a-1\n1\tIt\t_\t_\t_\t_\t0\troot\t_\n",
        "wrong number of columns",
        f't.conllu:6: sentence "a-1": 9 columns. Expected ten columns with a tab between them. {MEND}',
    ),
    "eleven columns": (
        "1\tIt\t_\t_\t_\t_\t0\troot\t_\t_\t_\n",
        "wrong number of columns",
        f"t.conllu:5: sentence 2: 11 columns. Expected ten columns with a tab between them. {MEND}",
    ),
    "blanks for tabs": (
        "1 It _ _ _ _ 0 root _ _\n",
        "wrong number of columns",
        f"t.conllu:5: sentence 2: 1 column. Expected ten columns with a tab between them. {MEND}",
    ),
    "a range of nine columns": (
        "1-2\tIts\t_\t_\t_\t_\t_\t_\t_\n" + row(1, "It", 0) + row(2, "s", 1),
        "wrong number of columns",
        f"t.conllu:5: sentence 2: 9 columns. Expected ten columns with a tab between them. {MEND}",
    ),
    "nothing but tabs": (
        row(1, "It", 0) + "\t" * 9 + "\n",
        "wrong ID",
        f't.conllu:6: sentence 2: a word has the ID "". Expected 2, as words are counted from 1. {MEND}',
    ),
    "HEAD not a number": (
        "#sent_id=b\n" + row(1, "It", "x"),
        "HEAD is not a number",
        f't.conllu:6: sentence "b": word 1 has the HEAD "x". Expected the ID of a word, or 0 for the root. {MEND}',
    ),
    "HEAD missing": (
        row(1, "It", 0) + row(2, "s", "_"),
        "HEAD is not a number",
        f't.conllu:6: sentence 2: word 2 has the HEAD "_". Expected the ID of a word, or 0 for the root. {MEND}',
    ),
    "HEAD negative": (
        row(1, "It", -1),
        "HEAD is not a number",
        f't.conllu:5: sentence 2: word 1 has the HEAD "-1". Expected the ID of a word, or 0 for the root. {MEND}',
    ),
    "HEAD too large": (
        row(1, "It", 0) + row(2, "s", 3),
        "HEAD out of range",
        f"t.conllu:6: sentence 2: word 2 has the HEAD 3. Expected a number from 0 to 2, the last word. {MEND}",
    ),
    "HEAD far too large": (
        row(1, "It", 10**30),
        "HEAD out of range",
        f"t.conllu:5: sentence 2: word 1 has the HEAD {10**30}. Expected a number from 0 to 1, the last word. {MEND}",
    ),
    "self-loop": (
        row(1, "It", 0) + row(2, "s", 2),
        "word governs itself",
        f"t.conllu:6: sentence 2: word 2 is its own HEAD. Expected another word, or 0 for the root. {MEND}",
    ),
    "cycle": (
        row(1, "a", 0) + row(2, "b", 4) + row(3, "c", 2) + row(4, "d", 3) + row(5, "e", 2),
        "cycle",
        "t.conllu:6: sentence 2: HEADs run in a circle: 2 → 4 → 3 → 2. Expected a path from each word to the root. "
        + MEND,
    ),
    "cycle reached from outside": (
        row(1, "a", 2) + row(2, "b", 3) + row(3, "c", 2) + row(4, "d", 0),
        "cycle",
        "t.conllu:6: sentence 2: HEADs run in a circle: 2 → 3 → 2. Expected a path from each word to the root. "
        + MEND,
    ),
    "no root": (
        "# sent_id = c\n" + row(1, "a", 2) + row(2, "b", 1),
        "no root",
        f't.conllu:6: sentence "c": no word is the root. {ONE_ROOT} {MEND}',
    ),
    "two roots": (
        row(1, "a", 0) + row(2, "b", 0),
        "several roots",
        f"t.conllu:6: sentence 2: words 1 and 2 are roots. {ONE_ROOT} {MEND}",
    ),
    "three roots": (
        row(1, "a", 0) + row(2, "b", 1) + row(3, "c", 0) + row(4, "d", 0),
        "several roots",
        f"t.conllu:7: sentence 2: words 1, 3 and 4 are roots. {ONE_ROOT} {MEND}",
    ),
    "the same ID twice": (
        row(1, "a", 0) + row(1, "b", 1),
        "wrong ID",
        f't.conllu:6: sentence 2: a word has the ID "1". Expected 2, as words are counted from 1. {MEND}',
    ),
    "an ID left out": (
        row(1, "a", 0) + row(3, "b", 1),
        "wrong ID",
        f't.conllu:6: sentence 2: a word has the ID "3". Expected 2, as words are counted from 1. {MEND}',
    ),
    "IDs from 0": (
        row(0, "a", 0) + row(1, "b", 1),
        "wrong ID",
        f't.conllu:5: sentence 2: a word has the ID "0". Expected 1, as words are counted from 1. {MEND}',
    ),
    "an ID that is no number": (
        row("one", "a", 0),
        "wrong ID",
        f't.conllu:5: sentence 2: a word has the ID "one". Expected 1, as words are counted from 1. {MEND}',
    ),
    "an empty FORM": (
        row(1, "a", 0) + row(2, " ", 1),
        "empty FORM",
        f't.conllu:6: sentence 2: word 2 has an empty FORM (column 2). Expected some text, or "_". {MEND}',
    ),
    "an empty DEPREL": (
        row(1, "a", 0, relation=""),
        "empty DEPREL",
        f't.conllu:5: sentence 2: word 1 has an empty DEPREL (column 8). Expected some text, or "_". {MEND}',
    ),
    "only a range": (
        "1-2\tIts\t_\t_\t_\t_\t_\t_\t_\t_\n",
        "no words",
        f"t.conllu:5: sentence 2: it has no words. Expected words counted from 1. {MEND}",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_malformed_sentence_is_refused_or_left_out_and_counted(folder: Path, case: str) -> None:
    text, kind, message = BAD[case]
    with pytest.raises(HeadscopeError) as refused:
        read(f"{GOOD}\n{text}\n{GOOD}")
    assert str(refused.value) == message
    counts: dict[str, int] = {}
    assert [
        sentence.name for sentence in read(f"{GOOD}\n{text}\n{GOOD}", lenient=True, counts=counts)
    ] == ["good"] * 2
    assert counts == {kind: 1}


@pytest.mark.parametrize(
    "text", ["", "\n\n", "# newdoc id = a\n\n# text = b\n"], ids=["empty", "blank", "comments"]
)
def test_an_empty_treebank_is_reported(folder: Path, text: str) -> None:
    for lenient in (False, True):
        with pytest.raises(HeadscopeError) as refused:
            read(text, lenient=lenient)
        assert str(refused.value) == f"t.conllu: no sentence in it. {FORMAT}"


def test_a_treebank_without_a_good_sentence_is_reported(folder: Path) -> None:
    with pytest.raises(HeadscopeError) as refused:
        read("The cat sat\n\non the mat", lenient=True)
    assert str(refused.value) == f"t.conllu: none of the 2 sentences is well-formed. {FORMAT}"


def test_a_file_that_is_missing_or_not_text_is_refused(folder: Path) -> None:
    with pytest.raises(HeadscopeError) as refused:
        list(read_treebank("gone/missing.conllu"))
    assert str(refused.value) == (
        "gone/missing.conllu: cannot be read: No such file or directory. Expected a text file, or one in gzip. "
        "Check the path."
    )
    Path("latin.conllu").write_bytes(row(1, "é", 0).encode("latin-1"))
    with pytest.raises(HeadscopeError, match=r"^latin.conllu:1:3: byte 0xe9 is not UTF-8"):
        list(read_treebank("latin.conllu", lenient=True))


def test_a_tree_is_read_as_it_stands(folder: Path) -> None:
    text = (
        "# newdoc id = d\n# sent_id = d-1\n# text = Du café.\n"
        "1-2\tDu\t_\t_\t_\t_\t_\t_\t_\t_\n"
        + row(1, "De", 3, "case", "ADP")
        + row(2, "le", 3, "det", "DET")
        + row(3, "café", 0, "root", "NOUN")
        + row("3.1", "noir", "_", "_", "ADJ")
        + row(4, ".", 3, "punct", "PUNCT")
    )
    (sentence,) = read(text)
    assert sentence == ParsedSentence(
        words=("De", "le", "café", "."),
        governors=(2, 2, -1, 2),
        relations=("case", "det", "root", "punct"),
        tags=("ADP", "DET", "NOUN", "PUNCT"),
        name="d-1",
        where="t.conllu:5",
    )


def test_an_empty_node_may_stand_before_the_first_word(folder: Path) -> None:
    (sentence,) = read(row("0.1", "I", "_") + row(1, "Sleep", 0))
    assert sentence.words == ("Sleep",)
    assert sentence.where == "t.conllu:2"


@pytest.mark.parametrize("end", ["", "\n", "\n\n", "\n\n\n# the end\n", "\n  \n"])
def test_the_last_sentence_is_kept_however_the_file_ends(folder: Path, end: str) -> None:
    assert [
        sentence.words for sentence in read(GOOD + "\n" + row(1, "Last", 0).rstrip("\n") + end)
    ] == [
        ("It", "rains"),
        ("Last",),
    ]


def test_sentences_without_an_id_are_numbered_in_their_file(folder: Path) -> None:
    text = "# license\n\n" + row(1, "a", 0) + "\n\n" + row(1, "b", 0) + "\n" + GOOD
    assert [sentence.name for sentence in read(text)] == ["1", "2", "good"]
    Path("u.conllu.gz").write_bytes(gzip.compress(row(1, "c", 0).encode()))
    both = list(read_treebank(["t.conllu", "u.conllu.gz"]))
    assert [sentence.name for sentence in both] == ["1", "2", "good", "1"]
    assert both[-1].where == "u.conllu.gz:1"


def test_line_ends_and_a_byte_order_mark_change_nothing(folder: Path) -> None:
    assert read("\ufeff" + GOOD.replace("\n", "\r\n")) == read(GOOD)


# (sentences, words) as published with the files
REAL = {
    "ud/en_ewt-ud-train_subset.conllu.gz": (3001, 53665),
    "ud/en_ewt-ud-dev.conllu.gz": (2001, 25147),
    "ud/en_ewt-ud-test.conllu.gz": (2077, 25094),
    "ud/fr_gsd-ud-dev.conllu.gz": (1476, 35721),
    "ud/fr_gsd-ud-test.conllu.gz": (416, 10018),
    "ud/ko_gsd-ud-dev.conllu.gz": (950, 11958),
    "ud/ko_gsd-ud-test.conllu.gz": (989, 11677),
    "ud/de_gsd-ud-dev.conllu.gz": (799, 12480),
    "ud/ru_gsd-ud-dev.conllu.gz": (579, 11709),
}


def shared(name: str) -> Path:
    if not (SHARED / name).exists():
        pytest.skip(f"the data of ../shared are not here: {name}")
    return SHARED / name


@pytest.mark.parametrize("name", REAL)
def test_a_real_treebank_is_read_whole(name: str) -> None:
    sentences = list(read_treebank(shared(name)))
    assert (len(sentences), sum(len(sentence.words) for sentence in sentences)) == REAL[name]
    assert len({sentence.name for sentence in sentences}) == len(sentences)


def test_stanford_labels_are_read_and_three_sentences_with_two_roots_are_refused_or_counted() -> (
    None
):
    path = shared("stanford_deps/gum_v4.2_stanford.conll.gz")
    with pytest.raises(HeadscopeError) as refused:
        list(read_treebank(path))
    message = f"{path}:39010: sentence 1864: words 3 and 29 are roots. {ONE_ROOT} {MEND}"
    assert str(refused.value) == message
    counts: dict[str, int] = {}
    sentences = list(read_treebank(path, lenient=True, counts=counts))
    assert (len(sentences), counts) == (3597 - 3, {"several roots": 3})
    relations = [relation for sentence in sentences for relation in sentence.relations]
    assert (relations.count("poss"), relations.count("prt")) == (
        1021 - 4,
        323,
    )  # four are in the sentences left out
