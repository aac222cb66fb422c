"""masks compare, the verb: what a task loses under each mask, straight away, after a repair, and trained so."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from headscope.ablation.significance import students_interval
from headscope.config.requirements import changed, check_effects
from headscope.data.encode import Sequence as Encoded
from headscope.errors import HeadscopeError
from headscope.heads import Site
from headscope.learning.learning_runs import Learning, Source, Watcher
from headscope.masks import Mask, Masked, met, read_mask
from headscope.masks.mask_spec import files_of, seeded
from headscope.model.attention_model import AttentionModel
from headscope.model.load import load
from headscope.model.weights_hash import weights_sha256
from headscope.pruning.pareto_front import changes
from headscope.study.run_record import build_record, describe_files
from headscope.study.schema.record import RunRecord
from headscope.study.schema.tables import TABLES
from headscope.study.study import Study
from headscope.study.study_dir import write_tables
from headscope.tables import to_frame
from headscope.tasks import Judged, Task, task_named
from headscope.tasks.running import evaluate
from headscope.training.loop import Training
from headscope.training.resumable import Resumable
from headscope.training.settings import Settings

if TYPE_CHECKING:
    import pandas as pd

INTACT = "dense"
NAMED = (
    "no-diagonal",
    "random:drop=1",
    "strided",
    "fixed",
    "longformer",
    "logsparse",
    "bigbird",
    "star",
)
MODES = ("straight", "repaired", "from start")
JUDGED = "judged.npz"


@dataclass(frozen=True)
class Case:
    """One model under one mask. seed: of the training, and of masks that are drawn by chance."""

    mode: str
    mask: str
    seed: int
    number: int  # a mask's name may not do as that of a directory

    @property
    def name(self) -> str:
        return f"{self.mode.replace(' ', '-')}-{self.number}-seed-{self.seed}"

    @property
    def drawn(self) -> str:
        """The mask as it is read: one by chance is another for every seed."""
        return seeded(self.mask, self.seed)


@dataclass(frozen=True)
class MaskTableOptions:
    """repair: so many epochs of training under the mask; start: a model that is trained under it from the start."""

    masks: tuple[str, ...] = NAMED
    seeds: tuple[int, ...] = (0,)
    repair: int = 0
    start: str | None = None
    open_special: bool = False


def compare_masks(
    model: str | Path,
    *,
    task: str | Task,
    data: str | Path,
    out: str | Path,
    options: MaskTableOptions | None = None,
    settings: Settings | None = None,
    report_on: str = "dev",
    report_limit: int | None = None,
    columns: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    max_length: int | None = None,
    limit: int | None = None,
    device: str = "auto",
    revision: str | None = None,
    pooling: str | None = None,
    prompt: str | None = None,
    resume: bool = False,
    overwrite: bool = False,
    report: Callable[[Study, Path], None] = lambda study, folder: None,
    command: str = "",
    watch: Watcher = lambda name, done, total: None,
    say: Callable[[str], None] = lambda line: None,
) -> Study:
    """Judge a model under each mask; returns the study that is written.

    options   which masks, how many seeds, whether and how models are trained under them
    settings  of the trainings; its epochs are those from the start, a repair's are in the options
    limit     only so many training examples

    Every change is that from the same training without a mask, with the same seed, on the same examples.
    """
    options = options or MaskTableOptions()
    chosen = task_named(task, columns=columns, labels=labels) if isinstance(task, str) else task
    given: dict[str, Any] = {
        "task": chosen,
        "pooling": pooling,
        "prompt": prompt,
        "limit": limit,
        "mask": options.masks,
    }
    given |= {
        "repair": options.repair,
        "start": options.start,
        "seeds": ",".join(map(str, options.seeds)),
    }
    check_effects("masks compare", given | changed(settings or Settings()))
    trains = bool(options.repair or options.start)
    source = Source(
        model,
        chosen,
        data,
        (None, report_on),
        limit,
        report_limit,
        max_length,
        device,
        revision,
        trains,
        pooling=pooling,
        prompt=prompt,
    )
    run = _MaskTable(source, settings or Settings(), options)
    cases = run.cases()

    def train(case: Case, place: Path) -> dict[str, Any]:
        found = run.judge(case, place, watch)
        say(
            f"{case.mode}, {case.drawn}, seed {case.seed}: {chosen.metrics[0]} {found['metric']:.4f}"
        )
        return found

    with run.each(cases, out, overwrite=overwrite, resume=resume, train=train) as (folder, _):
        study = run.study(cases, folder, command)
        for case in cases:
            (folder / case.name / JUDGED).unlink()
            (folder / case.name).rmdir()
        write_tables(study, folder)
        report(study, folder)
    return study


class _MaskTable(Learning):
    verb = "masks compare"
    options: MaskTableOptions

    def __init__(self, source: Source, settings: Settings, options: MaskTableOptions) -> None:
        for name in options.masks:
            read_mask(name)  # refused before a model is loaded
        twice = next((name for name in options.masks if options.masks.count(name) > 1), None)
        if twice is not None:
            raise HeadscopeError(
                f"{twice} is named twice", where="`mask`", expected="each mask once"
            )
        if options.repair < 0:
            raise HeadscopeError(f"{options.repair} epochs", where="`repair`", expected="0 or more")
        super().__init__(source, settings, options)
        files = sorted({file for name in options.masks for file in files_of(name)})
        self.header["mask_files"] = describe_files(files)
        if options.start is not None:
            self.header["start"] = weights_sha256(
                self._begun(options.start, settings.seed)
            )  # refused before all else

    def cases(self) -> list[Case]:
        """The whole model first in every mode: the others are compared with it."""
        names = [INTACT, *(name for name in self.options.masks if name != INTACT)]
        found = []
        for mode in self._modes():
            for seed in self.options.seeds:
                for number, name in enumerate(names):
                    by_chance = Case(mode, name, seed, number).drawn != name
                    if mode == "straight" and seed != self.options.seeds[0] and not by_chance:
                        continue  # nothing is trained: every seed is the same
                    found.append(Case(mode, name, seed, number))
        return found

    def _modes(self) -> list[str]:
        wanted = {
            "straight": True,
            "repaired": self.options.repair > 0,
            "from start": self.options.start is not None,
        }
        return [mode for mode in MODES if wanted[mode]]

    def judge(self, case: Case, place: Path, watch: Watcher) -> dict[str, Any]:
        """One model under one mask on the split that is reported on, trained before or not."""
        model = self._model(case)
        if case.mask != INTACT:
            model.wear(Masked(case.drawn, open_special=self.options.open_special))
        if case.mode != "straight":
            epochs = self.options.repair if case.mode == "repaired" else self.settings.epochs
            settings = replace(self.settings, seed=case.seed, epochs=epochs)
            run = Resumable(
                Training(model, self.task, self.train_on, settings),
                place,
                {**self.header, "case": case.name},
            )
            run.restore()
            for step in run.steps():
                watch(case.name, step.number, step.total)
        judged = evaluate(model, self.task, self.report_on)
        np.savez(place / JUDGED, losses=judged.losses, scores=judged.scores)
        return {"metric": float(self.task.measure(judged.scores)[self.task.metrics[0]])}

    def _model(self, case: Case) -> AttentionModel:
        if case.mode != "from start":
            return self.loaded(case.seed)
        assert self.options.start is not None
        return self._begun(self.options.start, case.seed)

    def _begun(self, start: str, seed: int) -> AttentionModel:
        torch.manual_seed(seed)
        return load(
            start,
            model_class=self.task.model_class,
            labels=self.labels,
            device=self.source.device,
            reading=self.whole.reading,
        )

    def study(self, cases: Sequence[Case], folder: Path, command: str) -> Study:

        held = {case: self._judged(folder / case.name) for case in cases}
        special = self.whole.marks.special if self.options.open_special else frozenset()
        rows = []
        for case in cases:
            seed = self.options.seeds[0] if case.mode == "straight" else case.seed
            intact = held[Case(case.mode, INTACT, seed, 0)]
            share = forbidden_share(
                read_mask(case.drawn), self.report_on.sequences, self.whole.sites, special
            )
            rows.append(
                {
                    "mode": case.mode,
                    "mask": case.mask,
                    "seed": case.seed,
                    "sparsity": share,
                    **changes(self.task, intact, held[case], self.draws),
                }
            )
        table = TABLES["mask_runs"].frame(rows)
        seconds = round(time.perf_counter() - self.started, 1)
        sections: RunRecord = {
            "mask_table": {**self.told(), **self.judged_as(), "metric": self.task.metrics[0]},
            "durations": {"masks compare": seconds},
        }
        record = build_record(self.whole, sections, command=command, seed=self.settings.seed)
        return Study(
            to_frame([]), {}, record, {"mask_runs": table, "mask_table": over_seeds(table)}
        )

    def _judged(self, place: Path) -> Judged:
        with np.load(place / JUDGED) as held:
            return Judged(held["losses"], held["scores"])


def forbidden_share(
    mask: Mask,
    sequences: Sequence[Encoded],
    sites: Sequence[Site],
    special: frozenset[int] = frozenset(),
) -> float:
    """The share of all attention within these texts that a mask forbids; in a decoder, of what is not later.

    special  tokens that see everything and are seen by all, whatever the mask says
    """
    own = [site for site in sites if site.stack in ("encoder", "decoder")]
    where = (
        own
        if mask.per != "model"
        else [next(site for site in own if site.stack == s) for s in _stacks(own)]
    )
    open_ = total = 0.0
    for site in where:
        is_causal = site.stack == "decoder"
        for (size, opened), count in Counter(
            _shape(one, is_causal, special) for one in sequences
        ).items():
            allowed = mask.at(size, site).clone()
            allowed[:, list(opened)] = True
            allowed[:, :, list(opened)] = True
            allowed = met(allowed, is_causal=is_causal)
            open_ += count * float(allowed.double().mean(dim=0).sum())
            total += count * (size * (size + 1) / 2 if is_causal else size**2)
    return 1.0 - open_ / total


def _stacks(sites: Sequence[Site]) -> list[str]:
    return list(dict.fromkeys(site.stack for site in sites))


def _shape(
    sequence: Encoded, is_causal: bool, special: frozenset[int]
) -> tuple[int, tuple[int, ...]]:
    """How long a text is, and where its special tokens are."""
    side = sequence.target if is_causal and sequence.target is not None else sequence.source
    return len(side.ids), tuple(place for place, token in enumerate(side.ids) if token in special)


def over_seeds(table: pd.DataFrame) -> pd.DataFrame:
    """One row a mode and mask: means over seeds; of one seed the paired interval, of several Student's over them."""

    rows = []
    for (mode, mask), part in table.groupby(["mode", "mask"], sort=False):
        count = part["seed"].nunique()
        change = part["metric_change"]
        low, high = float(part["change_low"].iloc[0]), float(part["change_high"].iloc[0])
        if count > 1:
            low, high = students_interval(change.to_numpy())
        rows.append(
            {
                "mode": mode,
                "mask": mask,
                "seeds": count,
                "sparsity": part["sparsity"].mean(),
                "metric": part["metric"].mean(),
                "metric_change": change.mean(),
                "change_low": low,
                "change_high": high,
                "loss": part["loss"].mean(),
                "loss_change": part["loss_change"].mean(),
            }
        )
    return TABLES["mask_table"].frame(rows)
