"""Base class of `gate`, `learn_mask` and `compare_masks`: one training per target, and a study of all of them."""

from __future__ import annotations

import json
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import torch

from headscope.ablation.significance import resamples_for
from headscope.atomic_dir import atomic_directory
from headscope.config.option import record_options
from headscope.config.shared import Reading, Run, TaskData, no_log
from headscope.config.training import NewModelConfig, TrainingConfig
from headscope.data.encode import Counts
from headscope.errors import HeadscopeError
from headscope.learning.run_result import JudgedChanges, RunResult, RunResults
from headscope.learning.splits import read_splits
from headscope.masks.open_model import open_model
from headscope.model.attention_model import AttentionModel
from headscope.model.load import ModelSource, load
from headscope.model.new_model import Architecture, read_source
from headscope.model.pruning_record import PruningRecord
from headscope.model.reading import TextReading
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
from headscope.tasks import Judged, task_of
from headscope.tasks.inference import evaluate
from headscope.tasks.prepared import Prepared
from headscope.training.finetune import describe_epoch
from headscope.training.from_scratch import build_model
from headscope.training.learnable_edit import LearnableEdit
from headscope.training.loop import Diverged, LoopSettings, Training
from headscope.training.result import Divergence, EpochRecord
from headscope.training.resumable import (
    BEST,
    DIVERGED,
    STATE,
    Resumable,
    check_smaller_rate,
    write_divergence,
)

RESULT, HEADER = "result.json", "header.json"
# packages whose code determines the results
CODE = ("model", "data", "tasks", "masks", "training", "ablation", "pruning", "learning")
StudyWriter = Callable[[Study, Path], None]  # writes figures and page of a study into a directory
C = TypeVar("C", bound=TrainingConfig)


class TrainingTarget(Protocol):
    """The target of one training. Its name is also the name of the training's directory."""

    @property
    def name(self) -> str: ...


def write_nothing(study: Study, folder: Path) -> None:
    """Write no figures and no page."""


