"""Compare masks on a task, in three modes.

straight    the mask is applied to the model
repaired    the model is trained for some epochs under the mask
from start  another model, e.g. a pre-trained one, is trained on the task under the mask
"""

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
from headscope.learning.learning_runs import LearningRuns, StudyWriter, write_nothing
from headscope.learning.run_result import RunResult, RunResults
from headscope.masks import Mask, Masked, read_mask, resolve_mask
from headscope.masks.mask_spec import add_seed, files_of
from headscope.model.attention_model import AttentionModel
from headscope.model.load import ModelSource
from headscope.model.weights import weights_sha256
from headscope.pruning.pareto_front import changes
from headscope.study.run_record import describe_files
from headscope.study.schema.record import Section
from headscope.study.schema.tables import TABLES
from headscope.study.study import Study
from headscope.tables import to_frame
from headscope.tasks import Judged
from headscope.tasks.inference import evaluate

if TYPE_CHECKING:
    import pandas as pd

INTACT = "dense"
MODES = ("straight", "repaired", "from start")
JUDGED = "judged.npz"


@dataclass(frozen=True)
class Case:
    """One model under one mask. seed: random seed of the training and of the mask, if it is random."""

    mode: str
    mask: str
    seed: int
    number: int  # number of the mask, for the name of the directory: the mask's name may not be a valid one

    @property
    def name(self) -> str:
        return f"{self.mode.replace(' ', '-')}-{self.number}-seed-{self.seed}"

    @property
    def seeded_mask(self) -> str:
        """The name of the mask with the seed, if the mask is random."""
        return add_seed(self.mask, self.seed)


def compare_masks(
    model: ModelSource,
    config: CompareMasksConfig,
    data: TaskData,
    reading: Reading,
    run: Run,
    write: StudyWriter = write_nothing,
) -> Study:
    """Evaluate a model under each mask.

    Every change is relative to a model without a mask, trained in the same way, with the same seed and on the same
    examples.
    """
    for name in config.masks:
        read_mask(name)  # raises errors before a model is loaded
    runs = _ComparisonRuns(model, config, data, reading, run)
    return runs.make_study(runs.cases(), write)


class _ComparisonRuns(LearningRuns[CompareMasksConfig]):
    """The model under every mask, in every mode, with every seed."""

    def prepare(self) -> None:
        files = sorted({file for name in self.config.masks for file in files_of(name)})
        self.hashes: Section = {"mask_files": describe_files(files)}
        if self.config.start is not None:
            self.hashes["start"] = weights_sha256(self._open_start(self.run.seed))
        self.header |= self.hashes

    @property
    def trains(self) -> bool:
        return self.config.trains

    def cases(self) -> list[Case]:
        """All cases. In every mode, the model without a mask comes first, since the others are compared with it."""
        config = self.config
        names = [INTACT, *(name for name in config.masks if name != INTACT)]
        is_used = dict(zip(MODES, (True, config.repair > 0, config.start is not None), strict=True))

        def is_repeated(case: Case) -> bool:
            # Without training, all seeds give the same result, unless the mask is random.
            is_first = case.seed == config.seeds[0]
            return case.mode == "straight" and not is_first and case.seeded_mask == case.mask

        cases = [
            Case(mode, name, seed, number)
            for mode in MODES
            if is_used[mode]
            for seed in config.seeds
            for number, name in enumerate(names)
        ]
        return [case for case in cases if not is_repeated(case)]

    def train(self, target: Case, folder: Path) -> RunResult:
        """Train one model under one mask, if the mode requires it, and evaluate it on the report split."""
        is_new = target.mode == "from start"
        model = self._open_start(target.seed) if is_new else self.open_to_train(target.seed)
        if target.mask != INTACT:
            model.edit_permanently(
                Masked(target.seeded_mask, open_special=self.reading.open_special)
            )
        if target.mode != "straight":
            epochs = self.config.repair if target.mode == "repaired" else self.settings.epochs
            settings = replace(self.settings, seed=target.seed, epochs=epochs)
            identity = {"case": target.name}
            for step in self.start_training(model, folder, identity, settings=settings).steps():
                self.report_progress(target.name, step.number, step.total)
        judged = evaluate(model, self.task, self.report_on)
        np.savez(folder / JUDGED, losses=judged.losses, scores=judged.scores)
        name = self.task.metrics[0]
        metric = float(self.task.measure(judged.scores)[name])
        case = f"{target.mode}, {target.seeded_mask}, seed {target.seed}"
        self.run.log(f"{case}: {name} {metric:.4f}")
        return {}

    def _open_start(self, seed: int) -> AttentionModel:
        """The model `config.start`, to be trained under a mask from the start."""
        assert self.config.start is not None
        torch.manual_seed(seed)  # determines new weights
        return self.reload(self.config.start, self.whole.reading, self.labels)

    def study(self, results: RunResults, folder: Path) -> Study:
        cases = self.cases()
        judged = {}
        for case in cases:
            path = folder / case.name / JUDGED
            with np.load(path) as arrays:
                judged[case] = Judged(arrays["losses"], arrays["scores"])
            path.unlink()
            path.parent.rmdir()
        special = self.whole.marks.special if self.reading.open_special else frozenset()
        rows = []
        for case in cases:
            seed = self.config.seeds[0] if case.mode == "straight" else case.seed
            intact = judged[Case(case.mode, INTACT, seed, 0)]
            mask, texts = read_mask(case.seeded_mask), self.report_on.sequences
            row = {"mode": case.mode, "mask": case.mask, "seed": case.seed}
            row["sparsity"] = forbidden_share(mask, texts, self.whole.sites, special)
            rows.append(row | changes(self.task, intact, judged[case], self.draws))
        table = TABLES["mask_runs"].frame(rows)
        section = self.section({**self.describe_examples(), **self.hashes})
        tables = {"mask_runs": table, "mask_table": over_seeds(table)}
        return Study(to_frame([]), {}, self.record({"mask_table": section}), tables)


