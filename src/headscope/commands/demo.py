"""headscope demo: a real model over a corpus and a treebank, which of its heads matter, and one sentence to explore."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from headscope.commands._from_config import command
from headscope.commands._options import drawing_figures, say
from headscope.config.command_line import command_line_of
from headscope.config.demo import DemoConfig
from headscope.config.serve import ServeConfig
from headscope.config.shared import Run
from headscope.config.texts import TextData
from headscope.progress import progress

if TYPE_CHECKING:
    from headscope.study.study import Study

SENTENCE = (
    "The committee that reviewed the engineers' proposals thanked them, and the"
    " chairwoman said she would answer soon."
)
QUESTIONS = "questions.jsonl"
# Beginnings rather than whole paragraphs: the task is harder, so that fewer tokens show which heads matter.
PAIRS_ASKED, WORDS_ASKED = 200, 13


@command()
def demo(run: Run, data: TextData, config: DemoConfig) -> None:
    """What the 72 heads of all-MiniLM-L6-v2 attend to, which syntactic relations they follow, and which matter."""
    import headscope
    from headscope.api.check_paths import is_demo
    from headscope.atomic_dir import atomic_directory
    from headscope.report.write import write_into

    out = run.out
    assert out is not None
    with atomic_directory(out, overwrite=is_demo(out)) as folder:
        model = headscope.load("minilm", log=say)
        data = replace(
            data,
            corpus=["wikipedia-pairs"],
            treebank=["ewt-sample"],
            pairs=True,
            max_length=128,
        )
        with progress("minilm over Wikipedia and parsed sentences") as update:
            study = headscope.analyze(model, data, progress=update)
        write_questions(folder / QUESTIONS)
        with progress("heads ablated, one at a time") as update:
            importances = headscope.importance(
                model,
                task="retrieval",
                data=folder / QUESTIONS,
                by=("ablation", "gradient"),
                batch_size=64,
                progress=update,
            )
        _record_final_path(importances, out / QUESTIONS)
        study = study.merge(importances)
        study.record["command"] = run.typed
        study.record["pages"] = [{"title": "One sentence, all heads", "href": "look.html"}]
        with drawing_figures():
            write_into(study, folder)
        headscope.look(model, SENTENCE).save(folder / "look.html")
    say("to type other sentences and to switch heads off:")
    say(command_line_of(ServeConfig(study=[out]), arguments=("minilm",)))
    say("two pages to open in a browser:")
    typer.echo(
        f"{out / 'index.html'} shows what every head attends to, which heads follow syntactic relations, and which "
        "heads the model needs."
    )
    typer.echo(f"{out / 'look.html'} shows the attention of all 72 heads for one sentence.")


def write_questions(file: Path) -> None:
    """The bundled pairs as a task: which second paragraph follows the first? Both are given by their first words."""
    from headscope.data.bundled import corpus_path

    lines = Path(corpus_path("wikipedia-pairs")).read_text("utf-8").splitlines()
    with file.open("w", encoding="utf-8") as out:
        for pair in map(json.loads, lines[:PAIRS_ASKED]):
            question = {
                "id": pair["id"],
                "question": _first_words(pair["a"]),
                "context": _first_words(pair["b"]),
                "answers": {"text": [], "answer_start": []},
            }
            out.write(json.dumps(question, ensure_ascii=False) + "\n")


def _first_words(text: str) -> str:
    return " ".join(text.split()[:WORDS_ASKED])


def _record_final_path(study: Study, questions: Path) -> None:
    """Name the questions as they are named once the temporary directory has been renamed."""
    section = study.record["importance"]
    section["data"][0]["path"] = section["config"]["data"] = str(questions)
