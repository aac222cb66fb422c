"""headscope demo: a real model over a real corpus, and one sentence to click through."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headscope.commands import app
from headscope.commands._options import progress, say, typed

SENTENCE = (
    "The committee that reviewed the engineers' proposals thanked them, and the chairwoman said she would answer soon."
)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="The directory to write into; a former demo is replaced")] = Path("demo"),
    limit: Annotated[int, typer.Option(help="Pairs of paragraphs to read")] = 500,
) -> None:
    """What the 72 heads of all-MiniLM-L6-v2 attend to over 500 pairs of Wikipedia paragraphs, in minutes."""
    from headscope.drafts import drafted
    from headscope.model.load import load
    from headscope.report.looking import look
    from headscope.report.publish import fill
    from headscope.study.analyze import analyze

    with drafted(out, overwrite=_is_demo(out)) as folder:
        model = load("minilm", say=say)
        with progress("minilm over Wikipedia") as update:
            study = analyze(model, corpus=["wikipedia-pairs"], pairs=True, max_length=128, limit=limit, progress=update)
        study.record["command"] = typed()
        study.record["pages"] = [{"title": "One sentence, all heads", "href": "look.html"}]
        say("drawing figures")
        fill(study, folder)
        look(model, SENTENCE).save(folder / "look.html")
    say(f"{out / 'look.html'} shows one sentence; to type others, and to switch heads off:")
    say(f"headscope serve minilm --study {out}")
    say("the study, to open in a browser:")
    typer.echo(out / "index.html")


def _is_demo(out: Path) -> bool:
    """Whether what is there was made by this command: another study is not replaced."""
    from headscope.drafts import read_record

    return str(read_record(out).get("command", "")).startswith("headscope demo")
