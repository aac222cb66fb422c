"""Learn which positions need to attend to which: a mask that is trained with the weights or alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headscope.ablation.significance import students_interval
from headscope.config.learn_mask import LearnMaskConfig, MaskTarget
from headscope.config.shared import Reading, Run, TaskData
from headscope.errors import HeadscopeError
from headscope.learning.learned_mask import START, LearnedMask
from headscope.learning.learning_runs import (
    Learning,
    Result,
    StudyWriter,
    by_name,
    describe_trainings,
)
from headscope.masks.mask_edit import Masked
from headscope.masks.mask_file import groups_of, read_positions
from headscope.masks.position_kinds import KINDS, count_pairs_by_kind, mean_by_kind
from headscope.model.attention_model import AttentionModel
from headscope.model.load import ModelSource
from headscope.model.saving import write_model
from headscope.pruning.pareto_front import change_text
from headscope.study.schema.names import MASK_OPEN, StatisticName
from headscope.study.schema.tables import TABLES
from headscope.study.study import Study
from headscope.tables import Row, to_frame
from headscope.tasks import Prepared
from headscope.training.finetune import describe_epoch, evaluate_epoch
from headscope.training.learnable_edit import short_training_note
from headscope.training.loop import Training
from headscope.training.resumable import Resumable

if TYPE_CHECKING:
    import pandas as pd

MASK, MAP = "mask.npz", "map.npy"
UNDECIDED = 0.0  # where a soft mask's α starts: as far from open as from closed
SELDOM = 0.05  # positions that a smaller share of the texts reaches are not shown
TEXTS = 2000  # texts by which positions are sorted into kinds
# A sparsity that misses its target by more than CLOSE is noted; above the target, by more than FEW times CLOSE.
CLOSE, FEW = 0.005, 4


def learn_mask(
    model: ModelSource,
    config: LearnMaskConfig,
    data: TaskData,
    reading: Reading,
    run: Run,
    write: StudyWriter = lambda study, folder: None,
) -> Study:
    """Train a mask for each target. write: writes figures and page into the study's directory.

    Each target leaves a directory in `run.out` with mask.npz, which every `mask=` takes (unless the mask is soft), and
    unless the weights were frozen, the model that was trained with it.
    """
    learning = _MaskLearning(model, config, data, reading, run)
    for target in config.targets:
        learning.mask(learning.whole, target)  # refused before anything is trained
    with learning.train_each(config.targets, learning.train) as (folder, results):
        study = learning.study(results, folder)
        learning.write(study, folder, write)
    return study


class _MaskLearning(Learning[LearnMaskConfig]):
    """The trainings of masks."""

    can_reduce_rate = True
    of_targets = ("penalty", "sparsity", "seeds")

    @cached_property
    def lengths(self) -> list[int]:
        """The lengths of all training texts, in tokens."""
        return _lengths(self.train_on)

    @cached_property
    def reached(self) -> int:
        """The last position that enough texts have; what was learned of later ones rests on few texts."""
        return sorted(self.lengths, reverse=True)[math.ceil(SELDOM * len(self.lengths)) - 1]

    @cached_property
    def longest(self) -> int:
        """The length of the longest text of all splits."""
        splits = self.train_on, self.select_on, self.report_on
        return max(length for split in splits for length in _lengths(split))

    def mask(self, model: AttentionModel, target: MaskTarget) -> LearnedMask:
        """A new mask for a target."""
        start = UNDECIDED if self.config.soft else START
        return LearnedMask(
            model, self.lengths, self.config, target, longest=self.longest, start=start
        )

    def train(self, target: MaskTarget, folder: Path) -> Result:
        """Train for one target; writes mask, map and model into the folder."""
        model = self.open_to_train(target.seed)
        mask = self.mask(model, target)
        settings, frozen = replace(self.settings, seed=target.seed), self.config.frozen
        training = Training(model, self.task, self.train_on, settings, learned=mask, frozen=frozen)
        run = self.resume_training(training, target, folder)
        with model.edited(mask.edit()):
            self._train_steps(run, mask, target)
            mask.eval().draw(1.0)
            judged = self.judge_changes(model)
        np.save(folder / MAP, mask.map().numpy().astype(np.float16))
        row = {"aim": target.kind, "seed": target.seed, **judged}
        opened: dict[str, float] = {}
        if not self.config.soft:
            mask.positions().write(folder / MASK)
            row["sparsity"] = 1.0 - float(mask.open_share(mask.chosen()))
            shares = mask.open_shares(mask.chosen()).tolist()
            opened = dict(zip(mask.groups_named, shares, strict=True))
            self._check_written(folder, model, judged)
        if not self.config.frozen:
            write_model(model, folder)
        self._log_result(target, row)
        if bool(mask.bare):
            self.run.log(
                f"{target.name}: this penalty closes everything; only what is always open is left"
            )
        notes = _notes(mask, target, row, training.total)
        note = "; ".join(f"{target.name}: {line}" for line in notes)
        if note:
            self.run.log(f"note: {note}")
        return {"row": row, "closed": bool(mask.bare), "open": opened, "note": note, **run.told}

    def _log_result(self, target: MaskTarget, row: Mapping[str, Any]) -> None:
        metric, forbidden = f"{self.task.metrics[0]} {row['metric']:.4f}", ""
        if "sparsity" in row:
            forbidden = f"{100 * row['sparsity']:.1f} % of attention forbidden, "
        self.run.log(f"{target.name}: {metric}, {forbidden}change {change_text(row)}")

    def _train_steps(self, run: Resumable, mask: LearnedMask, target: MaskTarget) -> None:
        epochs: list[dict[str, Any]] = run.told.setdefault("epochs", [])
        for step in run.steps():
            self.report_progress(target.name, step.number, step.total)
            if step.ends_epoch:
                mask.eval().draw(run.training.progress)
                epochs.append(evaluate_epoch(run.training.model, self.task, self.select_on, step))
                values = mask.alpha.detach().sigmoid() if mask.is_soft else mask.chosen()
                share = float(mask.open_share(values))
                run.save()
                # Logged after saving: an epoch that a user has seen is not trained again.
                epoch = describe_epoch(epochs[-1])
                self.run.log(f"{target.name}: {epoch}, {100 * share:.1f} % open")

    def _check_written(self, folder: Path, model: AttentionModel, judged: dict[str, Any]) -> None:
        """Self-check: the model gives the same loss under the mask file."""
        with model.edited(Masked(str(folder / MASK))):
            again = self.judge_changes(model)
        if abs(again["loss"] - judged["loss"]) > 1e-4:
            raise HeadscopeError(
                f"the mask file gives a loss of {again['loss']:.6f}, not {judged['loss']:.6f}"
            )

    def study(self, results: Sequence[Result], folder: Path) -> Study:
        targets = self.config.targets
        maps = {target.name: _mean_map(folder / target.name) for target in targets}
        kinds = count_pairs_by_kind(self._texts(), self.whole.marks.special, self.longest)
        opened = self._opened() if self.config.structured else None
        named = by_name(targets, results)
        learned = {
            "options": {"is_soft": self.config.soft, "frozen": self.config.frozen},
            "intact": self.judge_changes(self.whole),
            "reached": self.reached,
            "closed": [name for name, result in named.items() if result["closed"]],
            **describe_trainings(named),
        }
        record = self.record({"learned_masks": self.section(learned)})
        tables = {
            "learned_masks": TABLES["learned_masks"].frame(result["row"] for result in results),
            "positions": _positions_table(targets, maps, kinds, opened),
        }
        return Study(to_frame(self._rows(named)), _over_seeds(targets, maps), record, tables)

    def _opened(self) -> np.ndarray[Any, Any]:
        """The pairs of each kind that a structured mask leaves open, at the ends of texts."""
        pairs = count_pairs_by_kind(
            self._texts(), self.whole.marks.special, self.longest, at_ends=True
        )
        if self.config.without_diagonal:
            pairs[KINDS.index("diagonal")] = 0.0
        return pairs

    def _texts(self) -> list[list[int]]:
        sequences = self.train_on.sequences[:: max(1, len(self.train_on.sequences) // TEXTS)]
        return [list(sequence.source.ids) for sequence in sequences]

    def _rows(self, results: Mapping[str, Result]) -> list[Row]:
        """For each head the share of attention in the training texts that its mask leaves open."""
        count = len(self.train_on.sequences)
        return [
            Row.without_interval(
                head, str(StatisticName(MASK_OPEN, name)), result["open"][group], count
            )
            for name, result in results.items()
            for head in self.whole.heads
            for group in groups_of([head], self.config.per)
            if group in result["open"]
        ]


def _notes(mask: LearnedMask, target: MaskTarget, row: Mapping[str, Any], total: int) -> list[str]:
    """Notes on a training that was too short or missed its sparsity. total: number of steps."""
    notes = []
    if bool(mask.hardly):
        steps = total if mask.is_soft else mask.settles_at(total)
        notes.append(short_training_note("the mask", steps, "`mask_rate`"))
    missed = 0.0 if target.sparsity is None else row["sparsity"] - target.sparsity
    if target.sparsity is not None and not -CLOSE < missed < FEW * CLOSE:
        why = "every position needs a key" if missed < 0 else "there are few steps between"
        notes.append(
            f"{100 * row['sparsity']:.1f} % is forbidden, not {100 * target.sparsity:g} %: {why}"
        )
    return notes


def _mean_map(folder: Path) -> np.ndarray[Any, Any]:
    """[position, position], mean over groups: the share of masks that leave a pair open; sigmoid(α) of soft masks."""
    held: np.ndarray[Any, Any] = np.load(folder / MAP).astype(np.float64)
    if not (folder / MASK).exists():
        return np.asarray(held.mean(axis=0))
    positions = read_positions(folder / MASK)
    masks = []
    for row in positions.allowed:
        group = replace(positions, groups=("all",), per="model", allowed=row[None])
        masks.append(group.mask("").at(held.shape[1])[0].numpy())
    return np.asarray(np.stack(masks).mean(axis=0, dtype=np.float64))


def _over_seeds(
    targets: Sequence[MaskTarget], maps: Mapping[str, np.ndarray[Any, Any]]
) -> dict[str, np.ndarray[Any, Any]]:
    """The mean map over the seeds of each kind of target, as in maps.npz."""
    by_kind = _maps_by_kind(targets, maps).items()
    return {f"mask/{kind}": np.mean(each, axis=0).astype(np.float32) for kind, each in by_kind}


def _maps_by_kind(
    targets: Sequence[MaskTarget], maps: Mapping[str, np.ndarray[Any, Any]]
) -> dict[str, list[np.ndarray[Any, Any]]]:
    """The maps of each kind of target, one for each seed."""
    grouped: dict[str, list[np.ndarray[Any, Any]]] = {}
    for target in targets:
        grouped.setdefault(target.kind, []).append(maps[target.name])
    return grouped


def _lengths(examples: Prepared) -> list[int]:
    sides = [side for sequence in examples.sequences for side in (sequence.source, sequence.target)]
    return [len(side.ids) for side in sides if side is not None]


def _positions_table(
    targets: Sequence[MaskTarget],
    maps: Mapping[str, np.ndarray[Any, Any]],
    kinds: np.ndarray[Any, Any],
    opened: np.ndarray[Any, Any] | None,
) -> pd.DataFrame:
    """The open share of attention of each kind of positions: mean over seeds, with Student's interval if several."""
    rows = []
    for target_kind, of_seeds in _maps_by_kind(targets, maps).items():
        per_seed = np.stack([mean_by_kind(values, kinds, opened) for values in of_seeds])
        for number, kind in enumerate(KINDS):
            values = per_seed[:, number]
            low, high = students_interval(values)
            interval = {"value": values.mean(), "low": low, "high": high}
            row = {"aim": target_kind, "positions": kind, **interval, "seeds": len(values)}
            rows.append(row)
    return TABLES["positions"].frame(rows)
