"""Every bad option and every bad place to write to, and the whole message it must give."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from command_result import Run

from headscope import Study
from headscope import atomic_dir as drafts
from headscope.errors import HeadscopeError, choices, printable
from headscope.statistics import registry

OF_TEXTS = [name for kind in registry() if kind.needs is None for name in kind.definitions]
STATISTICS = choices("entropi", OF_TEXTS)
WITHOUT_CUDA = (
    "torch finds no CUDA devices"
    if torch.backends.cuda.is_built()
    else "this build of torch has no CUDA"
)
BAD: list[tuple[tuple[str, ...], str]] = [
    (("--dtype", "float31"), '--dtype must be bfloat16, float16, float32 or float64, got "float31". Did you mean '
     '"float32"?'),
    (("--dtype", "int8"), '--dtype must be bfloat16, float16, float32 or float64, got "int8".'),
    (("--device", "meta"), '--device: "meta" is not a device. Expected auto, cpu, cuda, cuda:1 or mps.'),
    (("--device", "gpu"), '--device: "gpu" is not a device. Expected auto, cpu, cuda, cuda:1 or mps; did you mean '
     '"cuda"?'),
    (("--device", "cuda:7"), f'--device: "cuda:7" cannot be used here: {WITHOUT_CUDA}. Expected auto or cpu.'),
    (("--max-length", "0"), "--max-length must be at least 1, got 0."),
    (("--max-length", "-5"), "--max-length must be at least 1, got -5."),
    (("--max-length", "2"), "--max-length: 2 leaves no room for text. Expected 3 or more."),
    (("--max-length", "65"), "--max-length: 65 tokens are more than bert can read. Expected at most 64."),
    (("--batch-size", "0"), "--batch-size must be at least 1, got 0."),
    (("--batch-size", "-1"), "--batch-size must be at least 1, got -1."),
    (("--limit", "0"), "--limit must be at least 1, got 0."),
    (("--statistics", "entropi"), f'--statistics: "entropi" is not a statistic. Expected {STATISTICS}'),
    (("--statistics", ""), f'--statistics: "" is not a statistic. Expected {choices("", OF_TEXTS)}.'),
    (("--long-texts", "trunkate"), '--long-texts must be error, skip, truncate or window, got "trunkate". Did you mean '
     '"truncate"?'),
    (("--column", "a,b"), "--column: 2 columns given: a, b. Expected one; or add --pairs."),
    (("--column", "a", "--pairs"), "--column: 1 column given: a. Expected two for --pairs, as in a,b."),
    (
        ("--column", "text"),
        "--column: no file of the corpus has columns: good.txt. Expected a .csv, .tsv or .jsonl file.",
    ),
    (("--max-length", "many"), '--max-length must be a whole number, got "many". See headscope analyze --help.'),
    (("--bach-size", "3"), "No such option: --bach-size (Possible options: --batch-size). "
     "See headscope analyze --help."),
]  # fmt: skip


@pytest.mark.parametrize(("options", "message"), BAD, ids=[" ".join(options) for options, _ in BAD])
def test_a_bad_option_is_refused_as_typed(
    analyze: Run, options: tuple[str, ...], message: str
) -> None:
    output = analyze("bert", "good.txt", *options)
    assert (output.status, output.error) == (2, message)
    assert len(output.rest) == 1


@pytest.mark.parametrize(
    ("options", "start"),
    [
        (("--corpus", "good.txt", "--statistics", "entropi"), "--statistics: "),
        (("--corpus", "good.txt", "--long-texts", "trunkate"), "--long-texts must be "),
        (("--corpus", "good.txt", "--limit", "0"), "--limit must be "),
        (("--corpus", "gone.txt",), "gone.txt: "),
    ],
)  # fmt: skip
def test_simple_mistakes_are_reported_before_a_model_is_loaded(
    run: Run, options: tuple[str, ...], start: str
) -> None:
    output = run("analyze", "no/such-model", "--out", "study", *options)
    assert output.status == 2
    assert output.error.startswith(start)


def test_a_look_below_a_file_is_refused_before_a_model_is_loaded(run: Run) -> None:
    output = run("look", "no/such-model", "a text", "--out", "good.txt/deep/look.html")
    message = 'good.txt/deep/look.html: "good.txt" is a file, not a folder. Choose another path.'
    assert (output.status, output.error) == (2, message)


def test_a_look_into_a_missing_directory_is_refused_before_a_model_is_loaded(run: Run) -> None:
    output = run("look", "no/such-model", "the cat", "--out", "new/deep/look.html")
    message = "new/deep/look.html: cannot be written: there is no directory new/deep. Check the path, or make the "
    assert (output.status, output.error) == (2, f"{message}directory: mkdir -p new/deep.")
    assert not Path("new").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("analyse",), "No such command 'analyse'. Did you mean 'analyze'? See headscope --help."),
        (("analyze", "bert"), "headscope analyze requires --out. For example: headscope analyze minilm "
         "--corpus wikipedia-pairs --pairs --out study."),
        (("look", "bert"), "headscope look requires TEXT. For example: headscope look minilm "
         '"The cat sat on the mat." --out cat.html.'),
        (("look", "bert", ""), "headscope look requires --out. For example: headscope look minilm "
         '"The cat sat on the mat." --out cat.html.'),
        (("look", "bert", "", "--out", "p.html"), 'text "": there are no tokens in it. Expected some text.'),
        (("look", "bert", "\u200b", "--out", "p.html"),
         'text "\\u200b": there are no tokens in it. Expected some text.'),
        (("look", "bert", "a " * 99, "--out", "p.html"),
         'text "' + "a " * 19 + 'a…": 101 tokens. Expected at most 64 tokens. Shorten it.'),
        (("look", "bert", "the cat sat", "--max-length", "4", "--out", "p.html"),
         'text "the cat sat": 5 tokens. Expected at most 4 tokens. '
         "Shorten it, or raise --max-length (up to 64)."),
        (("look", "bert", "the cat", "--out", "good.txt/p.html"),
         'good.txt/p.html: "good.txt" is a file, not a folder. Choose another path.'),
        (("look", "bert", "The", "cat", "sat", "--out", "p"),
         'Got unexpected extra argument(s) (sat). Put the text in quotes: headscope look MODEL "The cat sat." --out '
         "look.html."),
        (("analyze", "bert", "The cat sat.", "--out", "s"),
         "Got unexpected extra argument(s) (The cat sat.). For one text use look: headscope look MODEL "
         '"The cat sat." --out look.html.'),
        (("analyze", "bert", "--out", "s"),
         "analyze requires texts. Expected --corpus FILE, --treebank FILE or --coreference FILE. For example: "
         "headscope analyze minilm --corpus wikipedia-pairs --pairs --out study."),
        (("look", "bert", "the cat", "--out", "p.png"),
         'p.png: the name of a page must end in .html, got "p.png".'),
        (("look", "bert", "the cat", "--out", "bert"),
         "bert: this is a folder. Expected the name of a file, such as look.html."),
        (("look", "bert", "\udcff", "--out", "p.html"),
         'text "\\udcff": character 1 is U+DCFF, half of a surrogate pair. Expected Unicode text.'),
    ],
)  # fmt: skip
def test_a_wrong_call_is_one_line(run: Run, words: tuple[str, ...], message: str) -> None:
    output = run(*words)
    assert (output.status, output.error) == (2, message)
    assert len(output.rest) == 1


def test_verbose_shows_the_traceback(run: Run) -> None:
    with pytest.raises(HeadscopeError, match="--dtype must be "):
        run("analyze", "bert", "--corpus", "good.txt", "--out", "study", "--dtype", "x", "-v")


def test_verbose_after_two_dashes_is_a_text(work_folder: Path, run: Run) -> None:
    assert run("look", "bert", "--out", "p.html", "--", "-v").status == 0
    assert "-v" in (work_folder / "p.html").read_text()


# Where to write


def other_program(out: Path) -> None:
    out.mkdir()
    (out / "run.json").write_text('{"wandb": 1}')


def full_directory(out: Path) -> None:
    out.mkdir()
    (out / "thesis.tex").write_text("years of work")


NOT_OURS = (
    "study: the directory is neither a study nor empty. Expected the name of a new"
    " directory. Choose another --out."
)


@pytest.mark.parametrize("overwrite", [(), ("--overwrite",)], ids=["", "overwrite"])
@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda out: out.write_text("x"),
         "study: this is a file. Expected the name of a new directory. Choose another --out."),
        (full_directory, NOT_OURS),
        (other_program, NOT_OURS),
    ],
    ids=["a file", "a directory of something else", "a run.json of something else"],
)  # fmt: skip
def test_what_is_not_a_study_is_never_replaced(
    work_folder: Path,
    analyze: Run,
    prepare: Callable[[Path], None],
    message: str,
    overwrite: tuple[str, ...],
) -> None:
    prepare(work_folder / "study")
    output = analyze("bert", "good.txt", *overwrite)
    assert (output.status, output.error) == (2, message)


def test_a_study_is_replaced_only_when_asked(work_folder: Path, analyze: Run) -> None:
    assert analyze("bert").status == 0
    (work_folder / "study.old").mkdir()  # somebody's own backup
    (work_folder / "study.old" / "kept").touch()
    before = (work_folder / "study" / "run.json").read_bytes()
    output = analyze("bert")
    assert (output.status, output.error) == (
        2,
        "study: a study is already there. Add --overwrite to replace it, or choose another --out.",
    )
    bad = analyze("bert", "good.txt", "--overwrite", "--limit", "0")
    assert bad.status == 2
    assert (work_folder / "study" / "run.json").read_bytes() == before
    assert analyze("bert", "good.txt", "--overwrite", "--limit", "1").status == 0
    assert json.loads((work_folder / "study" / "run.json").read_text())["data"]["used"] == 1
    assert (work_folder / "study.old" / "kept").exists()
    assert {path.name for path in work_folder.iterdir()} == {
        "bert",
        "gpt2",
        "good.txt",
        "study",
        "study.old",
    }


def test_demo_does_not_replace_another_study(work_folder: Path, run: Run) -> None:
    (work_folder / "demo").mkdir()
    (work_folder / "demo" / "run.json").write_text('{"schema": 1, "command": "headscope analyze"}')
    output = run("demo")
    assert (output.status, output.error) == (
        2,
        "demo: a study is already there. Add --overwrite to replace it, or choose another --out.",
    )


def test_missing_parents_are_made_and_taken_back_after_a_failure(
    work_folder: Path, run: Run
) -> None:
    words = ("analyze", "bert", "--corpus", "good.txt", "--out", "new/er/study")
    assert run(*words, "--limit", "0").status == 2
    assert not (work_folder / "new").exists()
    assert run(*words).status == 0
    assert [path.name for path in (work_folder / "new" / "er").iterdir()] == ["study"]


def test_a_link_is_replaced_and_not_what_it_leads_to(work_folder: Path, analyze: Run) -> None:
    (work_folder / "real").mkdir()
    (work_folder / "study").symlink_to("real")
    assert analyze("bert").status == 0
    assert (work_folder / "study" / "run.json").is_file()
    assert not (work_folder / "study").is_symlink()
    assert list((work_folder / "real").iterdir()) == []


def test_two_runs_do_not_write_the_same_study(work_folder: Path, analyze: Run) -> None:
    with drafts.atomic_directory(work_folder / "study"):
        output = analyze("bert")
        assert (
            output.error
            == "study: another run is writing to it. Wait for it, or choose another --out."
        )
        assert (work_folder / "study.partial").is_dir()


def test_the_root_directory_is_refused(run: Run) -> None:
    output = run("analyze", "bert", "--corpus", "good.txt", "--out", "/")
    assert output.error == NOT_OURS.replace("study:", "/:", 1)


@pytest.fixture
def tiny_disk(work_folder: Path) -> Path:
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small file system")
    disk = work_folder / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", disk], capture_output=True
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode()}")
    return disk


def unmount(disk: Path) -> None:
    subprocess.run(["umount", disk], check=True)


def test_a_full_disk_is_reported_and_left_clean(run: Run, tiny_disk: Path) -> None:
    try:
        output = run("analyze", "bert", "--corpus", "good.txt", "--out", "disk/study")
        left = list(tiny_disk.iterdir())
    finally:
        unmount(tiny_disk)
    assert (output.status, output.error) == (
        2,
        "disk/study: cannot be written: No space left on device. Expected a writable directory with free space. "
        "Free some space, or choose another --out.",
    )
    assert left == []


def test_a_read_only_folder_is_reported(run: Run, tiny_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", tiny_disk], check=True)
    try:
        output = run("analyze", "bert", "--corpus", "good.txt", "--out", "disk/study")
        page = run("look", "bert", "the cat", "--out", "disk/page.html")
    finally:
        unmount(tiny_disk)
    assert (output.status, output.error) == (
        2,
        "disk/study: cannot be written: Read-only file system. Expected a writable directory with free space. "
        "Choose another --out.",
    )
    assert page.status == 2
    assert page.error.startswith(
        "disk/page.html: the page cannot be written: Read-only file system."
    )


# Studies that cannot be read


def test_a_damaged_study_is_refused(work_folder: Path, analyze: Run) -> None:
    with pytest.raises(
        HeadscopeError,
        match=r"^none/run.json: not a study \(No such file or directory\)\. Expected",
    ):
        Study("none")
    assert analyze("bert").status == 0
    spoilt = {"maps.npz": b"PK\x03\x04 no", "heads.parquet": b"PAR1 no", "run.json": b"[1]"}
    for name, data in spoilt.items():
        good = (work_folder / "study" / name).read_bytes()
        (work_folder / "study" / name).write_bytes(data)
        with pytest.raises(HeadscopeError, match=r"^study"):
            Study("study")
        (work_folder / "study" / name).write_bytes(good)
    np.savez(work_folder / "study" / "maps.npz", evil=np.array([object()], dtype=object))
    with pytest.raises(HeadscopeError, match="allow_pickle"):
        Study("study")


# The error itself


def test_an_error_is_one_line_that_cannot_steer_the_terminal() -> None:
    error = HeadscopeError(
        "a\n\n  b\x1b[2J\u202e", where="two  blanks\u2028.txt", expected="x.", fix="y?"
    )
    assert str(error) == "two  blanks .txt: a b\\x1b[2J\\u202e. Expected x. y?"
    assert printable("é 一 😀") == "é 一 😀"
