"""SQuAD's files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headscope.data.squad import LAYOUT, Question, read_squad
from headscope.errors import HeadscopeError


def written(
    path: Path, *question_with: dict[str, Any], context: Any = "A cat sat. It slept."
) -> Path:
    content = {
        "version": "1.1",
        "data": [{"title": "t", "paragraphs": [{"context": context, "qas": list(question_with)}]}],
    }
    path.write_text(json.dumps(content), "utf-8")
    return path


def question_with(**changes: Any) -> dict[str, Any]:
    return {
        "id": "q1",
        "question": "Who?",
        "answers": [{"text": "A cat", "answer_start": 0}],
    } | changes


def test_questions_come_with_all_their_answers(tmp_path: Path) -> None:
    more = question_with(
        id="q2", answers=[{"text": "cat", "answer_start": 2}, {"text": "A cat", "answer_start": 0}]
    )
    none = question_with(id="q3", is_impossible=True, answers=[])
    plausible = question_with(id="q4", is_impossible=True)
    path = written(tmp_path / "x.json", question_with(), more, none, plausible)
    context = "A cat sat. It slept."
    assert list(read_squad(path)) == [
        Question("q1", "Who?", context, (("A cat", 0),), f"{path}: question q1"),
        Question("q2", "Who?", context, (("cat", 2), ("A cat", 0)), f"{path}: question q2"),
        Question("q3", "Who?", context, (), f"{path}: question q3"),
        Question("q4", "Who?", context, (), f"{path}: question q4"),
    ]


def test_a_file_over_many_lines_is_one_document(tmp_path: Path) -> None:
    path = written(tmp_path / "x.json", question_with())
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")), indent=1), "utf-8")
    assert [question.id for question in read_squad(path)] == ["q1"]


@pytest.mark.parametrize(
    ("question", "message"),
    [
        (
            question_with(answers=[{"text": "cat", "answer_start": 3}]),
            'x.json: question q1: the answer "cat" is not at character 3 of its paragraph. '
            "Expected answer_start to count characters from 0.",
        ),
        (
            question_with(answers=[{"text": "cat"}]),
            f'x.json: not laid out as SQuAD (key "answer_start" is missing). Expected {LAYOUT}.',
        ),
        (
            question_with(answers=[{"text": "cat", "answer_start": "two"}]),
            f"x.json: not laid out as SQuAD (invalid literal for int() with base 10: 'two'). Expected {LAYOUT}.",
        ),
        (
            {"id": "q1", "answers": []},
            f'x.json: not laid out as SQuAD (key "question" is missing). Expected {LAYOUT}.',
        ),
    ],
)
def test_a_bad_question_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, question: dict[str, Any], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    written(Path("x.json"), question)
    with pytest.raises(HeadscopeError) as error:
        list(read_squad("x.json"))
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"data": [', f"x.json:1:11: not JSON: Expecting value. Expected {LAYOUT}."),
        ('{\n"data": 1 1}', f"x.json:2:11: not JSON: Expecting ',' delimiter. Expected {LAYOUT}."),
        ("{}", f'x.json: not laid out as SQuAD (key "data" is missing). Expected {LAYOUT}.'),
        (
            '["a"]',
            f"x.json: not laid out as SQuAD (list indices must be integers or slices, not str). Expected {LAYOUT}.",
        ),
    ],
)
def test_a_broken_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.json").write_text(text, "utf-8")
    with pytest.raises(HeadscopeError) as error:
        list(read_squad("x.json"))
    assert str(error.value) == message
