"""Corpora that are not one text a line: FASTA records, and columns of csv, tsv and jsonl files."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import pytest

from headscope.data.examples import read_examples
from headscope.errors import HeadscopeError

FASTA = b"\n>sp|P00001 first protein\nMKV LA\nGG*\n; a comment\n\n>P00002\r\nmkw\r\n>P00003 > x\nAC*DE\n"
REMOVE = "Remove the record; if this is not FASTA, remove the > at the start of the file."
SEQUENCES = [("MKVLAGG", "2"), ("mkw", "7"), ("AC*DE", "9")]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def read(name: str, data: bytes, **options: object) -> list[tuple[object, ...]]:
    """(first, second if there is one, line) of every example of a file."""
    Path(name).write_bytes(data)
    result = read_examples([name], **options)  # type: ignore[arg-type]
    parts = ([one.first, *([] if one.second is None else [one.second])] for one in result)
    lines = (one.where.removeprefix(f"{name}:") for one in read_examples([name], **options))  # type: ignore[arg-type]
    return [(*part, line) for part, line in zip(parts, lines, strict=True)]


def refusal(name: str, data: bytes, **options: object) -> str:
    with pytest.raises(HeadscopeError) as error:
        read(name, data, **options)
    return str(error.value)


@pytest.mark.parametrize("name", ["p.fasta", "p.fa", "p.faa", "p.txt", "p"])
def test_headers_of_fasta_are_not_texts_and_lines_of_a_sequence_are_joined(name: str) -> None:
    assert read(name, FASTA) == SEQUENCES


def test_fasta_may_be_in_gzip_and_begin_with_a_byte_order_mark_or_a_comment() -> None:
    assert read("p.fasta.gz", gzip.compress(FASTA)) == SEQUENCES
    assert read("p.txt", b"\xef\xbb\xbf" + FASTA) == SEQUENCES
    assert read("p.fasta", b"; made by hand\n>a\nMK\n") == [("MK", "2")]


@pytest.mark.parametrize(
    "text", ["> As you said …\nI think the model is fine.\n", ">CCO>CC\nCCO.C>>CCOC\n", "> a\n"]
)
def test_a_plain_text_that_begins_with_an_arrow_is_read_line_by_line(text: str) -> None:
    Path("quote.txt").write_text(text, "utf-8")
    assert [example.first for example in read_examples(["quote.txt"])] == text.splitlines()


def test_fasta_without_its_suffix_may_begin_with_a_comment() -> None:
    Path("proteins.pep").write_text("; made by hand\n>one\nMKV\nLAA\n>two\nMK*\n", "utf-8")
    assert [example.first for example in read_examples(["proteins.pep"])] == ["MKVLAA", "MK"]


def test_a_reaction_with_an_arrow_inside_is_a_plain_text() -> None:
    assert read("r.txt", b"CCO>>CC=O\n# note\n>>CC\n") == [("CCO>>CC=O", "1"), (">>CC", "3")]
    assert read("r.txt", b">>CC\nCCO>>CC=O\n") == [(">>CC", "1"), ("CCO>>CC=O", "2")]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b">a x\nMK\n>b y\n\n>c\nMK\n", 'p.fasta:3: record "b" has no sequence. {REMOVE}'),
        (b">a\nMK\n>b\n", 'p.fasta:3: record "b" has no sequence. {REMOVE}'),
        (b">a\n*\n", 'p.fasta:1: record "a" has no sequence. {REMOVE}'),
        (b"\nMKV\n>a\nMK\n", 'p.fasta:2: "MKV" comes before the first header. Expected >ID.'),
    ],
)
def test_a_bad_record_is_named_by_file_and_line(data: bytes, message: str) -> None:
    assert refusal("p.fasta", data) == message.replace("{REMOVE}", REMOVE)


TABLES = {
    "t.csv": b'id,smiles,product\n1,CCO,CC=O\n\n2,"C,C","C""\nO"\n3,O,N\n',
    "t.tsv": b'id\tsmiles\tproduct\n1\tCCO\tCC=O\n\n2\tC,C\tC"\n3\tO\tN\n',
    "t.jsonl": b'{"id": 1, "smiles": "CCO", "product": "CC=O"}\n\n{"smiles": "C,C", "product": "C\\""}\n'
    b'{"smiles": "O", "product": "N"}\n',
}


@pytest.mark.parametrize("name", TABLES)
def test_any_column_of_a_table_is_a_corpus(name: str) -> None:
    first = 1 if name == "t.jsonl" else 2
    texts = [one[0] for one in read(name, TABLES[name], column="smiles")]
    assert texts == ["CCO", "C,C", "O"]
    for column in ("smiles,product", ("smiles", "product")):
        pairs = read(name, TABLES[name], column=column, pairs=True)
        assert pairs[0] == ("CCO", "CC=O", str(first))
        assert pairs[2][:2] == ("O", "N")
        assert pairs[1][:2] == ("C,C", 'C"\nO' if name == "t.csv" else 'C"')


def test_a_row_of_csv_over_several_lines_is_named_by_its_first() -> None:
    assert [one[1] for one in read("t.csv", TABLES["t.csv"], column="smiles")] == ["2", "4", "6"]


def test_csv_may_be_in_gzip_with_a_byte_order_mark_and_line_ends_of_windows() -> None:
    data = b"\xef\xbb\xbftext,n\r\nthe cat,1\r\n,2\r\n"
    assert read("t.csv", data) == [("the cat", "2")]  # text is the name that needs no --column
    assert read("t.csv.gz", gzip.compress(data), column="text") == [("the cat", "2")]


def test_a_tsv_of_pairs_has_no_header_unless_columns_are_named() -> None:
    data = b"a\tb\nc\td\n"
    assert read("t.tsv", data, pairs=True) == [("a", "b", "1"), ("c", "d", "2")]
    assert read("t.tsv", data, pairs=True, column="b,a") == [("d", "c", "2")]


@pytest.mark.parametrize(
    ("name", "data", "options", "message"),
    [
        (
            "t.csv",
            TABLES["t.csv"],
            {},
            't.csv:2: no column "text" among id, product or smiles. Name the column to read with `column`.',
        ),
        (
            "t.tsv",
            b"The cat sat.\nThe mat.\n",
            {},
            't.tsv:2: no column "text" among The cat sat. Name the column to read with `column`.',
        ),
        (
            "t.csv",
            TABLES["t.csv"],
            {"column": "smile"},
            't.csv:2: no column "smile" among id, product or smiles; did you mean "smiles"? '
            "Name the column to read with `column`.",
        ),
        (
            "t.csv",
            b"a,b\n1,2\n1,2,3\n",
            {"column": "a"},
            "t.csv:3: 3 columns. Expected 2, as in line 1 (a, b).",
        ),
        (
            "t.csv",
            b'a,b\n1,2\n"1,2\n3,4\n',
            {"column": "a"},
            "t.csv:3: not a csv line (unexpected end of data). Expected quotes that close.",
        ),
        (
            "t.csv",
            b'a,b\n1,2\n"' + b"x" * (csv.field_size_limit() + 1) + b'",2\n',
            {"column": "a"},
            "t.csv:3: not a csv line (field larger than field limit (131072)). Expected quotes that close, "
            "and at most 131072 characters in a field.",
        ),
        (
            "p.fasta",
            FASTA,
            {"pairs": True},
            "p.fasta: FASTA holds single sequences. Leave `pairs` out.",
        ),
    ],
    ids=["no column", "plain text", "misspelt", "fields", "quote", "long field", "fasta pairs"],
)
def test_a_table_that_cannot_be_read_is_refused(
    name: str, data: bytes, options: dict[str, object], message: str
) -> None:
    assert refusal(name, data, **options) == message
