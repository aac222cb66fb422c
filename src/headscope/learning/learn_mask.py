"""Learn which positions need to attend to which: a mask on positions, trained together with the weights or alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from headscope.ablation.significance import students_interval
from headscope.config.learn_mask import LearnMaskConfig, MaskTarget
from headscope.config.shared import Reading, Run, TaskData
from headscope.errors import HeadscopeError
from headscope.learning.learned_mask import START, LearnedMask
from headscope.learning.learning_runs import LearningRuns, StudyWriter, write_nothing
from headscope.learning.run_result import MaskRow, RunResult, RunResults, describe_trainings
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
from headscope.training.finetune import evaluate_epoch
from headscope.training.learnable_edit import short_training_note
from headscope.training.resumable import Resumable

if TYPE_CHECKING:
    import pandas as pd

MASK, MAP = "mask.npz", "map.npy"
UNDECIDED = 0.0  # initial α of a soft mask: half open
SELDOM = 0.05  # positions are shown if at least this share of the texts is long enough to have them
TEXTS = 2000  # about the number of texts in which pairs are counted by kind
# A note says if the sparsity is more than CLOSE below its target, or more than FEW * CLOSE above it.
CLOSE, FEW = 0.005, 4

Map = np.ndarray[Any, Any]  # [position, position]


def learn_mask(
    model: ModelSource,
    config: LearnMaskConfig,
    data: TaskData,
    reading: Reading,
    run: Run,
    write: StudyWriter = write_nothing,
) -> Study:
    """Train a mask for each target.

    Each target has a directory in `run.out`. It holds mask.npz, a file for the option `mask` of other functions (unless
    the mask is soft), and the model that was trained with the mask (unless the weights were frozen).
    """
    return _MaskRuns(model, config, data, reading, run).make_study(config.targets, write)


class _MaskRuns(LearningRuns[LearnMaskConfig]):
    """The trainings of masks."""

    can_reduce_rate = True
    options_of_targets = ("penalty", "sparsity", "seeds")

    def prepare(self) -> None:
        self.lengths = _lengths(self.train_on)
        splits = self.select_on, self.report_on
        self.longest = max(
            self.lengths + [length for split in splits for length in _lengths(split)]
        )
        for target in self.config.targets:
            self.mask(self.whole, target)  # raises errors before anything is trained

    def mask(self, model: AttentionModel, target: MaskTarget) -> LearnedMask:
        """A new mask for a target."""
        config, start = self.config, UNDECIDED if self.config.soft else START
        return LearnedMask(model, self.lengths, config, target, longest=self.longest, start=start)

    def train(self, target: MaskTarget, folder: Path) -> RunResult:
        """Train for one target; writes the mask, its map and the model into the folder."""
        model = self.open_to_train(target.seed)
        mask, frozen = self.mask(model, target), self.config.freeze_weights
        settings = replace(self.settings, seed=target.seed)
        identity = {"target": asdict(target)}
        run = self.start_training(
            model, folder, identity, settings=settings, learned=mask, frozen=frozen
        )
        with model.edited(mask.edit()):
            self._train_steps(run, mask, target)
            mask.eval().draw(1.0)
            judged = self.judge_changes(model)
        np.save(folder / MAP, mask.map().numpy().astype(np.float16))
        row = cast("MaskRow", {"aim": target.kind, "seed": target.seed, **judged})
        open_shares: dict[str, float] = {}
        if not self.config.soft:
            mask.positions().write(folder / MASK)
            row["sparsity"] = 1.0 - float(mask.open_share(mask.binarize()))
            shares = mask.open_shares(mask.binarize()).tolist()
            open_shares = dict(zip(mask.groups, shares, strict=True))
            self._check_file(folder, model, judged["loss"])
        if not frozen:
            write_model(model, folder)
        self._log_result(target, row)
        if bool(mask.is_closed):
            self.run.log(
                f"{target.name}: this penalty closes everything; only what is always open is left"
            )
        notes = _notes(mask, target, row, run.training.total)
        note = "; ".join(f"{target.name}: {line}" for line in notes)
        if note:
            self.run.log(f"note: {note}")
        closed = bool(mask.is_closed)
        return {
            "history": run.history,
            "row": row,
            "closed": closed,
            "open": open_shares,
            "note": note,
        }

    def _log_result(self, target: MaskTarget, row: MaskRow) -> None:
        metric, forbidden = f"{self.task.metrics[0]} {row['metric']:.4f}", ""
        if "sparsity" in row:
            forbidden = f"{100 * row['sparsity']:.1f} % of attention forbidden, "
        self.run.log(f"{target.name}: {metric}, {forbidden}change {change_text(row)}")

    def _train_steps(self, run: Resumable, mask: LearnedMask, target: MaskTarget) -> None:
        epochs = run.history.setdefault("epochs", [])
        for step in run.steps():
            self.report_progress(target.name, step.number, step.total)
            if step.ends_epoch:
                mask.eval().draw(run.training.progress)
                epochs.append(evaluate_epoch(run.training.model, self.task, self.select_on, step))
                values = mask.alpha.detach().sigmoid() if mask.is_soft else mask.binarize()
                share = float(mask.open_share(values))
                run.save()
                self.log_epoch(target.name, epochs[-1], f"{100 * share:.1f} % open")

    def _check_file(self, folder: Path, model: AttentionModel, loss: float) -> None:
        """Self-check: under the mask file, the model must have the loss that it had with the learned mask."""
        with model.edited(Masked(str(folder / MASK))):
            after = self.judge_changes(model)["loss"]
        if abs(after - loss) > 1e-4:
            raise HeadscopeError(f"the mask file gives a loss of {after:.6f}, not {loss:.6f}")

    def study(self, results: RunResults, folder: Path) -> Study:
        maps: dict[str, list[Map]] = {}  # by kind of target: one for each seed
        for target in self.config.targets:
            maps.setdefault(target.kind, []).append(_mean_map(folder / target.name))
        lengths = sorted(self.lengths, reverse=True)
        learned = {
            "options": {"is_soft": self.config.soft, "frozen": self.config.freeze_weights},
            "intact": self.judge_changes(self.whole),
            # The length that enough texts reach: values at later positions come from few texts.
            "reached": lengths[math.ceil(SELDOM * len(lengths)) - 1],
            "closed": [name for name, result in results.items() if result["closed"]],
            **describe_trainings(results),
        }
        record = self.record({"learned_masks": self.section(learned)})
        rows = [result["row"] for result in results.values()]
        tables = {
            "learned_masks": TABLES["learned_masks"].frame(rows),
            "positions": self._positions_table(maps),
        }
        means = {
            f"mask/{kind}": np.mean(each, axis=0).astype(np.float32) for kind, each in maps.items()
        }
        return Study(to_frame(self._rows(results)), means, record, tables)

    def _positions_table(self, maps: Mapping[str, list[Map]]) -> pd.DataFrame:
        """The table `positions`: open share of each kind of pairs, mean and Student's interval over seeds."""
        sequences = self.train_on.sequences[:: max(1, len(self.train_on.sequences) // TEXTS)]
        texts = [list(sequence.source.ids) for sequence in sequences]
        special = self.whole.marks.special
        counts = count_pairs_by_kind(texts, special, self.longest)
        always_open = None
        if self.config.structured:  # the first and last positions of texts are always open
            always_open = count_pairs_by_kind(texts, special, self.longest, at_ends=True)
            if self.config.without_diagonal:
                always_open[KINDS.index("diagonal")] = 0.0
        rows = []
        for target_kind, of_seeds in maps.items():
            per_seed = np.stack([mean_by_kind(values, counts, always_open) for values in of_seeds])
            for number, kind in enumerate(KINDS):
                values = per_seed[:, number]
                low, high = students_interval(values)
                interval = {"value": values.mean(), "low": low, "high": high}
                row = {"aim": target_kind, "positions": kind, **interval, "seeds": len(values)}
                rows.append(row)
        return TABLES["positions"].frame(rows)

    def _rows(self, results: RunResults) -> list[Row]:
        """Rows of heads.csv: the share of attention in the training texts that each head's mask leaves open."""
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


def _notes(mask: LearnedMask, target: MaskTarget, row: MaskRow, total: int) -> list[str]:
    """Notes for the user if the training was too short or missed its sparsity. total: number of training steps."""
    notes = []
    if bool(mask.undertrained):
        steps = total if mask.is_soft else mask.settling_step(total)
        notes.append(short_training_note("the mask", steps, "`mask_rate`"))
    missed = 0.0 if target.sparsity is None else row["sparsity"] - target.sparsity
    if target.sparsity is not None and not -CLOSE < missed < FEW * CLOSE:
        why = "every position needs a key" if missed < 0 else "there are few steps between"
        notes.append(
            f"{100 * row['sparsity']:.1f} % is forbidden, not {100 * target.sparsity:g} %: {why}"
        )
    return notes


def _mean_map(folder: Path) -> Map:
    """[position, position], mean over groups: 1 if the mask leaves a pair open, else 0; for soft masks sigmoid(α)."""
    soft: Map = np.load(folder / MAP).astype(np.float64)
    if not (folder / MASK).exists():
        return np.asarray(soft.mean(axis=0))
    positions = read_positions(folder / MASK)
    masks = []
    for allowed in positions.allowed:
        group = replace(positions, groups=("all",), per="model", allowed=allowed[None])
        masks.append(group.mask("").at(soft.shape[1])[0].numpy())
    return np.asarray(np.stack(masks).mean(axis=0, dtype=np.float64))


def _lengths(examples: Prepared) -> list[int]:
    """Numbers of tokens of all texts; an encoder-decoder has two texts per sequence."""
    sides = [side for sequence in examples.sequences for side in (sequence.source, sequence.target)]
    return [len(side.ids) for side in sides if side is not None]
