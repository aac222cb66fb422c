"""What `gate`, `learn_mask` and `compare_masks` share: three splits, the intact model, one run per target."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import torch

from headscope.ablation.significance import resamples_for
from headscope.atomic_dir import atomic_directory
from headscope.config.option import recorded
from headscope.config.shared import Reading, Run, TaskData, no_log
from headscope.config.training import NewModelConfig, TrainingConfig
from headscope.data.encode import Counts
from headscope.data.held_out import BLOCK, check_held_out, is_held_out
from headscope.data.records import find_split
from headscope.errors import HeadscopeError
from headscope.masks.open_model import open_model
from headscope.model.attention_model import AttentionModel
from headscope.model.load import ModelSource, load
from headscope.pruning.pareto_front import changes
from headscope.study.journal import check_or_write_header
from headscope.study.run_record import (
    build_record,
    describe_files,
    describe_model,
    hash_code,
    versions,
)
from headscope.study.schema.record import RunRecord, Section
from headscope.study.study import Study
from headscope.study.study_dir import write_tables
from headscope.tasks import Judged, Task, task_of
from headscope.tasks.base import Item, Prepared, check_apart, sample_evenly
from headscope.tasks.inference import evaluate
from headscope.training.from_scratch import build_model
from headscope.training.loop import Diverged, LoopSettings, Training
from headscope.training.resumable import BEST, DIVERGED, STATE, Resumable

RESULT, HEADER = "found.json", "header.json"
LOOKED_AT = 500  # largest number of examples that are evaluated after every epoch
# packages that determine the numbers
CODE = ("model", "data", "tasks", "masks", "training", "ablation", "pruning", "learning")
HELD_OUT = 0.1  # share of a corpus without splits that is not trained on
StudyWriter = Callable[[Study, Path], None]  # writes a study into a directory
Result = dict[str, Any]  # what one training found, as JSON
C = TypeVar("C", bound=TrainingConfig)


class TrainingTarget(Protocol):
    """The target of one training; its name is that of its directory."""

    @property
    def name(self) -> str: ...


def read_splits(
    task: Task, data: TaskData, *, trains: bool = True
) -> tuple[list[Path], tuple[list[Item], list[Item], list[Item]]]:
    """The files, and the examples to train on, to select on and to report on.

    trains  whether a train file is needed; without one there is only the split to report on
    """
    assert data.report_on is not None
    if not trains:
        file = find_split(data.data, data.report_on, task=task.name)
        return [file], ([], [], task.items(file, data.report_on, limit=data.report_limit))
    select_on = [] if data.select_on is None else [data.select_on]
    names = ["train", *select_on, data.report_on]
    limits = [data.limit, *[LOOKED_AT for _ in select_on], data.report_limit]
    files = [find_split(data.data, split, task=task.name) for split in names]
    if files[0] in files[1:]:
        if not task.is_free_of_labels:
            raise HeadscopeError(
                "there is no train file",
                where=data.data,
                expected="a directory with a train file and a dev file",
            )
        return files[:1], _hold_out(task, data, files[0])
    train, *select, report = (
        task.items(file, split, limit=limit)
        for file, split, limit in zip(files, names, limits, strict=True)
    )
    selected = select[0] if select else []
    check_apart(selected, report, "`report_on`")
    return sorted(set(files)), (train, selected, report)


def _hold_out(task: Task, data: TaskData, file: Path) -> tuple[list[Item], list[Item], list[Item]]:
    """A corpus: one block of texts in ten is held out, half of it to select on and half to report on."""
    items = task.items(file, "train", limit=None)
    check_held_out(HELD_OUT, len(items), str(file))
    held = [index for index in range(len(items)) if is_held_out(index, HELD_OUT)]
    select = [items[index] for index in held if index % BLOCK < BLOCK // 2]
    report = [items[index] for index in held if index % BLOCK >= BLOCK // 2]
    train = [item for index, item in enumerate(items) if not is_held_out(index, HELD_OUT)]
    return (
        sample_evenly(train, data.limit, file),
        sample_evenly(select, LOOKED_AT, file),
        sample_evenly(report, data.report_limit, file),
    )


class Learning(Generic[C]):
    """The examples and the intact model, ready for one training after another.

    can_reduce_rate   whether a run whose loss became NaN may be resumed with a smaller learning rate
    of_targets        options that say which trainings there are, or only how results are shown: a resumed run may
                      have others
    """

    can_reduce_rate: ClassVar[bool] = False
    of_targets: ClassVar[tuple[str, ...]] = ()
    out: Path  # the directory of the study; temporary if `run.out` is None

    def __init__(
        self, model: ModelSource, config: C, data: TaskData, reading: Reading, run: Run
    ) -> None:
        self.model, self.config, self.data = model, config, data
        self.reading, self.run = reading, run
        self.task = task_of(data)
        self.settings = LoopSettings.from_config(config, run.seed)
        self.scratch: NewModelConfig | None = None
        if isinstance(config, NewModelConfig) and config.from_scratch:
            self.scratch = config
        self.started = time.perf_counter()
        self._check_model()
        files, items = read_splits(self.task, data, trains=self.trains)
        self.labels = self.task.labels(items[0] or items[2])
        self.texts: list[str] = (
            [text for item in items[0] for text in item.texts] if self.scratch else []
        )
        self.whole = self._open(run.seed, run)
        self.task.check(self.whole)
        self.whole.reading.check(self.whole.name)  # what cannot be saved is not trained
        self.train_on, self.select_on, self.report_on = (
            self.task.prepare(self.whole, split, max_length=data.max_length)
            if split
            else Prepared([], [], [], None, Counts())
            for split in items
        )
        self.draws = resamples_for(self.task, len(items[2]))
        self.files = describe_files(files)
        self.options = recorded(data, reading, run, config)
        options = self.options.items()
        self.header: Section = {
            "model": describe_model(self.whole)["sha256"],
            "reading": self.whole.reading.record(),
            "task": self._describe_task(),
            "data": self.files,
            "config": {name: value for name, value in options if name not in self.of_targets},
            "code": hash_code(*CODE),
            "versions": versions(),
        }

    @property
    def trains(self) -> bool:
        """Whether a train file is needed."""
        return True

    def _check_model(self) -> None:
        if not isinstance(self.model, AttentionModel):
            return
        if self.scratch is not None:
            raise HeadscopeError(
                "`from_scratch=True` requires the name or path of a model, got a loaded one"
            )
        if self.model.worn:
            raise HeadscopeError(
                f"{self.config.command} requires a model without edits, got one with {self.model.worn[0]!r}",
                fix="Load it again without edits",
            )

    def _open(self, seed: int, run: Run) -> AttentionModel:
        """The model as it is before training; a model that was passed in is not copied."""
        torch.manual_seed(seed)  # determines new weights
        reading = replace(self.reading, open_special=False)  # for the masks, not for loading
        kind, labels = self.task.model_class, self.labels
        if self.scratch is None:
            return open_model(self.model, reading, run, model_class=kind, labels=labels)
        assert not isinstance(self.model, AttentionModel)
        model = build_model(
            self.model, self.scratch, self.texts, model_class=kind, labels=labels, run=run
        )
        model.untrained = ()  # new parameters are about to be trained
        model.reading = model.reading.overridden(reading.pooling, reading.prompt)
        return model

    def open_to_train(self, seed: int) -> AttentionModel:
        """The model with weights of its own, to be trained."""
        model = self._open(seed, replace(self.run, log=no_log))
        return model.copy() if model is self.model else model

    def reload(self, spec: str | Path, **how: Any) -> AttentionModel:
        """Another model for the same task, on the device and in the precision of this one."""
        kind, device = self.task.model_class, str(self.whole.device)
        dtype = str(self.whole.model.dtype).removeprefix("torch.")
        return load(spec, model_class=kind, device=device, dtype=dtype, **how)

    def resume_training(self, training: Training, target: Any, folder: Path) -> Resumable:
        """The training for a target, restored if it was begun. target: a dataclass."""
        run = Resumable(training, folder, {**self.header, "target": asdict(target)}, may_slow=True)
        run.restore(self.run.log)
        return run

    @cached_property
    def before(self) -> Judged:
        """The intact model on the split to report on."""
        return evaluate(self.whole, self.task, self.report_on)

    def judge_changes(self, after: AttentionModel) -> Section:
        """The changes on the split to report on, as in the front of a search."""
        task, is_whole = self.task, after is self.whole
        reported = self.before if is_whole else evaluate(after, task, self.report_on)
        chosen_on = evaluate(after, task, self.select_on)
        return {
            "selection_loss": float(chosen_on.losses.mean()),
            "selection_metric": float(self.task.measure(chosen_on.scores)[self.task.metrics[0]]),
            **changes(self.task, self.before, reported, self.draws),
        }

    def _describe_task(self) -> Section:
        """Name, columns and labels; a `Task` object may have columns that the config does not name."""
        task = self.task
        return {"task": task.name, "columns": task.columns, "labels": task.renamed}

    def describe_examples(self) -> Section:
        """Task, files, splits and numbers of examples."""
        return {
            "task": self.task.name,
            "data": self.files,
            "trained_on": len(self.train_on.items),
            "selected_on": {"split": self.data.select_on, "examples": len(self.select_on.items)},
            "reported_on": {"split": self.data.report_on, "examples": len(self.report_on.items)},
            "unknown": asdict(self.report_on.counts.unknown),
        }

    def section(self, content: Section) -> Section:
        """What was learned, for the run record: reading, task, data and metric, and `content`."""
        return {
            "reading": self.header["reading"],
            **self._describe_task(),
            "data": self.files,
            "splits": [self.data.select_on, self.data.report_on],
            "metric": self.task.metrics[0],
            **content,
        }

    def record(self, sections: RunRecord) -> RunRecord:
        """The run record with these sections, the config and the duration."""
        seconds = round(time.perf_counter() - self.started, 1)
        durations = {self.config.command: seconds}
        every: RunRecord = {**sections, "config": self.options, "durations": durations}
        return build_record(self.whole, every, command=self.run.typed, seed=self.settings.seed)

    def report_progress(self, name: str, done: int, total: int) -> None:
        """Report the steps of the training of this target."""
        self.run.progress(done, total, f"{name}, steps")

    @contextmanager
    def train_each(
        self, targets: Sequence[TrainingTarget], train: Callable[[Any, Path], Result]
    ) -> Iterator[tuple[Path, list[Result]]]:
        """Train for each target in a directory of its own in `run.out`; finished trainings are not repeated.

        Without `run.out` the directory is temporary.
        """
        names = [target.name for target in targets]
        with ExitStack() as stack:
            out = self.run.out
            if out is None:
                temporary = tempfile.TemporaryDirectory(prefix="headscope-")
                out = Path(stack.enter_context(temporary)) / "study"
            self.out = out
            overwrite, resume, kept = (
                self.run.overwrite,
                self.run.resume,
                [HEADER, DIVERGED, *names],
            )
            folder = stack.enter_context(
                atomic_directory(out, overwrite=overwrite, resume=resume, keep=kept)
            )
            self._write_header(folder)
            try:
                results = [
                    self._train_once(target, folder / target.name, train) for target in targets
                ]
                self.check_results(results, folder)
            except BaseException as error:
                self._leave(folder, error)
                raise
            for name in names:
                for file in (RESULT, STATE, BEST, DIVERGED):
                    (folder / name / file).unlink(missing_ok=True)
            (folder / HEADER).unlink()
            yield folder, results

    def write(self, study: Study, folder: Path, write: StudyWriter) -> None:
        """Write the study, unless there is no `run.out`."""
        if self.run.out is not None:
            write_tables(study, folder)
            write(study, folder)

    def _train_once(
        self, target: TrainingTarget, folder: Path, train: Callable[[Any, Path], Result]
    ) -> Result:
        if not (folder / RESULT).exists():
            folder.mkdir(exist_ok=True)
            result = {**train(target, folder), "learning_rate": self.settings.learning_rate}
            (folder / RESULT).write_text(json.dumps(result), "utf-8")
        read: Result = json.loads((folder / RESULT).read_text("utf-8"))
        return read

    def check_results(self, results: Sequence[Result], folder: Path) -> None:
        """Refuse results that make no study; `folder` is kept as it is."""

    def _write_header(self, folder: Path) -> None:
        """Write the header of the run. After a loss of NaN it is the same run with a smaller learning rate."""
        header, note = self.header, folder / DIVERGED
        if note.exists() and (folder / HEADER).exists():
            diverged = json.loads(note.read_text("utf-8"))
            rate = json.loads((folder / HEADER).read_text("utf-8"))["config"]["learning_rate"]
            if rate == diverged["learning_rate"]:
                if self.settings.learning_rate >= rate:
                    what = f"{diverged['what']} with a rate of {rate:g}"
                    raise HeadscopeError(what, where="`learning_rate`", expected="a smaller one")
                header = {**header, "config": {**header["config"], "learning_rate": rate}}
        check_or_write_header(folder / HEADER, header)
        (folder / HEADER).write_text(json.dumps(self.header), "utf-8")
        note.unlink(missing_ok=True)

    def _leave(self, folder: Path, error: BaseException) -> None:
        """After an error, keep what is finished and note how to resume; if nothing is finished, delete it all."""
        if not any((path / name).exists() for path in folder.iterdir() for name in (RESULT, STATE)):
            self.delete_trainings(folder)
        elif isinstance(error, Diverged) and self.can_reduce_rate:
            rate = self.settings.learning_rate
            note = {"what": error.what, "learning_rate": rate}
            (folder / DIVERGED).write_text(json.dumps(note), "utf-8")
            if "`resume=True`" not in (error.fix or ""):
                smaller = f"a smaller `learning_rate` than {rate:g}"
                error.fix = f"What is done is kept: go on with `resume=True` and {smaller}"

    def delete_trainings(self, folder: Path) -> None:
        """Delete the header and the directories of all trainings."""
        (folder / HEADER).unlink(missing_ok=True)
        for path in folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)


def by_name(targets: Sequence[TrainingTarget], results: Sequence[Result]) -> dict[str, Result]:
    """The results by the name of their target."""
    return {target.name: result for target, result in zip(targets, results, strict=True)}


def describe_trainings(results: Mapping[str, Result]) -> Section:
    """Epochs, learning rates and notes of each training, for the run record."""
    return {
        "epochs": {name: result["epochs"] for name, result in results.items()},
        "learning_rates": {name: result["learning_rate"] for name, result in results.items()},
        "notes": [result["note"] for result in results.values() if result.get("note")],
        "diverged": {name: r["diverged"] for name, r in results.items() if "diverged" in r},
    }
