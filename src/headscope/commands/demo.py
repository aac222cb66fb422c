"""headscope demo: a real model over a real corpus, which of its heads matter, and one sentence to click through."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import typer

from headscope.commands._from_config import command
from headscope.commands._options import drawing_figures, say
from headscope.config.command_line import command_line_of
from headscope.config.demo import DemoConfig
from headscope.config.serve import ServeConfig
from headscope.config.shared import Run
from headscope.config.texts import TextData
from headscope.progress import progress

SENTENCE = (
    "The committee that reviewed the engineers' proposals thanked them, and the"
    " chairwoman said she would answer soon."
)
QUESTIONS = "questions.jsonl"
QUESTIONS_USED = 64


@command()
def demo(run: Run, data: TextData, config: DemoConfig) -> None:
    """What the 72 heads of all-MiniLM-L6-v2 attend to over 500 pairs of Wikipedia paragraphs, and which matter."""
    import headscope
    from headscope.api.check_paths import is_demo
    from headscope.atomic_dir import atomic_directory
    from headscope.report.write import write_into

    out = run.out
    assert out is not None
    with atomic_directory(out, overwrite=is_demo(out)) as folder:
        model = headscope.load("minilm", log=say)
        data = replace(data, corpus=["wikipedia-pairs"], pairs=True, max_length=128)
        with progress("minilm over Wikipedia") as update:
            study = headscope.analyze(model, data, progress=update)
        _write_questions(folder / QUESTIONS)
        with progress("heads removed, one at a time") as update:
            importances = headscope.importance(
                model,
                task="retrieval",
                data=folder / QUESTIONS,
                by=("ablation", "gradient"),
                limit=QUESTIONS_USED,
                max_length=64,
                progress=update,
            )
        # The path after the directory has been renamed
        importances.record["importance"]["data"][0]["path"] = str(out / QUESTIONS)
        study = study.merge(importances)
        study.record["command"] = run.typed
        study.record["pages"] = [{"title": "One sentence, all heads", "href": "look.html"}]
        with drawing_figures():
            write_into(study, folder)
        headscope.look(model, SENTENCE).save(folder / "look.html")
    say(f"{out / 'look.html'} shows one sentence; to type others, and to switch heads off:")
    say(command_line_of(ServeConfig(study=[out]), arguments=("minilm",)))
    say("the report, to open in a browser:")
    typer.echo(out / "index.html")


def _write_questions(file: Path) -> None:
    """The bundled pairs as a task: of all second paragraphs, which one goes with the first?"""
    from headscope.data.bundled import corpus_path

    lines = Path(corpus_path("wikipedia-pairs")).read_text("utf-8").splitlines()
    with file.open("w", encoding="utf-8") as out:
        for pair in map(json.loads, lines):
            question = {"id": pair["id"], "question": pair["a"], "context": pair["b"]}
            question["answers"] = {"text": [], "answer_start": []}
            out.write(json.dumps(question, ensure_ascii=False) + "\n")
