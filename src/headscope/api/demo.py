"""The demo: heads of a real model on a corpus and a treebank, their importance, and a page of one sentence."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from headscope.api.analyze import analyze
from headscope.api.check_paths import is_demo
from headscope.api.importance import importance
from headscope.api.load import load
from headscope.api.look import look
from headscope.api.study_output import write_study
from headscope.atomic_dir import atomic_directory
from headscope.config.shared import Run
from headscope.config.texts import TextData
from headscope.data.bundled import corpus_path
from headscope.progress import progress
from headscope.study.study import Study

SENTENCE = (
    "The committee that reviewed the engineers' proposals thanked them, and the"
    " chairwoman said she would answer soon."
)
QUESTIONS = "questions.jsonl"
# Only the first words of each paragraph: the task is then hard enough for single heads to matter, and it is fast.
QUESTION_COUNT, QUESTION_WORDS = 200, 13


def demo(out: str | Path = "demo", *, limit: int = 200, run: Run | None = None) -> Study:
    """Analyse a real model on a bundled corpus and treebank, with the importance of its heads for a task.

    Parameters
    ----------
    out
        The directory to write: study, page and the page of one sentence. An earlier demo there is replaced.
    limit
        Number of pairs of paragraphs to analyse.
    run
        Further options; its `out` is not used.

    Returns
    -------
    Study
        The study; its page is `out`/index.html.

    Raises
    ------
    HeadscopeError
        If there is something else at `out`.

    Examples
    --------
    >>> study = headscope.demo("demo")  # doctest: +SKIP
    """
    folder = Path(out)
    options = replace(run or Run(), out=folder)
    with atomic_directory(folder, overwrite=is_demo(folder)) as temporary:
        study = measure_demo(temporary, options, TextData(limit=limit))
        with progress("drawing figures") as update:
            write_study(study, temporary, replace(options, progress=update))
    return study


def measure_demo(folder: Path, run: Run, data: TextData) -> Study:
    """The study of the demo. Its questions and the page of one sentence are written to `folder`.

    `folder` is temporary and is renamed to `run.out` afterwards.
    """
    assert run.out is not None
    model = load("minilm", log=run.log)
    corpus = replace(
        data, corpus=["wikipedia-pairs"], treebank=["ewt-sample"], pairs=True, max_length=128
    )
    with progress("minilm over Wikipedia and parsed sentences") as update:
        study = analyze(model, corpus, progress=update)
    write_questions(folder / QUESTIONS)
    with progress("examples evaluated, then heads ablated") as update:
        importances = importance(
            model,
            task="retrieval",
            data=folder / QUESTIONS,
            by=("ablation", "gradient"),
            batch_size=64,
            progress=update,
        )
    _record_final_path(importances, run.out / QUESTIONS)
    study = study.merge(importances)
    study.record["command"] = run.typed
    study.record["pages"] = [{"title": "One sentence, all heads", "href": "look.html"}]
    look(model, SENTENCE).save(folder / "look.html")
    return study


def write_questions(file: Path) -> None:
    """Write the bundled pairs as retrieval questions: which second paragraph belongs to the first?"""
    lines = Path(corpus_path("wikipedia-pairs")).read_text("utf-8").splitlines()
    with file.open("w", encoding="utf-8") as out:
        for pair in map(json.loads, lines[:QUESTION_COUNT]):
            question = {
                "id": pair["id"],
                "question": _first_words(pair["a"]),
                "context": _first_words(pair["b"]),
                "answers": {"text": [], "answer_start": []},
            }
            out.write(json.dumps(question, ensure_ascii=False) + "\n")


def _first_words(text: str) -> str:
    return " ".join(text.split()[:QUESTION_WORDS])


def _record_final_path(study: Study, questions: Path) -> None:
    """Record the path that the questions have after the temporary directory is renamed."""
    section = study.record["importance"]
    section["data"][0]["path"] = section["config"]["data"] = str(questions)
