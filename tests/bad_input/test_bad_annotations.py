"""Bad treebanks, documents and frequency lists through the command line: the whole message, and nothing left behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_result import Run

import headscope
from headscope.errors import HeadscopeError
from headscope.statistics import glossary

GOOD = "1\tthe\tthe\tDET\t_\t_\t2\tdet\t_\t_\n2\tcat\tcat\tNOUN\t_\t_\t0\troot\t_\t_\n\n"
MEND = "Fix the line, or pass --lenient to leave such sentences out; run.json will count them."
DOCUMENT = "#begin document (a); part 000\na\t0\t0\tmat\t(1)\na\t0\t1\tcat\t(2)\na\t0\t2\tsat\t(1)\n\n#end document\n"


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
def test_a_malformed_sentence_is_refused_by_line_or_left_out(
    work_folder: Path, run: Run, text: str, starts: str
) -> None:
    (work_folder / "t.conllu").write_text(text + GOOD * 3)
    output = treebank(run, "t.conllu")
    assert output.status == 2
    assert output.error.startswith(starts)
    assert output.error.endswith(MEND)
    lenient = treebank(run, "t.conllu", "--lenient")
    assert lenient.status == 0, lenient.err
    record = json.loads((work_folder / "study" / "run.json").read_text())["treebank"]
    assert (record["used"], sum(record["malformed"].values())) == (3, 1)


def test_an_empty_treebank_is_reported(work_folder: Path, run: Run) -> None:
    (work_folder / "t.conllu").write_text("# nothing\n")
    output = treebank(run, "t.conllu")
    assert output.status == 2
    assert output.error.startswith("t.conllu: ")


def test_relations_too_rare_to_rank_and_sentences_of_one_word_are_no_error(
    work_folder: Path, run: Run
) -> None:
    (work_folder / "t.conllu").write_text("1\tcat\tcat\tNOUN\t_\t_\t0\troot\t_\t_\n\n" + GOOD)
    assert treebank(run, "t.conllu").status == 0
    rows = (work_folder / "study" / "relations.csv").read_text().splitlines()
    assert rows[1].startswith("all,dependent,encoder,,,,,,")
    assert "nan" not in "".join(rows).lower()


def test_unbalanced_brackets_are_refused_by_line_or_the_document_left_out(
    work_folder: Path, run: Run
) -> None:
    (work_folder / "c.conll").write_text(DOCUMENT.replace("(1)", "(1") + DOCUMENT)
    output = run("analyze", "bert", "--coreference", "c.conll", "--out", "study")
    assert output.status == 2
    assert output.error.startswith("c.conll:")
    assert (
        run("analyze", "bert", "--coreference", "c.conll", "--lenient", "--out", "study").status
        == 0
    )
    record = json.loads((work_folder / "study" / "run.json").read_text())["coreference"]
    assert record["documents"] == 1


def test_an_unknown_frequency_list_is_refused_before_a_model_is_loaded(
    work_folder: Path, run: Run
) -> None:
    output = run(
        "analyze", "no/such", "--corpus", "good.txt", "--frequency", "englisch", "--out", "study"
    )
    assert (output.status, output.error) == (
        2,
        "englisch: there is no such file here. Expected a file, or a frequency list that comes with headscope: "
        'english; did you mean "english"?',
    )


def test_without_any_data_the_command_says_what_it_wants(run: Run) -> None:
    output = run("analyze", "bert", "--out", "study")
    assert output.status == 2
    assert output.error == (
        "analyze requires texts. Expected --corpus FILE, --treebank FILE or --coreference FILE. "
        "For example: headscope analyze minilm --corpus wikipedia-pairs --pairs --out study."
    )


def test_a_control_model_without_requested_relations_is_refused(run: Run) -> None:
    output = run("analyze", "bert", "--corpus", "good.txt", "--control", "--out", "study")
    assert (output.status, output.error) == (
        2,
        "--control requires --treebank FILE. It has no effect otherwise.",
    )


def test_sentences_of_one_word_each_are_reported_to_hold_no_relation(
    work_folder: Path, run: Run
) -> None:
    (work_folder / "t.conllu").write_text("1\tcat\tcat\tNOUN\t_\t_\t0\troot\t_\t_\n\n" * 3)
    output = treebank(run, "t.conllu")
    assert (output.status, output.error) == (
        2,
        "t.conllu: none of 3 sentences has two related words. Expected a relation between two words somewhere.",
    )


def test_documents_without_an_antecedent_are_reported(work_folder: Path, run: Run) -> None:
    (work_folder / "c.conll").write_text(DOCUMENT.replace("sat\t(1)", "sat\t(3)"))
    output = run("analyze", "bert", "--coreference", "c.conll", "--out", "study")
    assert (output.status, output.error) == (
        2,
        "c.conll: no mention in 1 documents has an antecedent. Expected an entity that is mentioned twice.",
    )


@pytest.mark.parametrize(
    ("relations", "passed", "message"),
    [
        (
            {"mine": lambda sentence: []},
            True,
            'relations: the relation "mine" never occurs in 1 sentences.',
        ),
        (
            {"det": lambda sentence: [(0, 1)]},
            True,
            'relations: "det" is a relation of the treebank already. Give yours another name.',
        ),
        (
            {"mine": lambda sentence: [(0, 1)]},
            False,
            "relations: relations are found in parsed sentences. Give a treebank too.",
        ),
    ],
)
def test_relations_of_one_s_own_that_cannot_be_asked_are_refused(
    work_folder: Path, relations: dict[str, Any], passed: bool, message: str
) -> None:
    (work_folder / "t.conllu").write_text(GOOD)
    with pytest.raises(HeadscopeError) as error:
        headscope.analyze(
            "bert", texts=["the cat"], treebank=["t.conllu"] if passed else (), relations=relations
        )
    assert str(error.value) == message


def test_the_list_of_words_is_recorded(work_folder: Path, run: Run) -> None:
    (work_folder / "words.txt").write_text("the 5\ncat 2\n")
    assert (
        run(
            "analyze", "bert", "--corpus", "good.txt", "--frequency", "words.txt", "--out", "study"
        ).status
        == 0
    )
    record = json.loads((work_folder / "study" / "run.json").read_text())
    assert record["frequency"]["path"] == "words.txt"
    assert len(record["frequency"]["sha256"]) == 64
    assert set(record["options"]["statistics"]) <= set(glossary())


def test_documents_that_are_all_malformed_leave_nothing_to_ask(work_folder: Path, run: Run) -> None:
    (work_folder / "c.conll").write_text(DOCUMENT.replace("mat\t(1)", "mat\t(1"))
    output = run("analyze", "bert", "--coreference", "c.conll", "--lenient", "--out", "study")
    assert (output.status, output.error) == (
        2,
        "c.conll: no document could be used, 1 were malformed. Expected documents in CoNLL-2012 columns.",
    )


def test_an_unknown_way_to_join_pieces_is_refused(run: Run) -> None:
    output = run(
        "analyze", "bert", "--corpus", "good.txt", "--word-pooling", "last", "--out", "study"
    )
    assert (output.status, output.error) == (
        2,
        '--word-pooling must be first, max or mean, got "last".',
    )
