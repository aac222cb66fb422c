"""film, the verb: what every head does at each checkpoint of a training, on the same texts."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headscope.analysis.analyze import analyze
from headscope.analysis.roles import Thresholds
from headscope.atomic_dir import drafted, read_record
from headscope.config.requirements import changed, check_effects
from headscope.config.worn import mask_of_training
from headscope.data.bundled import named
from headscope.data.examples import Column
from headscope.data.text_lines import can_be_read_again
from headscope.errors import HeadscopeError
from headscope.masks import Masked
from headscope.model.load import load
from headscope.study.inputs import Corpus, Files, listed, read_annotations
from headscope.study.journal import remember_run
from headscope.study.run_record import describe_files, versions
from headscope.study.study import Study
from headscope.study.study_dir import write_tables
from headscope.training.checkpoints import read_checkpoints
from headscope.training.result import RECORD

if TYPE_CHECKING:
    import pandas as pd

HEADER, DENSE = "header.json", "dense"
HEADS, ROLES = "film", "film_roles"  # the tables by step

Progress = Callable[[int, int], None]


def film(
    trained: str | Path,
    *,
    out: str | Path,
    corpus: Files = (),
    pairs: bool = False,
    column: Column = None,
    treebank: Files = (),
    statistics: Iterable[str] | None = None,
    max_length: int | None = None,
    batch_size: int = 32,
    limit: int | None = None,
    seed: int = 0,
    thresholds: Thresholds | Mapping[str, float] | None = None,
    mask: str | None = None,
    open_special: bool = False,
    device: str = "auto",
    resume: bool = False,
    overwrite: bool = False,
    report: Callable[[Study, Path], None] = lambda study, folder: None,
    command: str = "",
    progress: Progress = lambda done, total: None,
    say: Callable[[str], None] = lambda line: None,
) -> Study:
    """Analyse every checkpoint that `pretrain` or `finetune` left in TRAINED/checkpoints; returns the study written.

    corpus, pairs, column, treebank, statistics, limit, …   as for `analyze`, the same for every checkpoint
    mask     attend only where this mask lets (open_special: but for special tokens); where none is given, as in the
             training, and with "dense" everywhere
    resume   go on with the checkpoints that a killed run has not got to

    The study is that of the last checkpoint. Beside it stand film.csv, the table of heads with the column `step`, and
    film_roles.csv, the roles at each step.
    """
    thresholds = Thresholds(**thresholds) if isinstance(thresholds, Mapping) else thresholds
    given = {
        "trained": trained,
        "corpus": corpus,
        "treebank": treebank,
        "pairs": pairs,
        "column": column,
    }
    check_effects(
        "film",
        given
        | {
            "mask": mask,
            "open_special": open_special,
            "threshold": tuple(changed(thresholds or Thresholds())),
        },
    )
    found = read_checkpoints(trained)
    asked = None if statistics is None else list(statistics)
    worn = _worn(Path(trained), mask, open_special, say)
    _check(listed(corpus), listed(treebank), pairs, column, limit)
    options: dict[str, Any] = {
        "pairs": pairs,
        "column": column,
        "statistics": asked,
        "max_length": max_length,
        "batch_size": batch_size,
        "limit": limit,
        "seed": seed,
    }
    header = {
        "checkpoints": describe_files(
            file for _, place in found for file in sorted(place.glob("*.safetensors"))
        ),
        "corpus": describe_files(listed(corpus)),
        "treebank": describe_files(listed(treebank)),
        "versions": versions(),
        **options,
        "thresholds": None if thresholds is None else asdict(thresholds),
        "edits": [repr(edit) for edit in worn],
    }
    names = [place.name for _, place in found]
    with drafted(out, overwrite=overwrite, resume=resume, kept=[HEADER, *names]) as folder:
        if (folder / HEADER).exists():
            remember_run(folder / HEADER, header)
        for number, (step, place) in enumerate(found):
            if (folder / place.name / "run.json").exists():
                continue
            say(f"step {step} ({number + 1} of {len(found)})")
            study = analyze(
                lambda place=place: load(place, device=device).wear(*worn),  # type: ignore[misc]
                corpus=corpus,
                treebank=treebank,
                thresholds=thresholds,
                progress=progress,
                **options,
            )
            remember_run(folder / HEADER, header)  # now there is something to go on with
            (folder / place.name).mkdir(exist_ok=True)
            write_tables(study, folder / place.name)
        study = joined([(step, Study(folder / place.name)) for step, place in found])
        study.record |= {
            "command": command,
            "film": _described(Path(trained), [step for step, _ in found]),
        }
        study.record["model"]["name"] = str(trained)
        for name in names:
            shutil.rmtree(folder / name)
        (folder / HEADER).unlink()
        write_tables(study, folder)
        report(study, folder)
    return study


def _check(
    corpus: list[str | Path],
    treebank: list[str | Path],
    pairs: bool,
    column: Column,
    limit: int | None,
) -> None:
    """Refuse at once what the first analysis would refuse, and what cannot be read once for every checkpoint."""
    for file in [*corpus, *treebank]:
        if not can_be_read_again(named(file)):
            raise HeadscopeError(
                "this can be read only once",
                where=file,
                expected="a file: every checkpoint reads it",
            )
    if corpus or not treebank:
        Corpus(corpus, (), pairs, column, limit)
    read_annotations(treebank=treebank)


def _worn(
    trained: Path, mask: str | None, open_special: bool, say: Callable[[str], None]
) -> list[Masked]:
    """The mask that is asked for, or else the one of the training."""
    if mask is None:
        if (trained_under := mask_of_training(trained)) is None:
            return []
        mask, was_open = trained_under
        open_special = open_special or was_open
        told = f"{mask}{' with special tokens open' if open_special else ''}"
        say(f'under the mask of its training: {told} (without: `mask="dense"`)')
    return [] if mask == DENSE else [Masked(mask, open_special=open_special)]


def _described(trained: Path, steps: list[int]) -> dict[str, Any]:
    """For run.json: what was filmed, and the losses that its training wrote down on the way."""
    moments = read_record(trained, RECORD).get("moments", [])
    losses = [{name: one[name] for name in ("step", "loss", "accuracy")} for one in moments]
    return {"trained": str(trained), "steps": steps, "losses": losses}


def joined(studies: list[tuple[int, Study]]) -> Study:
    """The last study, with the heads and the roles of all in tables by step."""
    last = studies[-1][1]
    tables = {
        **last.tables,
        HEADS: _by_step([(step, study.heads) for step, study in studies]),
        ROLES: _by_step([(step, study.tables["roles"]) for step, study in studies]),
    }
    return Study(last.heads, last.maps, dict(last.record), tables)


def _by_step(frames: list[tuple[int, pd.DataFrame]]) -> pd.DataFrame:
    import pandas as pd

    return pd.concat([frame.assign(step=step) for step, frame in frames], ignore_index=True)
