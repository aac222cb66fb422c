"""learn-mask, the verb: learn which positions need to attend to which."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headscope.ablation.significance import students_interval
from headscope.config.checks import check_rate
from headscope.config.requirements import changed, check_effects
from headscope.errors import HeadscopeError
from headscope.learning.learned_mask import RATE, SETTLE, START, LearnedMask
from headscope.learning.learning_runs import Learning, Source, Watcher, told_by_aim
from headscope.masks.mask_edit import Masked
from headscope.masks.mask_file import Per, groups_of, read_positions
from headscope.masks.position_kinds import KINDS, by_kind, kinds_of
from headscope.model.attention_model import AttentionModel
from headscope.model.saving import write_model
from headscope.study.run_record import build_record
from headscope.study.schema.names import MASK_OPEN, StatisticName
from headscope.study.schema.record import RunRecord
from headscope.study.schema.tables import TABLES
from headscope.study.study import Study
from headscope.study.study_dir import write_tables
from headscope.tables import Row, to_frame
from headscope.tasks import Prepared, Task, task_named
from headscope.training.finetune import measured, told_of
from headscope.training.learnable_edit import said_of_little
from headscope.training.loop import Training
from headscope.training.resumable import Resumable
from headscope.training.settings import Settings

if TYPE_CHECKING:
    import pandas as pd

MASK, MAP = "mask.npz", "map.npy"
UNDECIDED = 0.0  # where a soft mask's α starts: as far from open as from closed
SELDOM = 0.05  # positions that a smaller share of the texts reaches are not shown
TEXTS = 2000  # texts by which positions are sorted into kinds
CLOSE, FEW = (
    0.005,
    4,
)  # a sparsity that was aimed at and missed by more is told; by some times more where it is above


@dataclass(frozen=True)
class MaskAim:
    """What one training is after: open attention at a price, so much of it forbidden, or neither (a soft mask)."""

    penalty: float | None = None
    sparsity: float | None = None
    seed: int = 0

    @property
    def kind(self) -> str:
        if self.sparsity is not None:
            return f"sparsity-{self.sparsity:g}"
        return "soft" if self.penalty is None else f"penalty-{self.penalty:g}"

    @property
    def name(self) -> str:
        return f"{self.kind}-seed-{self.seed}"


@dataclass(frozen=True)
class MaskOptions:
    """How a mask is trained; see `LearnedMask`. frozen: only the mask learns, the weights stay as they are."""

    structured: bool = False
    diagonal: bool = True
    per: Per = "model"
    form: str = "renormalised"
    is_soft: bool = False
    frozen: bool = False
    rate: float = RATE
    settle: float = SETTLE

    def __post_init__(self) -> None:
        check_rate(self.rate, "`mask_rate`", self.settle)


def learn_mask(
    model: str | Path,
    *,
    task: str | Task,
    data: str | Path,
    out: str | Path,
    aims: Sequence[MaskAim],
    options: MaskOptions | None = None,
    settings: Settings | None = None,
    select_on: str = "dev:even",
    report_on: str = "dev:odd",
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
    """Train a mask for each aim; returns the study that is written.

    aims       MaskAim(sparsity=0.9), MaskAim(penalty=1.0, seed=1), MaskAim() for a soft one; each is a run of its own
    select_on  the split that is looked at after every epoch; report_on: the split that is reported on, another one
    limit      only so many training examples

    Each aim leaves a directory in OUT with mask.npz, which every `mask=` takes (not where the mask is soft), and unless
    the weights were frozen, the model that was trained with it.
    """
    options = options or MaskOptions()
    chosen = task_named(task, columns=columns, labels=labels) if isinstance(task, str) else task
    given: dict[str, Any] = {
        "soft": options.is_soft,
        "frozen": options.frozen,
        "settle": options.settle,
    }
    given |= {"task": chosen, "data": data, "select_on": select_on, "report_on": report_on}
    given |= {"pooling": pooling, "prompt": prompt, **changed(settings or Settings())}
    check_effects("learn-mask", given)
    source = Source(
        model,
        chosen,
        data,
        (select_on, report_on),
        limit,
        report_limit,
        max_length,
        device,
        revision,
        pooling=pooling,
        prompt=prompt,
    )
    run = _MaskLearning(source, settings or Settings(learning_rate=5e-5), options)
    for aim in aims:
        run.learned(run.whole, aim)  # refused before anything is trained

    def train(aim: MaskAim, place: Path) -> dict[str, Any]:
        return run.train(aim, place, watch=watch, say=say)

    with run.each(aims, out, overwrite=overwrite, resume=resume, train=train) as (folder, found):
        study = run.study(aims, found, folder, command)
        write_tables(study, folder)
        report(study, folder)
    return study


class _MaskLearning(Learning):
    """The trainings of masks."""

    verb = "learn-mask"
    may_slow = True
    options: MaskOptions

    @cached_property
    def lengths(self) -> list[int]:
        """Of every text that is learned from."""
        return _lengths(self.train_on)

    @cached_property
    def reached(self) -> int:
        """So many positions of which enough texts have the last: what was learned of later ones rests on few texts."""
        return sorted(self.lengths, reverse=True)[math.ceil(SELDOM * len(self.lengths)) - 1]

    @cached_property
    def longest(self) -> int:
        """Of those that are judged by, too."""
        return max(
            length
            for one in (self.train_on, self.select_on, self.report_on)
            for length in _lengths(one)
        )

    def learned(self, model: AttentionModel, aim: MaskAim) -> LearnedMask:
        one = self.options
        settle = 1.0 if one.frozen else one.settle  # there are no weights to go on alone
        return LearnedMask(
            model,
            self.lengths,
            longest=self.longest,
            penalty=aim.penalty,
            sparsity=aim.sparsity,
            is_soft=one.is_soft,
            structured=one.structured,
            diagonal=one.diagonal,
            per=one.per,
            form=one.form,
            rate=one.rate,
            settle=settle,
            start=UNDECIDED if one.is_soft else START,
        )

    def train(
        self, aim: MaskAim, place: Path, *, watch: Watcher, say: Callable[[str], None]
    ) -> dict[str, Any]:
        """One training to its end: mask, map and model into this folder; what was found."""
        model = self.loaded(aim.seed)
        mask = self.learned(model, aim)
        settings = replace(self.settings, seed=aim.seed)
        training = Training(
            model, self.task, self.train_on, settings, learned=mask, frozen=self.options.frozen
        )
        run = Resumable(training, place, {**self.header, "aim": asdict(aim)}, may_slow=True)
        run.restore(say)
        with model.edited(mask.edit()):
            self._follow(run, mask, aim, watch, say)
            mask.eval().draw(1.0)
            judged = self.judged(model)
        np.save(place / MAP, mask.map().numpy().astype(np.float16))
        row = {"aim": aim.kind, "seed": aim.seed, **judged}
        opened: dict[str, float] = {}
        if not self.options.is_soft:
            positions = mask.positions()
            positions.write(place / MASK)
            row["sparsity"] = 1.0 - float(mask.open_share(mask.chosen()))
            opened = dict(
                zip(mask.groups_named, mask.open_shares(mask.chosen()).tolist(), strict=True)
            )
            self._check_written(place, model, judged)
        if not self.options.frozen:
            write_model(model, place)
        said = f"{aim.name}: {self.task.metrics[0]} {row['metric']:.4f}"
        change = f"change {row['metric_change']:+.4f} [{row['change_low']:+.4f}, {row['change_high']:+.4f}]"
        forbidden = (
            ""
            if "sparsity" not in row
            else f"{100 * row['sparsity']:.1f} % of attention forbidden, "
        )
        say(f"{said}, {forbidden}{change}")
        if bool(mask.bare):
            say(f"{aim.name}: this penalty closes everything; only what is always open is left")
        notes = []
        if bool(mask.hardly):
            steps = training.total if mask.is_soft else mask.settles_at(training.total)
            notes.append(said_of_little("the mask", steps, "`mask_rate`"))
        missed = 0.0 if aim.sparsity is None else row["sparsity"] - aim.sparsity
        if aim.sparsity is not None and not -CLOSE < missed < FEW * CLOSE:
            why = "every position needs a key" if missed < 0 else "there are few steps between"
            notes.append(
                f"{100 * row['sparsity']:.1f} % is forbidden, not {100 * aim.sparsity:g} %: {why}"
            )
        note = "; ".join(f"{aim.name}: {one}" for one in notes)
        if note:
            say(f"note: {note}")
        return {"row": row, "closed": bool(mask.bare), "open": opened, "note": note, **run.told}

    def _follow(
        self,
        run: Resumable,
        mask: LearnedMask,
        aim: MaskAim,
        watch: Watcher,
        say: Callable[[str], None],
    ) -> None:
        epochs: list[dict[str, Any]] = run.told.setdefault("epochs", [])
        for step in run.steps():
            watch(aim.name, step.number, step.total)
            if step.ends_epoch:
                mask.eval().draw(run.training.progress)
                epochs.append(measured(run.training.model, self.task, self.select_on, step))
                share = float(
                    mask.open_share(
                        mask.alpha.detach().sigmoid() if mask.is_soft else mask.chosen()
                    )
                )
                run.save()
                say(
                    f"{aim.name}: {told_of(epochs[-1])}, {100 * share:.1f} % open"
                )  # what is said is kept

    def _check_written(self, place: Path, model: AttentionModel, judged: dict[str, Any]) -> None:
        """The file does what was learned, or something is wrong with us."""
        with model.edited(Masked(str(place / MASK))):
            again = self.judged(model)
        if abs(again["loss"] - judged["loss"]) > 1e-4:
            raise HeadscopeError(
                f"the mask file gives a loss of {again['loss']:.6f}, not {judged['loss']:.6f}"
            )

    # What was found

    def study(
        self, aims: Sequence[MaskAim], found: Sequence[dict[str, Any]], folder: Path, command: str
    ) -> Study:

        maps = {aim.name: _mean_map(folder / aim.name) for aim in aims}
        kinds = kinds_of(self._texts(), self.whole.marks.special, self.longest)
        opened = self._opened() if self.options.structured else None
        sections: RunRecord = {
            "learned_masks": {
                **self.told(),
                "metric": self.task.metrics[0],
                "intact": self.judged(self.whole),
                "reached": self.reached,
                "closed": [aim.name for aim, one in zip(aims, found, strict=True) if one["closed"]],
                **told_by_aim(aims, found),
            },
            "durations": {"learn-mask": round(time.perf_counter() - self.started, 1)},
        }
        record = build_record(self.whole, sections, command=command, seed=self.settings.seed)
        tables = {
            "learned_masks": TABLES["learned_masks"].frame(one["row"] for one in found),
            "positions": _positions_table(aims, maps, kinds, opened),
        }
        return Study(to_frame(self._rows(aims, found)), _over_seeds(aims, maps), record, tables)

    def _opened(self) -> np.ndarray[Any, Any]:
        """The pairs of each kind that a structured mask leaves open, at the ends of texts."""
        found = kinds_of(self._texts(), self.whole.marks.special, self.longest, at_ends=True)
        if not self.options.diagonal:
            found[KINDS.index("diagonal")] = 0.0
        return found

    def _texts(self) -> list[list[int]]:
        sequences = self.train_on.sequences[:: max(1, len(self.train_on.sequences) // TEXTS)]
        return [list(sequence.source.ids) for sequence in sequences]

    def _rows(self, aims: Sequence[MaskAim], found: Sequence[dict[str, Any]]) -> list[Row]:
        """For each head the share of attention in the texts that are learned from which its mask leaves open."""
        nothing, texts = float("nan"), len(self.train_on.sequences)
        return [
            Row(
                head.stack,
                head.layer,
                head.head,
                str(StatisticName(MASK_OPEN, aim.name)),
                one["open"][group],
                nothing,
                nothing,
                texts,
            )
            for aim, one in zip(aims, found, strict=True)
            for head in self.whole.heads
            for group in groups_of([head], self.options.per)
            if group in one["open"]
        ]


def _mean_map(place: Path) -> np.ndarray[Any, Any]:
    """[position, position], over groups: of a mask that was chosen the share that leave it open, else sigmoid(α)."""
    held: np.ndarray[Any, Any] = np.load(place / MAP).astype(np.float64)
    if not (place / MASK).exists():
        return np.asarray(held.mean(axis=0))
    positions = read_positions(place / MASK)
    each = [
        replace(positions, groups=("all",), per="model", allowed=row[None])
        for row in positions.allowed
    ]
    allowed = np.stack([one.mask("").at(held.shape[1])[0].numpy() for one in each])
    return np.asarray(allowed.mean(axis=0, dtype=np.float64))


def _over_seeds(
    aims: Sequence[MaskAim], maps: Mapping[str, np.ndarray[Any, Any]]
) -> dict[str, np.ndarray[Any, Any]]:
    """The mean map by kind of aim, as maps.npz has it."""
    kinds = dict.fromkeys(aim.kind for aim in aims)
    alike = {kind: [maps[aim.name] for aim in aims if aim.kind == kind] for kind in kinds}
    return {
        f"mask/{kind}": np.mean(values, axis=0).astype(np.float32) for kind, values in alike.items()
    }


def _lengths(examples: Prepared) -> list[int]:
    sides = [side for sequence in examples.sequences for side in (sequence.source, sequence.target)]
    return [len(side.ids) for side in sides if side is not None]


def _positions_table(
    aims: Sequence[MaskAim],
    maps: Mapping[str, Any],
    kinds: np.ndarray[Any, Any],
    opened: np.ndarray[Any, Any] | None,
) -> pd.DataFrame:
    """How much attention of each kind is open: the mean over seeds, with Student's interval where there are several."""

    rows = []
    for kind_of_aim in dict.fromkeys(aim.kind for aim in aims):
        alike = [maps[aim.name] for aim in aims if aim.kind == kind_of_aim]
        per_seed = np.stack([by_kind(values, kinds, opened) for values in alike])
        for number, kind in enumerate(KINDS):
            values = per_seed[:, number]
            low, high = students_interval(values)
            row = {
                "aim": kind_of_aim,
                "positions": kind,
                "value": values.mean(),
                "low": low,
                "high": high,
            }
            rows.append({**row, "seeds": len(values)})
    return TABLES["positions"].frame(rows)
