"""What learning gates and learning masks share: the examples of three splits, the whole model, what is reported."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Protocol

import torch

from headscope.ablation.significance import resamples
from headscope.atomic_dir import drafted
from headscope.config.checks import check_count
from headscope.config.shared import Run
from headscope.config.training import ModelSizes
from headscope.data.encode import Counts
from headscope.data.held_out import BLOCK, check_held_out, is_held_out
from headscope.data.records import find_split
from headscope.errors import HeadscopeError
from headscope.model.attention_model import AttentionModel
from headscope.model.load import load
from headscope.pruning.pareto_front import changes
from headscope.study.journal import remember_run
from headscope.study.run_record import code_of, describe_files, describe_model, versions
from headscope.study.schema.record import Section
from headscope.tasks import Judged, Task
from headscope.tasks.base import Item, Prepared, check_apart, spread
from headscope.tasks.running import evaluate
from headscope.training.from_scratch import build_model
from headscope.training.loop import Diverged
from headscope.training.resumable import BEST, DIVERGED, STATE
from headscope.training.settings import Settings

FOUND, HEADER = "found.json", "header.json"
LOOKED_AT = 500  # examples of the split that is looked at after every epoch, at most
# packages that determine the numbers
CODE = ("model", "data", "tasks", "masks", "training", "ablation", "pruning", "learning")
HELD_OUT = 0.1  # of a corpus without splits: the share that is not learned from
Watcher = Callable[
    [str, int, int], None
]  # hears which aim is trained, and so many of so many steps


class Named(Protocol):
    """What one training is after; its name is that of its directory."""

    @property
    def name(self) -> str: ...


@dataclass(frozen=True)
class Source:
    """Where a model, a task and its examples come from, and how they are split.

    splits        the one that is looked at after every epoch, if any, and the one that is reported on
    limit         only so many training examples; report_limit: to report on
    trains        whether a train file is needed at all; without one there is only what is reported on
    scratch       how to begin with new weights, if so
    """

    model: str | Path
    task: Task
    data: str | Path
    splits: tuple[str | None, str] = ("dev:even", "dev:odd")
    limit: int | None = None
    report_limit: int | None = None
    max_length: int | None = None
    device: str = "auto"
    revision: str | None = None
    trains: bool = True
    scratch: ModelSizes | None = None
    pooling: str | None = None
    prompt: str | None = None

    def __post_init__(self) -> None:
        if self.report_limit is not None:
            check_count(self.report_limit, "`report_limit`")

    def read(self) -> tuple[list[Path], tuple[list[Item], list[Item], list[Item]]]:
        """The files, and the examples to learn from, to look at and to report on."""
        if not self.trains:
            file = find_split(self.data, self.splits[1], task=self.task.name)
            return [file], ([], [], self.task.items(file, self.splits[1], limit=self.report_limit))
        names = [split for split in ("train", *self.splits) if split is not None]
        files = [find_split(self.data, split, task=self.task.name) for split in names]
        if files[0] in files[1:]:
            if not self.task.is_free_of_labels:
                raise HeadscopeError(
                    "there is no train file",
                    where=self.data,
                    expected="a directory with a train file and a dev file",
                )
            return files[:1], self._held_out(files[0])
        limits = [self.limit, *([] if self.splits[0] is None else [LOOKED_AT]), self.report_limit]
        found = [
            self.task.items(file, split, limit=most)
            for file, split, most in zip(files, names, limits, strict=True)
        ]
        train, report = found[0], found[-1]
        select = found[1] if len(found) > 2 else []
        check_apart(select, report, "`report_on`")
        return sorted(set(files)), (train, select, report)

    def _held_out(self, file: Path) -> tuple[list[Item], list[Item], list[Item]]:
        """A corpus: one block of texts in ten is held out, half of it to look at and half to report on."""
        items = self.task.items(file, "train", limit=None)
        check_held_out(HELD_OUT, len(items), str(file))
        held = [place for place in range(len(items)) if is_held_out(place, HELD_OUT)]
        select = [items[place] for place in held if place % BLOCK < BLOCK // 2]
        report = [items[place] for place in held if place % BLOCK >= BLOCK // 2]
        train = [item for place, item in enumerate(items) if not is_held_out(place, HELD_OUT)]
        return (
            spread(train, self.limit, file),
            spread(select, LOOKED_AT, file),
            spread(report, self.report_limit, file),
        )


class Learning:
    """The examples and the whole model, ready for one training after another.

    verb      the command, as errors name it
    may_slow  whether what is left after a loss that is NaN may go on with a smaller learning rate
    """

    verb: ClassVar[str]
    may_slow: ClassVar[bool] = False
    out: Path

    def __init__(self, source: Source, settings: Settings, options: Any) -> None:
        self.source, self.task, self.settings, self.options = source, source.task, settings, options
        self.started = time.perf_counter()
        files, items = source.read()
        self.labels = self.task.labels(items[0] or items[2])
        self.texts = (
            [text for item in items[0] for text in item.texts] if source.scratch is not None else []
        )
        self.whole = self.loaded(settings.seed)
        self.task.check(self.whole)
        self.whole.reading.check(self.whole.name)  # what cannot be saved is not trained
        self.train_on, self.select_on, self.report_on = (
            self.task.prepare(self.whole, one, max_length=source.max_length)
            if one
            else Prepared([], [], [], None, Counts())
            for one in items
        )
        self.draws = None if self.task.mean_column is not None else resamples(len(items[2]), 0)
        self.files = describe_files(files)
        self.header: dict[str, Any] = {
            "model": describe_model(self.whole)["sha256"],
            "reading": self.whole.reading.record(),
            "task": self.task.name,
            "columns": self.task.columns,
            "labels": self.task.renamed,
            "data": self.files,
            "splits": list(source.splits),
            "scratch": None
            if source.scratch is None
            else {"sizes": source.scratch.sizes(), "vocabulary": source.scratch.vocabulary},
            "limit": source.limit,
            "report_limit": source.report_limit,
            "max_length": source.max_length,
            "options": asdict(options),
            "settings": asdict(settings),
            "code": code_of(*CODE),
            "versions": versions(),
        }

    def loaded(self, seed: int) -> AttentionModel:
        torch.manual_seed(seed)  # new weights follow from it
        how: Section = {
            "model_class": self.task.model_class,
            "labels": self.labels,
            "device": self.source.device,
            "revision": self.source.revision,
        }
        if self.source.scratch is None:
            return load(
                self.source.model, **how, pooling=self.source.pooling, prompt=self.source.prompt
            )
        found = build_model(
            self.source.model,
            self.source.scratch,
            self.texts,
            model_class=self.task.model_class,
            labels=self.labels,
            run=Run(device=self.source.device, revision=self.source.revision),
        )
        found.untrained = ()  # what is new is about to be trained
        found.reading = found.reading.overridden(self.source.pooling, self.source.prompt)
        return found

    @cached_property
    def before(self) -> Judged:
        """The whole model on the split that is reported on."""
        return evaluate(self.whole, self.task, self.report_on)

    def judged(self, after: AttentionModel) -> Section:
        """What was lost on the split that is reported on, as in the front of a search."""
        reported = (
            self.before if after is self.whole else evaluate(after, self.task, self.report_on)
        )
        chosen_on = evaluate(after, self.task, self.select_on)
        return {
            "selection_loss": float(chosen_on.losses.mean()),
            "selection_metric": float(self.task.measure(chosen_on.scores)[self.task.metrics[0]]),
            **changes(self.task, self.before, reported, self.draws),
        }

    def judged_as(self) -> Section:
        """On how many examples of which splits."""
        return {
            "task": self.task.name,
            "data": self.files,
            "trained_on": len(self.train_on.items),
            "selected_on": {"split": self.source.splits[0], "examples": len(self.select_on.items)},
            "reported_on": {"split": self.source.splits[1], "examples": len(self.report_on.items)},
            "unknown": asdict(self.report_on.counts.unknown),
        }

    def told(self) -> Section:
        """The header as a run record keeps it."""
        return {
            name: value
            for name, value in self.header.items()
            if name not in ("model", "code", "versions")
        }

    @contextmanager
    def each(
        self,
        aims: Sequence[Named],
        out: str | Path,
        *,
        overwrite: bool,
        resume: bool,
        train: Callable[[Any, Path], dict[str, Any]],
    ) -> Iterator[tuple[Path, list[dict[str, Any]]]]:
        """Train for each aim in a directory of its own in OUT; what each found. What is done is not repeated."""
        names = [aim.name for aim in aims]
        if len(set(names)) < len(names) or not names:
            raise HeadscopeError(
                "no aim, or one twice", where=self.verb, expected="different numbers, one or more"
            )
        self.out = Path(out)
        with drafted(
            out, overwrite=overwrite, resume=resume, kept=[HEADER, DIVERGED, *names]
        ) as folder:
            self._remember(folder)
            try:
                found = [self._found(aim, folder / aim.name, train) for aim in aims]
                self.check_found(found, folder)
            except BaseException as error:
                self._leave(folder, error)
                raise
            for name in names:
                for file in (FOUND, STATE, BEST, DIVERGED):
                    (folder / name / file).unlink(missing_ok=True)
            (folder / HEADER).unlink()
            yield folder, found

    def _found(
        self, aim: Named, place: Path, train: Callable[[Any, Path], dict[str, Any]]
    ) -> dict[str, Any]:
        if not (place / FOUND).exists():
            place.mkdir(exist_ok=True)
            found = {**train(aim, place), "learning_rate": self.settings.learning_rate}
            (place / FOUND).write_text(json.dumps(found), "utf-8")
        told: dict[str, Any] = json.loads((place / FOUND).read_text("utf-8"))
        return told

    def check_found(self, found: Sequence[dict[str, Any]], folder: Path) -> None:
        """Refuse what makes no study; `folder` is kept as it is."""

    def _remember(self, folder: Path) -> None:
        """Write down what run this is. After a loss that was NaN it is the same run with a smaller learning rate."""
        header, note = self.header, folder / DIVERGED
        if note.exists() and (folder / HEADER).exists():
            lost = json.loads(note.read_text("utf-8"))
            then = json.loads((folder / HEADER).read_text("utf-8"))["settings"]["learning_rate"]
            if then == lost["learning_rate"]:
                if self.settings.learning_rate >= then:
                    what = f"{lost['what']} with a rate of {then:g}"
                    raise HeadscopeError(what, where="`learning_rate`", expected="a smaller one")
                header = {**header, "settings": {**header["settings"], "learning_rate": then}}
        remember_run(folder / HEADER, header)
        (folder / HEADER).write_text(json.dumps(self.header), "utf-8")
        note.unlink(missing_ok=True)

    def _leave(self, folder: Path, error: BaseException) -> None:
        """What stays of a run that was stopped: nothing where nothing is done, else how it may go on."""
        if not any(
            (place / name).exists() for place in folder.iterdir() for name in (FOUND, STATE)
        ):
            self.forget(folder)
        elif isinstance(error, Diverged) and self.may_slow:
            rate = self.settings.learning_rate
            (folder / DIVERGED).write_text(
                json.dumps({"what": error.what, "learning_rate": rate}), "utf-8"
            )
            if "`resume=True`" not in (error.mend or ""):
                error.mend = f"What is done is kept: go on with `resume=True` and a smaller `learning_rate` than {rate:g}"

    def forget(self, folder: Path) -> None:
        """Nothing of it is worth keeping."""
        (folder / HEADER).unlink(missing_ok=True)
        for place in folder.iterdir():
            if place.is_dir():
                shutil.rmtree(place)


def told_by_aim(aims: Sequence[Named], found: Sequence[Section]) -> Section:
    """Of each training, as a run record keeps it."""
    by_name = {aim.name: one for aim, one in zip(aims, found, strict=True)}
    return {
        "epochs": {name: one["epochs"] for name, one in by_name.items()},
        "learning_rates": {name: one["learning_rate"] for name, one in by_name.items()},
        "notes": [one["note"] for one in found if one.get("note")],
        "diverged": {name: one["diverged"] for name, one in by_name.items() if "diverged" in one},
    }