class LearningRuns(ABC, Generic[C]):
    """Trains a model for several targets, one after another.

    whole                          the intact model: before training
    train_on, select_on, report_on  the examples of the three splits
    can_reduce_rate                whether a run whose loss became NaN may be resumed with a smaller learning rate
    options_of_targets             options that may differ in a resumed run: they say only which trainings there are, or
                                   how results are shown
    """

    can_reduce_rate: ClassVar[bool] = False
    options_of_targets: ClassVar[tuple[str, ...]] = ()
    out: Path  # the final directory of the study; temporary if `run.out` is None

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
        splits = read_splits(self.task, data, trains=self.trains)
        self.labels = self.task.labels(splits.train or splits.report)
        self.texts: list[str] = []  # a new tokenizer is learned from them
        if self.scratch is not None:
            self.texts = [text for item in splits.train for text in item.texts]
        self.whole = self._open(run.seed, run)
        self.task.check(self.whole)
        self.whole.reading.check(self.whole.name)  # refuse now what cannot be saved after training
        self.train_on, self.select_on, self.report_on = (
            self.task.prepare(self.whole, items, max_length=data.max_length)
            if items
            else Prepared([], [], [], None, Counts())
            for items in (splits.train, splits.select, splits.report)
        )
        self.draws = resamples_for(self.task, len(splits.report))
        self.files = describe_files(splits.files)
        self.options = record_options(data, reading, run, config)
        excluded = self.options_of_targets
        self.header: Section = {
            "model": describe_model(self.whole)["sha256"],
            "reading": self.whole.reading.record(),
            "task": self._describe_task(),
            "data": self.files,
            "config": {k: value for k, value in self.options.items() if k not in excluded},
            "code": hash_code(*CODE),
            "versions": versions(),
        }
        self.prepare()

    def prepare(self) -> None:
        """Prepare what the subclass needs, and check its options: errors are raised before anything is trained."""

    @property
    def trains(self) -> bool:
        """Whether a train file is needed."""
        return True

    @abstractmethod
    def train(self, target: Any, folder: Path) -> RunResult:
        """Train for one target; writes its files into the folder."""

    @abstractmethod
    def study(self, results: RunResults, folder: Path) -> Study:
        """The study of all trainings. folder: holds a directory with the files of each training."""

    def check_results(self, results: RunResults, folder: Path) -> None:
        """Raise an error if no study can be made of the results; their files stay in the folder."""

    def _check_model(self) -> None:
        if not isinstance(self.model, AttentionModel):
            return
        if self.scratch is not None:
            raise HeadscopeError(
                "`from_scratch=True` requires the name or path of a model, got a loaded one"
            )
        if self.model.permanent_edits:
            raise HeadscopeError(
                f"{self.config.command} requires a model without edits, got one with {self.model.permanent_edits[0]!r}",
                fix="Load it again without edits",
            )

    def _open(self, seed: int, run: Run) -> AttentionModel:
        """The model before training. A model object that the user passed in is returned itself, not a copy."""
        torch.manual_seed(seed)  # determines new weights
        reading = replace(self.reading, open_special=False)  # concerns masks, not loading
        kind, labels = self.task.model_class, self.labels
        if self.scratch is None:
            return open_model(self.model, reading, run, model_class=kind, labels=labels)
        assert not isinstance(self.model, AttentionModel)
        source = read_source(self.model, run.revision, run.log)
        model = build_model(Architecture(source, kind, self.scratch, labels), self.texts, run)
        model.untrained = ()  # no warning about new parameters: they will be trained
        model.reading = model.reading.override(reading.pooling, reading.prompt)
        return model

    def open_to_train(self, seed: int) -> AttentionModel:
        """A new copy of the model before training, which may be changed."""
        model = self._open(seed, replace(self.run, log=no_log))
        return model.copy() if model is self.model else model

    def reload(
        self, source: str | Path, reading: TextReading, labels: Sequence[str] = ()
    ) -> AttentionModel:
        """Load another model for the same task, on the same device and in the same precision."""
        return load(
            source,
            model_class=self.task.model_class,
            labels=labels,
            device=str(self.whole.device),
            dtype=str(self.whole.model.dtype).removeprefix("torch."),
            reading=reading,
        )

    def start_training(
        self,
        model: AttentionModel,
        folder: Path,
        identity: Mapping[str, object],
        *,
        settings: LoopSettings | None = None,
        learned: LearnableEdit | None = None,
        frozen: bool = False,
    ) -> Resumable:
        """A training of the model, restored from its folder if it was started before.

        identity  what distinguishes this training from the others of the run, for the check of a resumed run
        learned   gates or a mask to train; with `frozen` without the weights
        """
        inputs = model, self.task, self.train_on, settings or self.settings
        training = Training(*inputs, learned=learned, frozen=frozen)
        header = {**self.header, **identity}
        resumable = Resumable(training, folder, header, may_slow=self.can_reduce_rate)
        resumable.restore(self.run.log)
        return resumable

    @cached_property
    def before(self) -> Judged:
        """Losses and scores of the intact model on the report split."""
        return evaluate(self.whole, self.task, self.report_on)

    def judge_changes(self, after: AttentionModel) -> JudgedChanges:
        """Columns of a table: results on the selection split, and changes from the intact model on the report split."""
        task, is_whole = self.task, after is self.whole
        reported = self.before if is_whole else evaluate(after, task, self.report_on)
        selected = evaluate(after, task, self.select_on)
        return {
            "selection_loss": float(selected.losses.mean()),
            "selection_metric": float(task.measure(selected.scores)[task.metrics[0]]),
            **changes(task, self.before, reported, self.draws),
        }

    def _describe_task(self) -> Section:
        """Name, columns and labels of the task. They are not in the config if the user passed a `Task` object."""
        task = self.task
        return {"task": task.name, "columns": task.columns, "labels": task.renamed}

    def describe_examples(self) -> PruningRecord:
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
        """A section of the run record: reading, task, data and metric, and `content`."""
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
        record: RunRecord = {**sections, "config": self.options, "durations": durations}
        return build_record(self.whole, record, command=self.run.typed, seed=self.settings.seed)

    def report_progress(self, name: str, done: int, total: int) -> None:
        """Report progress: the number of finished steps of the training with this name."""
        self.run.progress(done, total, f"{name}, steps")

    def log_epoch(self, name: str, epoch: EpochRecord, details: str) -> None:
        """Log an epoch. Call this after the state is saved, so that a logged epoch is never trained again."""
        self.run.log(f"{name}: {describe_epoch(epoch)}, {details}")

    def make_study(self, targets: Sequence[TrainingTarget], write: StudyWriter) -> Study:
        """Train for each target, and make the study; it is written if there is a `run.out`.

        Each training has a directory in `run.out`. In a resumed run, finished trainings are not repeated.
        """
        run, names = self.run, [target.name for target in targets]
        kept = [HEADER, DIVERGED, *names]
        with atomic_directory(
            run.out, overwrite=run.overwrite, resume=run.resume, keep=kept
        ) as folder:
            self.out = run.out or folder
            self._write_header(folder)
            try:
                results = {target.name: self._train_once(target, folder) for target in targets}
                self.check_results(results, folder)
            except BaseException as error:
                self._note_error(folder, error)
                raise
            for name in names:
                for file in (RESULT, STATE, BEST, DIVERGED):
                    (folder / name / file).unlink(missing_ok=True)
            (folder / HEADER).unlink()
            study = self.study(results, folder)
            if run.out is not None:
                write_tables(study, folder)
                write(study, folder)
        return study

    def _train_once(self, target: TrainingTarget, parent: Path) -> RunResult:
        """Train for a target unless its result is in its directory already; returns the result."""
        folder = parent / target.name
        if not (folder / RESULT).exists():
            folder.mkdir(exist_ok=True)
            rate = self.settings.learning_rate
            trained: RunResult = {**self.train(target, folder), "learning_rate": rate}
            (folder / RESULT).write_text(json.dumps(trained), "utf-8")
        result: RunResult = json.loads((folder / RESULT).read_text("utf-8"))
        return result

    def _write_header(self, folder: Path) -> None:
        """Check that the header equals the stored one of the run to resume, and write it.

        The learning rate may differ in one case: it may be smaller if the loss became NaN.
        """
        header, note = self.header, folder / DIVERGED
        if note.exists() and (folder / HEADER).exists():
            divergence: Divergence = json.loads(note.read_text("utf-8"))
            rate = json.loads((folder / HEADER).read_text("utf-8"))["config"]["learning_rate"]
            if rate == divergence["learning_rate"]:
                check_smaller_rate(self.settings.learning_rate, divergence)
                header = {**header, "config": {**header["config"], "learning_rate": rate}}
        check_or_write_header(folder / HEADER, header)
        (folder / HEADER).write_text(json.dumps(self.header), "utf-8")
        note.unlink(missing_ok=True)

    def _note_error(self, folder: Path, error: BaseException) -> None:
        """After an error: if nothing is finished, delete all files; else keep them.

        If the loss became NaN, also write a note that allows a smaller learning rate, and add the remedy to the error.
        """
        if not any((path / name).exists() for path in folder.iterdir() for name in (RESULT, STATE)):
            self.delete_trainings(folder)
        elif isinstance(error, Diverged) and self.can_reduce_rate:
            rate = self.settings.learning_rate
            write_divergence(error, rate, folder)
            if "`resume=True`" not in (error.fix or ""):
                smaller = f"a smaller `learning_rate` than {rate:g}"
                error.fix = f"What is done is kept: go on with `resume=True` and {smaller}"

    def delete_trainings(self, folder: Path) -> None:
        """Delete the header and the directories of all trainings."""
        (folder / HEADER).unlink(missing_ok=True)
        for path in folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