def forbidden_share(
    mask: Mask,
    sequences: Sequence[Encoded],
    sites: Sequence[Site],
    special: frozenset[int] = frozenset(),
) -> float:
    """The share of pairs of positions within these texts that a mask forbids.

    In a decoder, later positions do not count: they are forbidden anyway.

    special  ids of tokens that the mask does not concern: they attend to all tokens, and all tokens attend to them
    """
    masked = [site for site in sites if site.stack in ("encoder", "decoder")]
    # If the mask is the same at every site of a stack, the first site is enough.
    if mask.per == "model":
        stacks = dict.fromkeys(site.stack for site in masked)
        masked = [next(site for site in masked if site.stack == stack) for stack in stacks]
    open_pairs = total = 0.0
    for site in masked:
        is_causal = site.stack == "decoder"
        shapes = Counter(_shape(sequence, is_causal, special) for sequence in sequences)
        for (size, positions), count in shapes.items():
            allowed = mask.at(size, site).clone()
            allowed[:, list(positions)] = True
            allowed[:, :, list(positions)] = True
            allowed = resolve_mask(allowed, is_causal=is_causal)
            open_pairs += count * float(allowed.double().mean(dim=0).sum())
            total += count * (size * (size + 1) / 2 if is_causal else size**2)
    return 1.0 - open_pairs / total


def _shape(
    sequence: Encoded, is_causal: bool, special: frozenset[int]
) -> tuple[int, tuple[int, ...]]:
    """The length of a text and the positions of its special tokens."""
    side = sequence.target if is_causal and sequence.target is not None else sequence.source
    return len(side.ids), tuple(i for i, token in enumerate(side.ids) if token in special)


def over_seeds(table: pd.DataFrame) -> pd.DataFrame:
    """The table `mask_table`: a row per mode and mask, with means over seeds.

    The interval is Student's over seeds; with a single seed, it is the paired interval over examples.
    """
    rows = []
    means = ["sparsity", "metric", "metric_change", "loss", "loss_change"]
    for (mode, mask), group in table.groupby(["mode", "mask"], sort=False):
        count = group["seed"].nunique()
        low, high = float(group["change_low"].iloc[0]), float(group["change_high"].iloc[0])
        if count > 1:
            low, high = students_interval(group["metric_change"].to_numpy())
        row = {"mode": mode, "mask": mask, "seeds": count, "change_low": low, "change_high": high}
        rows.append(row | {name: group[name].mean() for name in means})
    return TABLES["mask_table"].frame(rows)[list(TABLES["mask_table"].columns)]
