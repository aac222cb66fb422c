"""Reads SQuAD 1.1 and 2.0 files: questions about paragraphs, with the positions of the answers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headscope.data.records import read_records
from headscope.data.text_lines import read_lines, suffix_of
from headscope.errors import HeadscopeError, reason

LAYOUT = "SQuAD's layout: data[].paragraphs[].{context, qas[].{id, question, answers}}"


@dataclass(frozen=True)
class Question:
    """answers: (text, start in the context) of each annotator; empty if the question has no answer (SQuAD 2.0)."""

    id: str
    text: str
    context: str
    answers: tuple[tuple[str, int], ...]
    where: str


def read_squad(path: str | Path) -> Iterator[Question]:
    """The questions of one file in order; the file is SQuAD's own json, or a jsonl table with one question per line."""
    if suffix_of(path) == ".jsonl":
        yield from _read_table(path)
        return
    text = "\n".join(line for _, line in read_lines(path))
    try:
        articles = json.loads(text)["data"]
        for article in articles:
            for paragraph in article["paragraphs"]:
                for question in paragraph["qas"]:
                    where = f"{path}: question {question['id']}"
                    yield _question(question, paragraph["context"], where)
    except json.JSONDecodeError as cause:
        where = f"{path}:{cause.lineno}:{cause.colno}"
        raise HeadscopeError(f"not JSON: {cause.msg}", where=where, expected=LAYOUT) from cause
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as cause:
        raise HeadscopeError(
            f"not laid out as SQuAD ({reason(cause)})", where=path, expected=LAYOUT
        ) from cause


def _read_table(path: str | Path) -> Iterator[Question]:
    """Questions from rows with id, question, context and answers: {text: […], answer_start: […]} or two columns."""
    for record in read_records(path):
        try:
            nested = record.cells.get("answers") or {
                name: record.cells[f"answers.{name}"] for name in ("text", "answer_start")
            }
            answers = [
                {"text": text, "answer_start": start}
                for text, start in zip(nested["text"], nested["answer_start"], strict=True)  # type: ignore[index]
            ]
            cells = record.cells | {"answers": answers}
            yield _question(cells, str(cells["context"]), record.where)
        except (KeyError, TypeError, ValueError) as cause:
            what, expected = (
                f"not a question ({reason(cause)})",
                "id, question, context and answers",
            )
            raise HeadscopeError(what, where=record.where, expected=expected) from cause


def _question(entry: Mapping[str, Any], context: str, where: str) -> Question:
    name = str(entry["id"])
    annotated = [] if entry.get("is_impossible") else entry["answers"]
    answers = tuple((str(answer["text"]), int(answer["answer_start"])) for answer in annotated)
    for text, start in answers:
        if context[start : start + len(text)] != text:
            raise HeadscopeError(
                f'the answer "{text[:40]}" is not at character {start} of its paragraph',
                where=where,
                expected="answer_start to count characters from 0",
            )
    return Question(name, str(entry["question"]), context, answers, where)
