"""What a task loses under each mask: applied to the model, after a repair, and trained under it from the start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from headscope.ablation.significance import students_interval
from headscope.config.compare_masks import CompareMasksConfig
from headscope.config.shared import Reading, Run, TaskData
from headscope.data.encode import Sequence as Encoded
from headscope.heads import Site
from headscope.learning.learning_runs import Learning, Result, StudyWriter
from headscope.masks import Mask, Masked, read_mask, resolve_mask
from headscope.masks.mask_spec import add_seed, files_of
from headscope.model.attention_model import AttentionModel
from headscope.model.load import ModelSource
from headscope.model.weights_hash import weights_sha256
from headscope.pruning.pareto_front import changes
from headscope.study.run_record import describe_files
from headscope.study.schema.tables import TABLES
from headscope.study.study import Study
from headscope.tables import to_frame
from headscope.tasks import Judged
from headscope.tasks.inference import evaluate
from headscope.training.loop import Training
from headscope.training.resumable import Resumable

if TYPE_CHECKING:
    import pandas as pd

INTACT = "dense"
MODES = ("straight", "repaired", "from start")
JUDGED = "judged.npz"


@dataclass(frozen=True)
class Case:
    """One model under one mask. seed: that of the training and of randomly drawn masks."""

    mode: str
    mask: str
    seed: int
    number: int  # a mask's name may not be a valid name of a directory

    @property
    def name(self) -> str:
        return f"{self.mode.replace(' ', '-')}-{self.number}-seed-{self.seed}"

    @property
    def drawn(self) -> str:
        """The mask with its seed: a randomly drawn one differs between seeds."""
        return add_seed(self.mask, self.seed)


def compare_masks(
    model: ModelSource,
    config: CompareMasksConfig,
    data: TaskData,
    reading: Reading,
    run: Run,
    write: StudyWriter = lambda study, folder: None,
) -> Study:
    """Evaluate a model under each mask. write: writes figures and page into the study's directory.

    Every change is relative to the same training without a mask, with the same seed, on the same examples.
    """
    comparison = _MaskComparison(model, config, data, reading, run)
    cases = comparison.cases()
    with comparison.train_each(cases, comparison.judge) as (folder, _):
        study = comparison.study(cases, folder)
        for case in cases:
            (folder / case.name / JUDGED).unlink()
            (folder / case.name).rmdir()
        comparison.write(study, folder, write)
    return study


class _MaskComparison(Learning[CompareMasksConfig]):
    """The model under every mask, in every mode, with every seed."""

    def __init__(
        self,
        model: ModelSource,
        config: CompareMasksConfig,
        data: TaskData,
        reading: Reading,
        run: Run,
    ) -> None:
        for name in config.masks:
            read_mask(name)  # refused before a model is loaded
        super().__init__(model, config, data, reading, run)
        files = sorted({file for name in config.masks for file in files_of(name)})
        self.header["mask_files"] = describe_files(files)
        if config.start is not None:
            self.header["start"] = weights_sha256(self._open_start(run.seed))

    @property
    def trains(self) -> bool:
        return self.config.trains

    def cases(self) -> list[Case]:
        """All cases; in every mode the intact model is first, since the others are compared with it."""
        config = self.config
        names = [INTACT, *(name for name in config.masks if name != INTACT)]
        is_used = dict(zip(MODES, (True, config.repair > 0, config.start is not None), strict=True))

        def is_repeated(case: Case) -> bool:
            # Nothing is trained: every seed is the same, unless the mask is drawn.
            is_first = case.seed == config.seeds[0]
            return case.mode == "straight" and not is_first and case.drawn == case.mask

        cases = [
            Case(mode, name, seed, number)
            for mode in MODES
            if is_used[mode]
            for seed in config.seeds
            for number, name in enumerate(names)
        ]
        return [case for case in cases if not is_repeated(case)]

    def judge(self, case: Case, folder: Path) -> Result:
        """Train one model under one mask, if the mode says so, and evaluate it on the split to report on."""
        is_new = case.mode == "from start"
        model = self._open_start(case.seed) if is_new else self.open_to_train(case.seed)
        if case.mask != INTACT:
            model.wear(Masked(case.drawn, open_special=self.reading.open_special))
        if case.mode != "straight":
            epochs = self.config.repair if case.mode == "repaired" else self.settings.epochs
            settings = replace(self.settings, seed=case.seed, epochs=epochs)
            training = Training(model, self.task, self.train_on, settings)
            run = Resumable(training, folder, {**self.header, "case": case.name})
            run.restore()
            for step in run.steps():
                self.report_progress(case.name, step.number, step.total)
        judged = evaluate(model, self.task, self.report_on)
        np.savez(folder / JUDGED, losses=judged.losses, scores=judged.scores)
        name = self.task.metrics[0]
        metric = float(self.task.measure(judged.scores)[name])
        self.run.log(f"{case.mode}, {case.drawn}, seed {case.seed}: {name} {metric:.4f}")
        return {"metric": metric}

    def _open_start(self, seed: int) -> AttentionModel:
        """The model that is trained under masks from the start."""
        assert self.config.start is not None
        torch.manual_seed(seed)  # determines new weights
        return self.reload(self.config.start, labels=self.labels, reading=self.whole.reading)

    def study(self, cases: Sequence[Case], folder: Path) -> Study:
        judged = {}
        for case in cases:
            with np.load(folder / case.name / JUDGED) as arrays:
                judged[case] = Judged(arrays["losses"], arrays["scores"])
        special = self.whole.marks.special if self.reading.open_special else frozenset()
        rows = []
        for case in cases:
            seed = self.config.seeds[0] if case.mode == "straight" else case.seed
            intact = judged[Case(case.mode, INTACT, seed, 0)]
            mask, texts = read_mask(case.drawn), self.report_on.sequences
            row = {"mode": case.mode, "mask": case.mask, "seed": case.seed}
            row["sparsity"] = forbidden_share(mask, texts, self.whole.sites, special)
            rows.append(row | changes(self.task, intact, judged[case], self.draws))
        table = TABLES["mask_runs"].frame(rows)
        files = ("mask_files", "start")
        hashes = {name: value for name, value in self.header.items() if name in files}
        compared = self.section({**self.describe_examples(), **hashes})
        tables = {"mask_runs": table, "mask_table": over_seeds(table)}
        return Study(to_frame([]), {}, self.record({"mask_table": compared}), tables)


def forbidden_share(
    mask: Mask,
    sequences: Sequence[Encoded],
    sites: Sequence[Site],
    special: frozenset[int] = frozenset(),
) -> float:
    """The share of all attention within these texts that a mask forbids; in a decoder, without later positions.

    special  tokens that attend to and are attended by all, whatever the mask
    """
    own = [site for site in sites if site.stack in ("encoder", "decoder")]
    if mask.per == "model":  # the same at every site of a stack
        first: dict[str, Site] = {}
        for site in own:
            first.setdefault(site.stack, site)
        own = list(first.values())
    open_ = total = 0.0
    for site in own:
        is_causal = site.stack == "decoder"
        shapes = Counter(_shape(sequence, is_causal, special) for sequence in sequences)
        for (size, opened), count in shapes.items():
            allowed = mask.at(size, site).clone()
            allowed[:, list(opened)] = True
            allowed[:, :, list(opened)] = True
            allowed = resolve_mask(allowed, is_causal=is_causal)
            open_ += count * float(allowed.double().mean(dim=0).sum())
            total += count * (size * (size + 1) / 2 if is_causal else size**2)
    return 1.0 - open_ / total


def _shape(
    sequence: Encoded, is_causal: bool, special: frozenset[int]
) -> tuple[int, tuple[int, ...]]:
    """The length of a text and the positions of its special tokens."""
    side = sequence.target if is_causal and sequence.target is not None else sequence.source
    return len(side.ids), tuple(i for i, token in enumerate(side.ids) if token in special)


def over_seeds(table: pd.DataFrame) -> pd.DataFrame:
    """One row per mode and mask: means over seeds; the paired interval of one seed, Student's of several."""
    rows = []
    for (mode, mask), part in table.groupby(["mode", "mask"], sort=False):
        count = part["seed"].nunique()
        low, high = float(part["change_low"].iloc[0]), float(part["change_high"].iloc[0])
        if count > 1:
            low, high = students_interval(part["metric_change"].to_numpy())
        rows.append(
            {
                "mode": mode,
                "mask": mask,
                "seeds": count,
                "sparsity": part["sparsity"].mean(),
                "metric": part["metric"].mean(),
                "metric_change": part["metric_change"].mean(),
                "change_low": low,
                "change_high": high,
                "loss": part["loss"].mean(),
                "loss_change": part["loss_change"].mean(),
            }
        )
    return TABLES["mask_table"].frame(rows)
