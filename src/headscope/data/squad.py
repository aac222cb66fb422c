"""Questions about paragraphs, with the answers' places: SQuAD 1.1 and 2.0 files."""

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
    """answers: every annotator's (text, where it begins in the context); none where there is no answer (2.0)."""

    id: str
    text: str
    context: str
    answers: tuple[tuple[str, int], ...]
    where: str


def read_squad(path: str | Path) -> Iterator[Question]:
    """The questions of one file in order: SQuAD's own json, or a table with one question a line."""
    if suffix_of(path) == ".jsonl":
        yield from _read_table(path)
        return
    text = "\n".join(line for _, line in read_lines(path))
    try:
        articles = json.loads(text)["data"]
        for article in articles:
            for paragraph in article["paragraphs"]:
                for asked in paragraph["qas"]:
                    yield _question(asked, paragraph["context"], f"{path}: question {asked['id']}")
    except json.JSONDecodeError as cause:
        where = f"{path}:{cause.lineno}:{cause.colno}"
        raise HeadscopeError(f"not JSON: {cause.msg}", where=where, expected=LAYOUT) from cause
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as cause:
        raise HeadscopeError(
            f"not laid out as SQuAD ({reason(cause)})", where=path, expected=LAYOUT
        ) from cause


def _read_table(path: str | Path) -> Iterator[Question]:
    """Rows with id, question, context and answers ({text: […], answer_start: […]}, or a column for each)."""
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
            what, expected = f"no question ({reason(cause)})", "id, question, context and answers"
            raise HeadscopeError(what, where=record.where, expected=expected) from cause


def _question(asked: Mapping[str, Any], context: str, where: str) -> Question:
    name = str(asked["id"])
    given = [] if asked.get("is_impossible") else asked["answers"]
    answers = tuple((str(one["text"]), int(one["answer_start"])) for one in given)
    for said, start in answers:
        if context[start : start + len(said)] != said:
            raise HeadscopeError(
                f'the answer "{said[:40]}" does not stand at character {start} of its paragraph',
                where=where,
                expected="answer_start to count characters from 0",
            )
    return Question(name, str(asked["question"]), context, answers, where)
