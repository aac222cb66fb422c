"""headscope demo: a real model over a real corpus, which of its heads matter, and one sentence to click through."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from headscope.commands._app import app
from headscope.commands._options import drawing_figures, say, typed
from headscope.config.command_line import command_line
from headscope.progress import progress

SENTENCE = (
    "The committee that reviewed the engineers' proposals thanked them, and the"
    " chairwoman said she would answer soon."
)

QUESTIONS = "questions.jsonl"
QUESTIONS_ASKED = 64


@app.command()
def demo(
    out: Annotated[
        Path, typer.Option(help="The directory to write into; a former demo is replaced")
    ] = Path("demo"),
    limit: Annotated[int, typer.Option(help="Pairs of paragraphs to read")] = 500,
) -> None:
    """What the 72 heads of all-MiniLM-L6-v2 attend to over 500 pairs of Wikipedia paragraphs, and which matter."""
    import headscope
    from headscope.api.check_paths import is_demo
    from headscope.atomic_dir import atomic_directory
    from headscope.model.load import load
    from headscope.report.write import write_into

    with atomic_directory(out, overwrite=is_demo(out)) as folder:
        model = load("minilm", say=say)
        with progress("minilm over Wikipedia") as update:
            study = headscope.analyze(
                model,
                corpus=["wikipedia-pairs"],
                pairs=True,
                max_length=128,
                limit=limit,
                progress=update,
            )
        _write_questions(folder / QUESTIONS)
        with progress("heads removed, one at a time") as update:
            which = headscope.importance(
                model,
                task="retrieval",
                data=folder / QUESTIONS,
                by=("ablation", "gradient"),
                limit=QUESTIONS_ASKED,
                max_length=64,
                progress=update,
            )
        which.record["importance"]["data"][0]["path"] = str(out / QUESTIONS)  # where it will be
        study = study.merge(which)
        study.record["command"] = typed()
        study.record["pages"] = [{"title": "One sentence, all heads", "href": "look.html"}]
        with drawing_figures():
            write_into(study, folder)
        headscope.look(model, SENTENCE).save(folder / "look.html")
    say(f"{out / 'look.html'} shows one sentence; to type others, and to switch heads off:")
    say(command_line("serve", "minilm", study=out))
    say("the report, to open in a browser:")
    typer.echo(out / "index.html")


def _write_questions(file: Path) -> None:
    """The bundled pairs as a task: of all second paragraphs, which one goes with the first?"""
    from headscope.data.bundled import named

    lines = Path(named("wikipedia-pairs")).read_text("utf-8").splitlines()
    with file.open("w", encoding="utf-8") as out:
        for pair in map(json.loads, lines):
            asked = {"id": pair["id"], "question": pair["a"], "context": pair["b"]}
            out.write(
                json.dumps(
                    asked | {"answers": {"text": [], "answer_start": []}}, ensure_ascii=False
                )
                + "\n"
            )
