"""Every bad corpus, and the whole message it must give; and odd ones that must work."""

from __future__ import annotations

import gzip
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from command_result import Run
from transformers import PreTrainedTokenizerFast

from sampling import slow

UTF8 = "Expected UTF-8. Convert the file, for example with iconv."
A_FILE = "Expected a text file, or one in gzip."
NO_TEXT = "no text in it. Expected lines that are not blank and not comments (# …)."
PAIR = "Expected two texts with one tab between them (--pairs)."
ONE_A_LINE = "Expected one JSON object per line. If the file holds one list, write one item per line: jq -c '.[]'."
COLUMN = "Name the column to read with --column."
LONG = b"a b " * 250_000

BAD: dict[str, tuple[str, bytes, tuple[str, ...], str]] = {
    "empty": ("c.txt", b"", (), f"c.txt: {NO_TEXT}"),
    "only comments": ("c.txt", b"# one\n#\n# two\n", (), f"c.txt: {NO_TEXT}"),
    "only blanks": ("c.txt", b"\n  \n\t\n\r\n", (), f"c.txt: {NO_TEXT}"),
    "not UTF-8": (
        "c.txt",
        "the cat\nthé ".encode() + b"\xff\n",
        (),
        f"c.txt:2:5: byte 0xff is not UTF-8. {UTF8}",
    ),
    "Latin-1": (
        "c.txt",
        "café\n".encode("latin-1"),
        (),
        f"c.txt:1:4: byte 0xe9 is not UTF-8. {UTF8}",
    ),
    "UTF-16": ("c.txt", "the cat\n".encode("utf-16"), (), f"c.txt: the file is in UTF-16. {UTF8}"),
    "UTF-16 without a mark": (
        "c.txt",
        "the cat\n".encode("utf-16-le"),
        (),
        "c.txt:1:2: a NUL byte; this is not a text file. Expected text in UTF-8.",
    ),
    "NUL": (
        "c.txt",
        b"the cat\nsa\x00t\n",
        (),
        "c.txt:2:3: a NUL byte; this is not a text file. Expected text in UTF-8.",
    ),
    "one column": (
        "c.tsv",
        b"a\tb\nc\n",
        ("--pairs",),
        f"c.tsv:2: 1 column. {PAIR} Fix the line, or leave --pairs out if each line is one text.",
    ),
    "three columns": ("c.tsv", b"a\tb\nc\td\te\n", ("--pairs",), f"c.tsv:2: 3 columns. {PAIR}"),
    "an empty column": (
        "c.tsv",
        b"a\tb\nc\t \n",
        ("--pairs",),
        f"c.tsv:2: column 2 is empty. {PAIR}",
    ),
    "another empty column": (
        "c.tsv",
        b"a\tb\n\td\n",
        ("--pairs",),
        f"c.tsv:2: column 1 is empty. {PAIR}",
    ),
    "jsonl broken": (
        "c.jsonl",
        b'{"text": "a"}\n{"text": \n',
        (),
        f"c.jsonl:2:10: not JSON: Expecting value. {ONE_A_LINE}",
    ),
    "jsonl nested": (
        "c.jsonl",
        b"[" * 100_000,
        (),
        "c.jsonl:1: not JSON: maximum recursion depth exceeded while decoding a JSON array from a unicode string. "
        + ONE_A_LINE,
    ),
    "jsonl without the field": (
        "c.jsonl",
        b'{"txt": "a", "id": 4}\n',
        (),
        f'c.jsonl:1: no column "text" among id or txt; did you mean "txt"? {COLUMN}',
    ),
    "jsonl with many fields": (
        "c.jsonl",
        json.dumps({f"field{i:03}": i for i in range(500)}).encode(),
        (),
        'c.jsonl:1: no column "text" among '
        + ", ".join(f"field{i:03}" for i in range(20))
        + f" … (500 in all). {COLUMN}",
    ),
    "jsonl without any field": (
        "c.jsonl",
        b"{}\n",
        (),
        f'c.jsonl:1: no column "text", nor any other. {COLUMN}',
    ),
    "jsonl with a number": (
        "c.jsonl",
        b'{"text": "a"}\n{"text": 5}\n',
        (),
        'c.jsonl:2: column "text" is 5. Expected a text in quotes. '
        "Correct the line, or name another column with --column.",
    ),
    "jsonl with half a character": (
        "c.jsonl",
        b'{"text": "a \\ud800"}\n',
        (),
        "c.jsonl:1: character 3 is U+D800, half of a surrogate pair. Expected Unicode text.",
    ),
    "jsonl pair half empty": (
        "c.jsonl",
        b'{"a": "x", "b": ""}\n',
        ("--pairs",),
        'c.jsonl:1: column "b" is empty. Expected two texts (--pairs).',
    ),
    "a list of objects": (
        "c.json",
        b'[{"text": "a"}]\n',
        (),
        f"c.json:1: not a JSON object. {ONE_A_LINE}",
    ),
    "a list over lines": (
        "c.json",
        b'[\n{"text": "a"}\n]\n',
        (),
        f"c.json:1:2: not JSON: Expecting value. {ONE_A_LINE}",
    ),
    "gzip cut": (
        "c.txt.gz",
        gzip.compress(b"the cat\n" * 99, compresslevel=0)[:199],
        (),
        "c.txt.gz: cannot be read after line 23: Compressed file ended before the end-of-stream marker was "
        f"reached. {A_FILE}",
    ),
    "gzip damaged": (
        "c.txt.gz",
        gzip.compress(b"the cat\n")[:-8] + b"\0" * 8,
        (),
        f"c.txt.gz: cannot be read after line 1: CRC check failed 0x0 != 0xa7995f7a. {A_FILE}",
    ),
    "nothing but zero-width characters": (
        "c.txt",
        "\u200b\n\u200b\u200b\n".encode(),
        (),
        "c.txt: none of the 2 texts could be used (2 no tokens). Expected texts of 1 to 64 tokens.",
    ),
    "all too long": (
        "c.txt",
        LONG,
        ("--long-texts", "skip"),
        "c.txt: none of the 1 texts could be used (1 too long). Expected texts of 1 to 64 tokens.",
    ),
    "too long": (
        "c.txt",
        b"the cat\n" + LONG,
        ("--long-texts", "error"),
        "c.txt:2: 500002 tokens. Expected at most 64. Shorten it, or choose --long-texts truncate, window or skip.",
    ),
    "windows of a pair": (
        "c.tsv",
        b"a\t" + b"b " * 99,
        ("--pairs", "--long-texts", "window"),
        "--long-texts window: a pair cannot be cut into windows. Choose truncate or skip for pairs.",
    ),
    "no room for a pair": (
        "c.tsv",
        b"a b\tc d",
        ("--pairs", "--max-length", "4"),
        "--max-length: 4 leaves no room for two texts. Expected 5 or more.",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_corpus_is_refused_by_file_and_line(
    work_folder: Path, analyze: Run, case: str
) -> None:
    name, data, options, message = BAD[case]
    (work_folder / name).write_bytes(data)
    output = analyze("bert", name, *options)
    assert (output.status, output.error) == (2, message)


def test_a_corpus_that_cannot_be_opened_is_refused(
    work_folder: Path, analyze: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = analyze("bert", "missing.txt")
    assert missing.error == (
        "missing.txt: there is no such file here. "
        "Expected a file, or a corpus that comes with headscope: wikipedia-pairs."
    )
    nearly = analyze("bert", "wikipedia")
    assert nearly.error.endswith(
        'comes with headscope: wikipedia-pairs; did you mean "wikipedia-pairs"?'
    )
    missing = analyze("bert", "folder/missing.txt")
    assert (
        missing.error
        == f"folder/missing.txt: cannot be read: No such file or directory. {A_FILE} Check the path."
    )
    (work_folder / "folder").mkdir()
    assert analyze("bert", "folder").error == f"folder: cannot be read: Is a directory. {A_FILE}"
    real_open = Path.open

    def forbidden(path: Path, *options: Any, **more: Any) -> Any:
        if path.name == "good.txt":  # root may read everything, so the refusal is acted
            raise PermissionError(13, "Permission denied", str(path))
        return real_open(path, *options, **more)

    monkeypatch.setattr(Path, "open", forbidden)
    assert (
        analyze("bert", "good.txt").error
        == f"good.txt: cannot be read: Permission denied. {A_FILE}"
    )


def record(work_folder: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((work_folder / "study" / "run.json").read_text())["data"]
    return data


@pytest.mark.parametrize(
    ("data", "used"),
    [
        (b"\xef\xbb\xbfthe cat\n", 1),
        (b"the cat\r\nsat\r\n\r\n", 2),
        (b"the cat", 1),
        (b"x\n", 1),
        ("一\n".encode(), 1),  # unknown to the tokenizer
        (b"[SEP] [CLS]\n", 1),  # nothing but special tokens
        ("the cat\n\u200b\n".encode(), 1),
    ],
    ids=[
        "byte order mark",
        "CRLF",
        "no last line end",
        "one token",
        "unknown",
        "special",
        "zero-width",
    ],
)
def test_an_odd_corpus_is_read(work_folder: Path, analyze: Run, data: bytes, used: int) -> None:
    (work_folder / "c.txt").write_bytes(data)
    output = analyze("bert", "c.txt")
    assert output.status == 0, output.err
    assert record(work_folder)["used"] == used
    assert sum(record(work_folder)["skipped"].values()) == record(work_folder)["read"] - used


def test_byte_order_mark_and_line_ends_change_no_number(work_folder: Path, run: Run) -> None:
    (work_folder / "dos.txt").write_bytes(
        b"\xef\xbb\xbf" + (work_folder / "good.txt").read_bytes().replace(b"\n", b"\r\n")
    )
    for name in ("good", "dos"):
        assert run("analyze", "bert", "--corpus", f"{name}.txt", "--out", name).status == 0
    assert (work_folder / "good" / "heads.csv").read_bytes() == (
        work_folder / "dos" / "heads.csv"
    ).read_bytes()


def test_a_text_of_one_token_works_without_special_tokens(work_folder: Path, analyze: Run) -> None:
    (work_folder / "c.txt").write_text("x\n\u200b\nthe cat\n")
    output = analyze("gpt2", "c.txt")
    assert output.status == 0, output.err
    assert record(work_folder)["used"] == 2
    assert record(work_folder)["skipped"] == {"no tokens": 1}


@pytest.fixture
def tokenized(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The characters that the tokenizer is given, call by call."""
    lengths: list[int] = []
    real = PreTrainedTokenizerFast.__call__

    def call(self: PreTrainedTokenizerFast, text: str, *args: Any, **options: Any) -> Any:
        lengths.append(len(text))
        return real(self, text, *args, **options)

    monkeypatch.setattr(PreTrainedTokenizerFast, "__call__", call)
    return lengths


@pytest.mark.parametrize("text", [LONG, b"a" * 1_000_000], ids=["words", "one word"])
@pytest.mark.parametrize("long", ["truncate", slow("skip")])
def test_a_line_of_a_million_characters_is_tokenized_a_few_times_and_counted(
    work_folder: Path, analyze: Run, long: str, text: bytes, tokenized: list[int]
) -> None:
    (work_folder / "c.txt").write_bytes(b"the cat\n" + text + b"\n")
    output = analyze("bert", "c.txt", "--long-texts", long)
    assert output.status == 0, output.err
    assert max(tokenized) == len(text)
    assert len(tokenized) <= 10, "a few times as a whole, however long it is"
    assert "Token indices" not in output.err, (
        "the tokenizer's own warning: what became of the text is counted"
    )
    data = record(work_folder)
    is_long = text == LONG  # one word of a million letters is one unknown token
    assert data["truncated"] == int(is_long and long == "truncate")
    assert data["skipped"] == ({"too long": 1} if is_long and long == "skip" else {})
    assert data["used"] == 2 - int(is_long and long == "skip")


def test_a_long_line_in_windows_is_used_to_its_end(work_folder: Path, analyze: Run) -> None:
    (work_folder / "c.txt").write_text(
        "[CLS] a 一 b " * 1_000
    )  # special and unknown tokens in its middle
    output = analyze("bert", "c.txt", "--long-texts", "window")
    assert output.status == 0, output.err
    data = record(work_folder)
    assert (data["windowed"], data["truncated"], data["used"]) == (1, 0, 1)
    assert data["sequences"] == -(-4_000 // 62)  # two of the 64 places are for [CLS] and [SEP]
    assert data["tokens"] == 4_000 + 2 * data["sequences"]


def test_an_empty_pipe_is_refused(work_folder: Path, analyze: Run) -> None:
    os.mkfifo(work_folder / "pipe")
    writer = threading.Thread(target=lambda: (work_folder / "pipe").write_text(""))
    writer.start()
    output = analyze("bert", "pipe")
    writer.join()
    message = "pipe: no text in it. Expected lines that are not blank and not comments (# …)."
    assert (output.status, output.error) == (2, message)


def test_a_pipe_is_read_once(work_folder: Path, analyze: Run) -> None:
    """As in --corpus <(zcat big.gz): there is no second reading."""
    os.mkfifo(work_folder / "pipe")
    writer = threading.Thread(target=lambda: (work_folder / "pipe").write_text("the cat\nsat\n"))
    writer.start()
    output = analyze("bert", "pipe")
    writer.join()
    assert output.status == 0, output.err
    assert record(work_folder)["used"] == 2
    assert record(work_folder)["files"] == [{"path": "pipe"}]
