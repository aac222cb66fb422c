"""Ranks of words from lists and counts; a bad line is named by file and line."""

from __future__ import annotations

import gzip
import pickle
import random
from collections import Counter
from pathlib import Path

import pytest

from headscope.data.frequency import (
    LISTS,
    Frequencies,
    count_frequencies,
    read_frequencies,
    words_in,
)
from headscope.errors import HeadscopeError

SHARED = Path(__file__).parents[3] / "shared" / "data"
FORMAT = "Expected a word and its frequency, with a tab or a blank between them."


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(text: str) -> Frequencies:
    Path("f.tsv").write_bytes(text.encode())
    return read_frequencies("f.tsv")


@pytest.mark.parametrize(
    "text",
    [
        "word\tzipf\nthe\t7.73\nof\t7.4\nto\t7.4\nlynx\t2.5\n",
        "the\t7.73\nof\t7.4\nto\t7.4\nlynx\t2.5",
        "the 900\nof 50\nto 50\nlynx 3\n",
        "lynx 3\r\nto 50\r\n\r\nof 50\r\nThe 900\r\nTHE 20\r\n",
        ". 9999\n's 9999\nthe 900\nof 50\nto 50\nlynx 3\n",
    ],
    ids=[
        "header",
        "no header",
        "blanks",
        "any order, case and line end",
        "punctuation and clitics",
    ],
)
def test_a_list_gives_ranks(folder: Path, text: str) -> None:
    result = read(text)
    assert len(result) == 4
    assert [result.rank(word) for word in ("the", "The", "of", "to", "lynx", "okapi")] == [
        0,
        0,
        1,
        1,
        3,
        4,
    ]


def test_a_list_may_be_packed(folder: Path) -> None:
    Path("f.gz").write_bytes(gzip.compress(b"the 9\nlynx 1\n"))
    assert read_frequencies(Path("f.gz")).rank("lynx") == 1


