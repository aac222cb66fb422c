"""Whole studies of planted heads: each is called what it is, and no other head is called so."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import headscope
from headscope.model.attention_model import AttentionModel
from headscope.study.study import Study
from planted import planted

PLANTED = {
    "0.0": "uniform",
    "0.1": "previous",
    "1.0": "sat",
    "1.1": "dog",
    "2.0": "cat",
    "2.1": "block",
}
FILLERS = ["the", "on", "mat", ","]


def shuffled(draw: random.Random, *words: str) -> list[str]:
    text = [*words, *draw.choices(FILLERS, k=draw.randrange(5, 9))]
    draw.shuffle(text)
    return text


def sentences(count: int) -> list[headscope.Sentence]:
    """Every word depends on "sat", wherever it stands; "dog" is the rarest word, "cat" the next, and often the last."""
    draw = random.Random(0)
    actual = []
    for _ in range(count):
        words = tuple(shuffled(draw, "sat", "dog", "cat"))
        verb = words.index("sat")
        actual.append(
            headscope.Sentence(
                words, {"depends": [(i, verb) for i in range(len(words)) if i != verb]}
            )
        )
    return actual


def documents(count: int) -> str:
    """The mat is the cat, said before; the dog is another, nearer to it."""
    draw = random.Random(1)
    lines = []
    for number in range(count):
        words = [*shuffled(draw, "cat"), "dog", "mat"]
        marks = {words.index("cat"): "(1)", len(words) - 2: "(2)", len(words) - 1: "(1)"}
        lines.append(f"#begin document ({number}); part 000")
        lines += [f"{number}\t0\t{i}\t{word}\t{marks.get(i, '-')}" for i, word in enumerate(words)]
        lines += ["", "#end document"]
    return "\n".join(lines) + "\n"


def study_of(model: AttentionModel, folder: Path) -> Study:
    draw = random.Random(2)
    frequencies = ["the", "on", "sat", *(f"filler{i}" for i in range(600)), "mat", "cat"]
    (folder / "words.txt").write_text(
        "".join(f"{word} {9999 - i}\n" for i, word in enumerate(frequencies))
    )
    (folder / "documents.conll").write_text(documents(40))
    return headscope.analyze(
        model,
        texts=[(" ".join(shuffled(draw)), " ".join(shuffled(draw))) for _ in range(40)],
        sentences=sentences(60),
        coreference=folder / "documents.conll",
        frequency=folder / "words.txt",
    )


def roles_by_head(study: Study) -> dict[str, set[str]]:
    result: dict[str, set[str]] = {}
    for row in study.tables["roles"].itertuples():
        result.setdefault(f"{row.layer}.{row.head}", set()).add(row.role)
    return result


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return study_of(planted(roles=PLANTED), tmp_path_factory.mktemp("planted"))


@pytest.mark.parametrize(
    ("head", "role"),
    [
        ("0.0", "broad"),
        ("0.1", "previous token"),
        ("1.0", "depends"),
        ("1.1", "rare words"),
        ("2.0", "coreferential"),
        ("2.1", "block"),
    ],
)
def test_every_planted_head_is_called_what_it_is(study: Study, head: str, role: str) -> None:
    assert role in roles_by_head(study)[head]


@pytest.mark.parametrize(
    ("role", "heads"),
    [("depends", {"1.0"}), ("rare words", {"1.1"}), ("coreferential", {"2.0"}), ("block", {"2.1"})],
)
def test_no_other_head_is_called_so(study: Study, role: str, heads: set[str]) -> None:
    result = {head for head, roles in roles_by_head(study).items() if role in roles}
    assert result == heads


def test_the_relation_is_shown_by_its_head_always(study: Study) -> None:
    row = study.tables["relations"].query("direction == 'dependent'").iloc[0]
    assert (row["layer"], row["head"], row["accuracy"]) == (1, 0, 1.0)
    assert row["baseline"] < 0.4


def test_every_role_has_examples_of_both_kinds_where_there_are_any(study: Study) -> None:
    shown = study.tables["examples"]
    typical = shown[(shown["role"] == "depends") & (shown["kind"] == "typical")]
    assert len(typical) == 3
    assert set(typical["layer"]) == {1}
