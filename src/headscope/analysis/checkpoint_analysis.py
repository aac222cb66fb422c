"""Analysis of every checkpoint of a training, on the same texts."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from headscope.analysis.analyze import analyze
from headscope.atomic_dir import atomic_directory, read_record
from headscope.config.analyze import AnalyzeConfig
from headscope.config.edit_record import mask_of_training
from headscope.config.option import record_options
from headscope.config.requirements import ANALYZE_MASK, without_effect
from headscope.config.shared import Reading, Run
from headscope.config.texts import TextData
from headscope.data.bundled import source_path
from headscope.data.text_lines import can_be_read_again
from headscope.errors import HeadscopeError
from headscope.study.inputs import Corpus, read_annotations
from headscope.study.journal import check_or_write_header
from headscope.study.run_record import describe_files, versions
from headscope.study.schema.record import Section
from headscope.study.study import Study
from headscope.study.study_dir import write_tables
from headscope.training.checkpoints import read_checkpoints
from headscope.training.result import RECORD

if TYPE_CHECKING:
    import pandas as pd

HEADER, DENSE = "header.json", "dense"
HEADS, ROLES = "film", "film_roles"  # names of the two tables with a column for the step


def analyze_checkpoints(
    trained: str | Path,
    config: AnalyzeConfig,
    data: TextData,
    reading: Reading,
    run: Run,
    write: Callable[[Study, Path], None],
) -> Study:
    """Analyse every checkpoint in TRAINED/checkpoints.

    Returns the study of the last checkpoint with two more tables: the statistics and the roles by step.

    write  writes the study with its page; called if there is a `run.out`
    """
    checkpoints = read_checkpoints(trained)
    options = record_options(config, data, reading, run)
    reading = _with_mask_of_training(Path(trained), reading, run)
    _check_files(data)
    weights = [file for _, path in checkpoints for file in sorted(path.glob("*.safetensors"))]
    header = {
        "config": options,
        "checkpoints": describe_files(weights),
        "corpus": describe_files(data.corpus),
        "treebank": describe_files(data.treebank),
        "coreference": describe_files(data.coreference),
        "mask": [reading.mask, reading.open_special],
        "versions": versions(),
    }
    step_config = replace(config, checkpoints=False)
    step_run = Run(seed=run.seed, device=run.device, dtype=run.dtype, progress=run.progress)
    names = [path.name for _, path in checkpoints]
    with atomic_directory(
        run.out, overwrite=run.overwrite, resume=run.resume, keep=[HEADER, *names]
    ) as folder:
        if (folder / HEADER).exists():
            check_or_write_header(folder / HEADER, header)
        for number, (step, path) in enumerate(checkpoints):
            if (folder / path.name / "run.json").exists():
                continue
            run.log(f"step {step} ({number + 1} of {len(checkpoints)})")
            study = analyze(path, step_config, data, reading, step_run)
            # The header is written after the first analysis, because before it there is nothing to resume.
            check_or_write_header(folder / HEADER, header)
            (folder / path.name).mkdir(exist_ok=True)
            write_tables(study, folder / path.name)
        study = combine([(step, Study(folder / path.name)) for step, path in checkpoints])
        study.record |= {
            "command": run.typed,
            "config": options,
            "film": _describe_training(Path(trained), [step for step, _ in checkpoints]),
        }
        study.record["model"]["name"] = str(trained)
        for name in names:
            shutil.rmtree(folder / name)
        (folder / HEADER).unlink()
        if run.out is not None:
            write(study, folder)
    return study


def _check_files(data: TextData) -> None:
    """Check the data files before any analysis. Every checkpoint reads them again, so a pipe is refused."""
    for file in [*data.corpus, *data.treebank, *data.coreference]:
        if not can_be_read_again(source_path(file)):
            expected = "a file: every checkpoint reads it"
            raise HeadscopeError("this can be read only once", where=file, expected=expected)
    if data.corpus:
        Corpus(data.corpus, (), data.pairs, data.column, data.limit)
    read_annotations(data)


def _with_mask_of_training(trained: Path, reading: Reading, run: Run) -> Reading:
    """`reading` with the mask for the checkpoints: the one that the user states, else the one of the training."""
    mask, open_special = reading.mask, reading.open_special
    if mask is None and (edit := mask_of_training(trained)) is not None:
        mask = str(edit.mask)
        open_special = open_special or edit.is_open_special
        described = f"{mask}{' with special tokens open' if open_special else ''}"
        run.log(f'under the mask of its training: {described} (without: `mask="dense"`)')
    if mask in (None, DENSE):
        if reading.open_special:
            raise without_effect("open_special", ANALYZE_MASK.requires)
        return replace(reading, mask=None)
    return replace(reading, mask=mask, open_special=open_special)


def _describe_training(trained: Path, steps: list[int]) -> Section:
    """Section of run.json: the training, the steps of its checkpoints, and the losses that it recorded."""
    measurements = read_record(trained, RECORD).get("moments", [])
    losses = [{name: row[name] for name in ("step", "loss", "accuracy")} for row in measurements]
    return {"trained": str(trained), "steps": steps, "losses": losses}


def combine(studies: list[tuple[int, Study]]) -> Study:
    """The last study, with two more tables: the statistics and the roles of all studies by step."""
    last = studies[-1][1]
    tables = {
        **last.tables,
        HEADS: _by_step([(step, study.heads) for step, study in studies]),
        ROLES: _by_step([(step, study.tables["roles"]) for step, study in studies]),
    }
    return Study(last.heads, last.maps, last.record.copy(), tables)


def _by_step(frames: list[tuple[int, pd.DataFrame]]) -> pd.DataFrame:
    import pandas as pd

    return pd.concat([frame.assign(step=step) for step, frame in frames], ignore_index=True)