BAD = {
    "three columns": ("the\t1\t2\n", f"f.tsv:1: 3 columns. {FORMAT}"),
    "one column": ("the 9\nlynx\n", f"f.tsv:2: 1 column. {FORMAT}"),
    "two words": ("the 9\nto be 4\n", f"f.tsv:2: 3 columns. {FORMAT}"),
    "no number": ("the\t9\nlynx\trare\n", f'f.tsv:2: "rare" is not a frequency. {FORMAT}'),
    "not a number": ("the\t9\nlynx\tnan\n", f'f.tsv:2: "nan" is not a frequency. {FORMAT}'),
    "infinite": ("the\t9\nlynx\t1e999\n", f'f.tsv:2: "1e999" is not a frequency. {FORMAT}'),
    "decimal comma": ("the\t9\nlynx\t1,5\n", f'f.tsv:2: "1,5" is not a frequency. {FORMAT}'),
    "no word": ("the\t9\n\t4\n", f"f.tsv:2: the word is missing. {FORMAT}"),
    "two headers": ("word\tzipf\nword\tzipf\n", f'f.tsv:2: "zipf" is not a frequency. {FORMAT}'),
    "empty": ("", f"f.tsv: no word in it. {FORMAT[:-1]}, a line each."),
    "a header alone": ("word\tzipf\n", f"f.tsv: no word in it. {FORMAT[:-1]}, a line each."),
    "nothing but punctuation": (". 5\n", f"f.tsv: no word in it. {FORMAT[:-1]}, a line each."),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_list_is_refused_by_file_and_line(folder: Path, case: str) -> None:
    text, message = BAD[case]
    with pytest.raises(HeadscopeError) as refused:
        read(text)
    assert str(refused.value) == message


def test_a_list_that_is_not_there_is_refused(folder: Path) -> None:
    with pytest.raises(HeadscopeError) as refused:
        read_frequencies("englisch")
    assert str(refused.value) == (
        "englisch: there is no such file here. "
        'Expected a file, or a frequency list that comes with headscope: english; did you mean "english"?'
    )
    with pytest.raises(
        HeadscopeError, match=r"^lists/f\.tsv: cannot be read: No such file or directory\."
    ):
        read_frequencies("lists/f.tsv")


def test_a_file_here_goes_before_the_list_of_its_name(folder: Path) -> None:
    Path("english").write_text("lynx 9\nthe 1\n")
    assert read_frequencies("english").rank("lynx") == 0


def test_what_is_counted() -> None:
    for word in (
        ".",
        ",",
        "...",
        "$",
        "--",
        "_",
        ":)",
        "'",
        "'s",
        "’s",
        "n't",
        "N'T",
        "'LL",
        "l'",
        "qu'",
        "",
    ):
        assert not Frequencies.is_counted(word), word
    for word in (
        "a",
        "I",
        "Mr.",
        "don't",
        "2",
        "1984",
        "été",
        "고양이",
        "rock'n'roll",
        "'tis",
        "x2",
        "nt",
    ):
        assert Frequencies.is_counted(word), word


def test_counts_give_the_ranks_of_a_slow_count() -> None:
    chance = random.Random(0)
    words = [
        chance.choice(["the", "The", "cat", "dog", "lynx", ".", "'s", "don’t"]) for _ in range(200)
    ]
    result = count_frequencies(iter(words))
    counts = Counter(word.lower().replace("’", "'") for word in words if word not in (".", "'s"))
    for word, count in counts.items():
        assert result.rank(word) == sum(1 for other in counts.values() if other > count)
    assert result.rank("okapi") == len(result) == len(counts)


def test_no_words_make_every_word_the_rarest() -> None:
    assert count_frequencies([]).rank("lynx") == 0


def test_punctuation_at_the_ends_is_dropped_only_where_the_word_is_missing() -> None:
    result = Frequencies({"mr": 5, "u.s": 4, "dr.": 3, "dr": 2, "90s": 1})
    assert [result.rank(word) for word in ("Mr.", "U.S.", "Dr.", "dr", "'90s", "x.")] == [
        0,
        1,
        2,
        3,
        4,
        5,
    ]


def test_numbers_are_looked_up_as_zeros_where_the_list_has_them_so() -> None:
    zeros = Frequencies({"0000": 5, "0,000.00": 4, "7": 3, "2x00": 2, "00th": 1})
    assert [zeros.rank(word) for word in ("1984", "2,500.75", "7", "2x64", "19th", "10000")] == [
        0,
        1,
        2,
        3,
        4,
        5,
    ]
    plain = Frequencies({"0000": 5, "1984": 4})
    assert [plain.rank(word) for word in ("0000", "1984", "1985")] == [0, 1, 2]


def test_the_bundled_list_knows_english() -> None:
    assert LISTS["english"].stat().st_size < 300_000
    result = read_frequencies("english")
    assert 50_000 < len(result) < 60_000
    assert result.rank("the") == 0
    assert (
        result.rank("Between") < 500 < result.rank("lynx") < result.rank("zyzzyva") == len(result)
    )
    assert pickle.loads(pickle.dumps(result)).rank("lynx") == result.rank("lynx")


def test_a_long_list_of_subtitles_is_read() -> None:
    path = SHARED / "wordfreq" / "en_opensubtitles2018_50k.txt.gz"
    if not path.exists():
        pytest.skip("the data of ../shared are not here: wordfreq")
    result = read_frequencies(path)
    assert [result.rank(word) for word in ("you", "i", "the")] == [0, 1, 2]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Don't stop, 2.5 km!", "Don't stop , 2.5 km !"),
        ("It’s 1,000 (or so)...", "It’s 1,000 ( or so ) . . ."),
        ("well-known\tdogs' end.", "well - known dogs ' end ."),
        ("  ", ""),
    ],
)
def test_words_of_a_text(text: str, words: str) -> None:
    assert words_in(text) == tuple(words.split())
