"""Rows of tables, and the files of a data set."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from headscope.data.records import find_split, read_records
from headscope.errors import HeadscopeError

ONE_A_LINE = "Expected one JSON object per line. If the file holds one list, write one item per line: jq -c '.[]'."


def rows(path: Path, text: str) -> list[tuple[dict[str, object], str]]:
    path.write_text(text, "utf-8")
    return [(record.cells, record.where.rpartition(":")[2]) for record in read_records(path)]


def test_the_three_formats_say_the_same(tmp_path: Path) -> None:
    wanted = [({"a": "one", "b": "two words"}, "2"), ({"a": "three", "b": "4"}, "3")]
    assert rows(tmp_path / "x.tsv", "a\tb\none\ttwo words\nthree\t4\n") == wanted
    assert rows(tmp_path / "x.csv", "a,b\none,two words\nthree,4\n") == wanted
    result = rows(
        tmp_path / "x.jsonl", '{"a": "one", "b": "two words"}\n{"a": "three", "b": "4"}\n'
    )
    assert [cells for cells, _ in result] == [cells for cells, _ in wanted]
    assert [line for _, line in result] == ["1", "2"]


def test_quotes_are_letters_in_a_tsv_and_close_in_a_csv(tmp_path: Path) -> None:
    """GLUE's files have lone quotation marks, which a csv reader would swallow rows with."""
    assert rows(tmp_path / "x.tsv", 'a\tb\n"one\ttwo\nthree\tfour"\n') == [
        ({"a": '"one', "b": "two"}, "2"),
        ({"a": "three", "b": 'four"'}, "3"),
    ]
    assert rows(tmp_path / "x.csv", 'a,b\n"one, ""1""\nmore",two\n')[0][0] == {
        "a": 'one, "1"\nmore',
        "b": "two",
    }


def test_blank_lines_the_byte_order_mark_and_line_ends_of_windows_do_not_matter(
    tmp_path: Path,
) -> None:
    path = tmp_path / "x.tsv"
    path.write_bytes(b"\xef\xbb\xbfa\tb\r\n\r\none\ttwo\r\n")
    assert [record.cells for record in read_records(path)] == [{"a": "one", "b": "two"}]
    packed = tmp_path / "y.tsv.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert [record.cells for record in read_records(packed)] == [{"a": "one", "b": "two"}]


def test_an_empty_last_cell_is_a_cell(tmp_path: Path) -> None:
    assert rows(tmp_path / "x.tsv", "a\tb\none\t\n") == [({"a": "one", "b": ""}, "2")]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("x.tsv", "a\tb\none\n", "x.tsv:2: 1 column. Expected 2, as in line 1 (a, b)."),
        ("x.tsv", "a\tb\n1\t2\t3\n", "x.tsv:2: 3 columns. Expected 2, as in line 1 (a, b)."),
        ("x.tsv", "a\ta\n1\t2\n", 'x.tsv:1: two columns are called "a".'),
        (
            "x.csv",
            'a,b\n"1,2\n',
            "x.csv:2: not a csv line (unexpected end of data). Expected quotes that close.",
        ),
        (
            "x.csv",
            'a,b\n"1"x,2\n',
            "x.csv:2: not a csv line (',' expected after '\"'). Expected quotes that close.",
        ),
        (
            "x.jsonl",
            '{"a": 1}\n{"a"\n',
            f"x.jsonl:2:5: not JSON: Expecting ':' delimiter. {ONE_A_LINE}",
        ),
        ("x.jsonl", "[1]\n", f"x.jsonl:1: not a JSON object. {ONE_A_LINE}"),
        (
            "x.xml",
            "<a/>",
            'x.xml: ".xml" is not a format of tables. Expected .tsv, .csv, .jsonl, .ndjson.',
        ),
    ],
)
def test_a_bad_file_is_named_by_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(text, "utf-8")
    with pytest.raises(HeadscopeError) as error:
        list(read_records(name))
    assert str(error.value) == message


def test_a_column_that_is_not_there_or_holds_no_text_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.jsonl").write_text('{"text": "a", "label": 1, "none": null}', "utf-8")
    (record,) = read_records("x.jsonl")
    assert record.text(("sentence", "text")) == "a"
    for names, message in (
        (("label",), 'x.jsonl:1: column "label" is 1. Expected a text.'),
        (("none",), 'x.jsonl:1: column "none" is empty. Expected a text.'),
        (
            ("texts", "b"),
            'x.jsonl:1: no column "texts" or "b" among label, none or text; did you mean "text"? '
            'Name the column that holds it: `columns={"texts": "NAME"}`.',
        ),
    ):
        with pytest.raises(HeadscopeError) as error:
            record.text(names)
        assert str(error.value) == message


def test_the_file_of_a_split_is_found_by_its_name(tmp_path: Path) -> None:
    for name in (
        "mnli_train.tsv",
        "mnli_dev.tsv",
        "rte_dev.tsv",
        "rte-train.jsonl.gz",
        "README.md",
        "development.tsv",
    ):
        (tmp_path / name).write_text("")
    assert find_split(tmp_path, "dev", task="mnli").name == "mnli_dev.tsv"
    assert find_split(tmp_path, "train", task="rte").name == "rte-train.jsonl.gz"
    assert find_split(tmp_path / "README.md", "dev").name == "README.md"
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone" / "validation.csv").write_text("")
    assert find_split(tmp_path / "alone", "dev", task="mnli").name == "validation.csv"


@pytest.mark.parametrize(
    ("files", "split", "message"),
    [
        (
            ("train.tsv",),
            "dev",
            "data: no file for dev here, only train.tsv. Expected dev.tsv, say.",
        ),
        ((), "test", "data: no file for test here, only no table at all. Expected test.tsv, say."),
        (
            ("a_dev.tsv", "b_dev.tsv", "mnli_train.tsv"),
            "dev",
            "data: no file for dev of mnli here, only mnli_train.tsv. Name a file.",
        ),
        (
            ("a_dev.tsv", "b_dev.tsv"),
            "dev",
            "data: several files for dev: a_dev.tsv, b_dev.tsv. Name one of them.",
        ),
        (
            ("dev.tsv",),
            "devel",
            '`split`: "devel" is not a split. Expected dev, dev:half-a, dev:half-b, test or train; did you mean "dev"?',
        ),
    ],
)
def test_an_ambiguous_split_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    files: tuple[str, ...],
    split: str,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    for name in files:
        (Path("data") / name).write_text("")
    with pytest.raises(HeadscopeError) as error:
        find_split("data", split, task="mnli")
    assert str(error.value) == message
