"""Bad treebanks, documents and frequency lists through the command line: the whole message, and nothing left behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from said import Run

GOOD = "1\tthe\tthe\tDET\t_\t_\t2\tdet\t_\t_\n2\tcat\tcat\tNOUN\t_\t_\t0\troot\t_\t_\n\n"
MEND = "Mend the line, or pass --lenient to leave such sentences out; run.json will count them."
DOCUMENT = "#begin document (a); part 000\na\t0\t0\tthe\t-\na\t0\t1\tcat\t(1)\n\n#end document\n"


def treebank(run: Run, name: str, *options: str):  # type: ignore[no-untyped-def]
    return run("analyze", "bert", "--treebank", name, "--out", "study", *options)


@pytest.mark.parametrize(
    ("text", "starts"),
    [
        (GOOD.replace("\t2\tdet", "\t7\tdet"), "t.conllu:1: "),
        (GOOD.replace("\t2\tdet", "\t1\tdet"), "t.conllu:1: "),
        (GOOD.replace("\t0\troot", "\t1\tdep"), "t.conllu:1: "),
        (GOOD.replace("\t2\tdet", "\t0\troot"), "t.conllu:2: "),
        (GOOD.replace("2\tcat", "1\tcat", 1), "t.conllu:2: "),
        (GOOD.replace("\t_\t_\n2", "\n2"), "t.conllu:1: "),
    ],
    ids=["head out of range", "self-loop", "no root", "two roots", "duplicate id", "columns"],
)
def test_a_malformed_sentence_is_refused_by_line_or_left_out(here: Path, run: Run, text: str, starts: str) -> None:
    (here / "t.conllu").write_text(text + GOOD * 3)
    said = treebank(run, "t.conllu")
    assert said.status == 2
    assert said.error.startswith(starts)
    assert said.error.endswith(MEND)
    lenient = treebank(run, "t.conllu", "--lenient")
    assert lenient.status == 0, lenient.err
    record = json.loads((here / "study" / "run.json").read_text())["treebank"]
    assert (record["used"], sum(record["malformed"].values())) == (3, 1)


def test_an_empty_treebank_is_said(here: Path, run: Run) -> None:
    (here / "t.conllu").write_text("# nothing\n")
    said = treebank(run, "t.conllu")
    assert said.status == 2
    assert said.error.startswith("t.conllu: ")


def test_relations_too_rare_to_rank_and_sentences_of_one_word_are_no_error(here: Path, run: Run) -> None:
    (here / "t.conllu").write_text("1\tcat\tcat\tNOUN\t_\t_\t0\troot\t_\t_\n\n" + GOOD)
    assert treebank(run, "t.conllu").status == 0
    rows = (here / "study" / "relations.csv").read_text().splitlines()
    assert rows[1].startswith("all,dependent,encoder,,,,,,")
    assert "nan" not in "".join(rows).lower()


def test_unbalanced_brackets_are_refused_by_line_or_the_document_left_out(here: Path, run: Run) -> None:
    (here / "c.conll").write_text(DOCUMENT.replace("(1)", "(1") + DOCUMENT)
    said = run("analyze", "bert", "--coreference", "c.conll", "--out", "study")
    assert said.status == 2
    assert said.error.startswith("c.conll:")
    assert run("analyze", "bert", "--coreference", "c.conll", "--lenient", "--out", "study").status == 0
    record = json.loads((here / "study" / "run.json").read_text())["coreference"]
    assert record["documents"] == 1


def test_an_unknown_frequency_list_is_refused_before_a_model_is_loaded(here: Path, run: Run) -> None:
    said = run("analyze", "no/such", "--corpus", "good.txt", "--frequency", "englisch", "--out", "study")
    assert (said.status, said.error) == (
        2,
        "englisch: there is no such file here. Expected a file, or a frequency list that comes with headscope: "
        'english; did you mean "english"?',
    )


def test_without_any_data_the_command_says_what_it_wants(run: Run) -> None:
    said = run("analyze", "bert", "--out", "study")
    assert said.status == 2
    assert said.error == "corpus: no text was given. Expected a corpus, texts, a treebank or coreference."
