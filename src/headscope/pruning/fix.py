"""Replace heads by fixed attention patterns, and measure the change: single heads, layers, and sets of growing size.

Patterns and the order of heads are selected on the selection split, results are reported on the report split. The query
and key weights of fixed heads are removed.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import cast

import numpy as np

from headscope.ablation.ablation_results import LOSS, METRIC
from headscope.ablation.evaluate import open_for
from headscope.ablation.importance import importance
from headscope.ablation.noninferiority import Margin, verdict_in
from headscope.ablation.significance import metrics_of, resamples_for
from headscope.config.fixed_patterns import FixedPatternsConfig
from headscope.config.importance import ImportanceConfig
from headscope.config.option import record_options
from headscope.config.search import splits_of
from headscope.config.shared import Reading, Run, TaskData
from headscope.errors import HeadscopeError
from headscope.heads import Head, HeadSet
from headscope.model.attention_model import AttentionModel
from headscope.model.fix_heads import check_fix, format_patterns, read_patterns
from headscope.model.fix_heads import fix as fix_heads
from headscope.model.fixed_patterns import Patterns, patterns_by_head
from headscope.model.latency import Speed
from headscope.model.load import ModelSource
from headscope.model.pruning_record import PruningRecord
from headscope.pruning.model_result import ModelResult
from headscope.pruning.pareto_front import (
    UNTIMED,
    FixingRow,
    FrontMeasures,
    change_text,
    changes,
    judge_once,
    measure_once,
    on_front,
    speed_record,
    time_columns,
    timing_setup,
)
from headscope.pruning.search import JournalMemory
from headscope.pruning.search_inputs import describe_splits, read_both_splits
from headscope.pruning.subset_evaluator import Memory
from headscope.study.journal import NAME as JOURNAL
from headscope.study.journal import Journal
from headscope.study.run_record import describe_model, hash_code, versions
from headscope.study.schema.tables import TABLES
from headscope.study.study import Study
from headscope.tasks import Item, Judged, Prepared, task_of
from headscope.tasks.inference import evaluate

# Temporary directories of the sweeps that fix single heads, on the selection split and on the report split
ALONE, REPORTED = "alone", "reported"
TEMPORARY = (ALONE, REPORTED, JOURNAL)
NAMED = "Patterns were named."  # how the patterns were chosen
WITHIN = (
    0.99  # the record states how many heads can be fixed so that this share of the metric is kept
)


@dataclass
class FixedPatternsResult(ModelResult):
    """A model with fixed heads and its measurements. patterns: the fixed pattern of each head that was fixed."""

    patterns: dict[Head, str] = field(kw_only=True)
    among: tuple[Head, ...] = field(kw_only=True, repr=False)  # all heads of the model

    def write_plan(self, folder: Path) -> None:
        (folder / "patterns.txt").write_text(format_patterns(self.patterns, self.among), "utf-8")


def fix_named(model: AttentionModel, patterns: Patterns | str) -> FixedPatternsResult:
    """Fix heads by the named patterns; nothing is measured."""
    smaller = fix_heads(model, patterns)
    new = {head: name for head, name in smaller.fixed.items() if head not in model.fixed}
    return FixedPatternsResult(smaller, {"how": NAMED}, None, patterns=new, among=model.heads)


@dataclass(frozen=True)
class FixInputs:
    """The inputs of `fix`.

    heads     the heads that may be fixed
    patterns  the patterns that the user named; None: each head gets its nearest pattern
    items     the examples of the selection split and of the report split
    """

    model: AttentionModel
    heads: list[Head]
    patterns: dict[Head, str] | None
    items: tuple[list[Item], list[Item]]


def read_inputs(
    model: ModelSource, config: FixedPatternsConfig, data: TaskData, reading: Reading, run: Run
) -> FixInputs:
    """Read the examples, load the model, and check that the heads can be fixed."""
    splits = read_both_splits(data)
    loaded = open_for(task_of(data), model, reading, run)
    loaded.reading.check(loaded.name)  # raises an error now if the model could not be saved later
    patterns = None
    if isinstance(config.patterns, str):
        patterns = read_patterns(config.patterns, loaded.heads, where="`patterns`")
    elif config.patterns is not None:
        patterns = patterns_by_head(config.patterns, loaded.heads)
    heads = _candidates(loaded, config, patterns)
    sizes = config.reported_sizes
    if not isinstance(sizes, int) and max(sizes) > len(heads):
        what = f"{max(sizes)} heads cannot be fixed"
        raise HeadscopeError(what, where="`sizes`", expected=f"at most {len(heads)}")
    return FixInputs(loaded, heads, patterns, splits)


def fix(
    inputs: FixInputs,
    config: FixedPatternsConfig,
    data: TaskData,
    reading: Reading,
    run: Run,
    folder: Path,
) -> FixedPatternsResult:
    """Fix heads and measure the change. folder: for finished work, from which a stopped run is resumed."""
    started = time.perf_counter()
    fixing = _Fixing(inputs, config, data, reading, run, folder)
    fixing.choose(inputs.patterns)
    study = fixing.fix_each_alone(REPORTED, fixing.report_on, data.report_limit, fixing.patterns)
    fixing.prepare(inputs.items)
    rows = fixing.rows()
    result = fixing.result(rows, fixing.choose_size(rows), study)
    study.tables["fixing"] = TABLES["fixing"].frame(rows)
    study.record["command"] = run.typed
    study.record["config"] = record_options(config, data, reading, run)
    study.record["fixing"] = {**result.record, "seconds": round(time.perf_counter() - started, 1)}
    return result


def delete_temporary(folder: Path) -> None:
    """Delete finished work. Call it only after the model is written."""
    for name in (ALONE, REPORTED):
        shutil.rmtree(folder / name)
    (folder / JOURNAL).unlink()


def _candidates(
    model: AttentionModel, config: FixedPatternsConfig, patterns: Mapping[Head, str] | None
) -> list[Head]:
    """The heads that may be fixed; raises an error before anything is measured if one cannot."""
    self_attention = [head for head in model.heads if head.stack in ("encoder", "decoder")]
    heads = [head for head in self_attention if head not in model.fixed]
    if patterns is not None:
        heads = list(patterns)
    if config.heads is not None:
        heads = list(HeadSet(config.heads, among=model.heads))
        across = [head for head in heads if head not in self_attention]
        if across:
            what = f"{across[0]} reads one text and attends to another"
            raise HeadscopeError(what, where="`heads`", expected="self-attention")
    check_fix(model, patterns or dict.fromkeys(heads, "current"))
    if any(len(sites) > 1 for sites in model.attention_modules.values()):
        raise HeadscopeError(
            "its layers share their heads, which cannot be fixed one by one",
            where=model.name,
            fix='Fix them in Python: headscope.fixed_patterns(model, {"*.2": "previous"})',
        )
    return sorted(heads)


class _Fixing:
    """One run of `fix`: `choose` first, then `prepare`, `rows`, `choose_size` and `result`."""

    def __init__(
        self,
        inputs: FixInputs,
        config: FixedPatternsConfig,
        data: TaskData,
        reading: Reading,
        run: Run,
        folder: Path,
    ) -> None:
        self.model, self.heads, self.config, self.data = inputs.model, inputs.heads, config, data
        self.task, self.folder, self.reading, self.run = task_of(data), folder, reading, run
        self.select_on, self.report_on = splits_of(data)
        self.patterns: dict[Head, str] = {}
        self.order: list[Head] = []
        self.memory: Memory = Memory()

    # One at a time

    def choose(self, patterns: Mapping[Head, str] | None) -> None:
        """Choose the pattern of each head, and the order in which heads are fixed: the least important first.

        A head's importance is the change of loss (or metric) on the selection split when it alone is fixed.
        """
        self.run.log(f"fixing {len(self.heads)} heads one at a time on {self.select_on}, to choose")
        study = self.fix_each_alone(ALONE, self.select_on, self.data.limit, patterns)
        nearest = study.record["importance"]["patterns"]
        self.patterns = dict(patterns or {head: nearest[str(head)] for head in self.heads})
        by_loss = self.task.objective == "loss"
        rows = study.heads[study.heads["statistic"] == (LOSS if by_loss else METRIC)]
        heads = map(Head, rows["stack"], rows["layer"], rows["head"])
        sign = 1 if by_loss else -1
        change = dict(zip(heads, (sign * rows["value"]).tolist(), strict=True))
        self.order = sorted(self.heads, key=lambda head: (change[head], head))

    def fix_each_alone(
        self, name: str, split: str, limit: int | None, patterns: Mapping[Head, str] | None
    ) -> Study:
        """The study of fixing each head alone, on a split. name: its directory; patterns: None for the nearest."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        config = ImportanceConfig(
            mode="fixed",
            heads=",".join(map(str, self.heads)),
            patterns=patterns,
            batch_size=self.config.batch_size,
        )
        length, run = self.data.max_length, self.run
        data = TaskData(self.task, self.data.data, split, limit=limit, max_length=length)
        run = Run(seed=run.seed, resume=run.resume, progress=run.progress, log=run.log)
        return importance(self.model, config, data, Reading(), run, directory=folder)

    # Several

    def prepare(self, splits: Sequence[list[Item]]) -> None:
        """Open the journal, prepare the examples of both splits, and evaluate the intact model on them."""
        header = {
            "model": describe_model(self.model)["sha256"],
            "reading": self.model.reading.record(),
            "config": record_options(self.config, self.data, self.reading, self.run),
            "order": list(map(str, self.order)),
            "patterns": {str(head): name for head, name in self.patterns.items()},
            "examples": list(map(len, splits)),
            "code": hash_code("model", "data", "tasks", "ablation", "pruning"),
            "versions": versions(),
        }
        self.memory = JournalMemory(Journal(self.folder, header, resume=self.run.resume))
        length = self.data.max_length
        self.examples: list[Prepared] = [
            self.task.prepare(self.model, items, max_length=length) for items in splits
        ]
        self.draws = resamples_for(self.task, len(splits[1]))
        self.intact = self._evaluate("intact", lambda: self.model)

    def rows(self) -> list[FixingRow]:
        """Rows of fixing.csv: one for each number of fixed heads, in the order of `choose`, and one for each layer."""
        self.run.log(f"fixing several on {len(self.examples[1].items)} other examples")
        count, reported = len(self.heads), self.config.reported_sizes
        if isinstance(reported, int):
            reported = tuple(round(i * count / max(reported - 1, 1)) for i in range(reported))
        sizes = sorted({*reported, 0, count})
        rows = [self._row("least", f"{size} heads", self.order[:size]) for size in sizes]
        measures = [cast("FrontMeasures", {**row, "left": row["learned"]}) for row in rows]
        for row, is_front in zip(rows, on_front(measures), strict=True):
            row["is_front"] = is_front
        for site in dict.fromkeys(head.site for head in self.heads):
            heads = [head for head in self.heads if head.site == site]
            if len(heads) < len(self.heads):
                rows.append(self._row("layer", str(site), heads))
        return rows

    def _row(self, kind: str, named: str, heads: list[Head]) -> FixingRow:
        """The row of a set of fixed heads. kind: "least" for the least important heads, or "layer"."""

        @cache
        def make_model() -> AttentionModel:
            if not heads:
                return self.model
            return fix_heads(self.model, {head: self.patterns[head] for head in heads})

        selection, report = self._evaluate(f"{kind} {named}", make_model) if heads else self.intact
        times = UNTIMED
        if heads and kind == "least":
            times = time_columns(self._speeds(named, make_model))
        elif heads:
            times = {"time": np.nan, "time_low": np.nan, "time_high": np.nan}
        row: FixingRow = {
            "kind": kind,
            "named": named,
            "fixed": len(heads),
            "learned": len(self.model.heads) - len(heads) - len(self.model.fixed),
            "parameters": sum(p.numel() for p in make_model().model.parameters()),
            **times,
            "selection_loss": float(selection.losses.mean()),
            "selection_metric": float(self.task.measure(selection.scores)[self.task.metrics[0]]),
            **changes(self.task, self.intact[1], report, self.draws),
            "heads": str(HeadSet(heads, among=self.model.heads)) if heads else "",
            "is_front": False,  # set by `rows`
            "is_chosen": False,  # set by `choose_size`
        }
        metric = f"{self.task.metrics[0]} {row['metric']:.4f}"
        self.run.log(f"{named} fixed: {metric}, change {change_text(row)}")
        return row

    def _evaluate(self, key: str, model: Callable[[], AttentionModel]) -> list[Judged]:
        """Evaluate a model on both splits, once for each key."""
        task, size = self.task, self.config.batch_size
        return judge_once(
            self.memory,
            key,
            lambda: [evaluate(model(), task, split, batch_size=size) for split in self.examples],
        )

    def _speeds(self, named: str, make_model: Callable[[], AttentionModel]) -> list[Speed]:
        """Measure the speed of the unpruned model and of the one with fixed heads, once for each name."""
        return measure_once(self.memory, f"speeds {named}", self.model, make_model)

    def choose_size(self, rows: list[FixingRow]) -> list[Head]:
        """The heads to fix: as many as keep the metric on the selection split. Marks the row of this size as chosen."""
        sizes = [row for row in rows if row["kind"] == "least"]
        size, keep = len(self.heads), self.config.keep_metric
        if keep is not None:
            intact = sizes[0]["selection_metric"]
            tried = {row["fixed"]: row["selection_metric"] for row in sizes[1:]}
            good = [count for count, metric in tried.items() if metric >= keep * intact > 0]
            if not good:
                raise HeadscopeError(
                    f"no number of fixed heads keeps {keep:g} of the metric, which is {intact:.4f}",
                    where="`keep_metric`",
                    expected=f"less: the best of those that were tried has {max(tried.values()):.4f}",
                    fix="Name smaller `sizes`, or leave `keep_metric` out",
                )
            size = max(good)
        for row in rows:
            row["is_chosen"] = row["kind"] == "least" and row["fixed"] == size
        return self.order[:size]

    # The result

    def result(self, rows: list[FixingRow], heads: list[Head], study: Study) -> FixedPatternsResult:
        """The model with these heads fixed, and its record."""
        patterns = {head: self.patterns[head] for head in heads}
        fixed = fix_heads(self.model, patterns)
        whole, smaller = self._speeds(f"{len(heads)} heads", lambda: fixed)
        after = self._evaluate(f"least {len(heads)} heads", lambda: fixed)[1]
        before, metrics = (metrics_of(self.task, results) for results in (self.intact[1], after))
        within = _within(rows)
        # the first row is the model without new fixed heads
        margin = Margin(rows[0]["metric"], 1 - WITHIN)
        count = len(self.examples[1].items)
        verdict = verdict_in(within, margin, count)
        record: PruningRecord = {
            "how": self._sentence(),
            "task": self.task.name,
            "metric": self.task.metrics[0],
            "judged_on": f"{self.task.name}, {self.report_on}, {count} examples",
            **describe_splits(self.data, *self.examples),
            "patterns": {str(head): name for head, name in sorted(patterns.items())},
            "order": list(map(str, self.order)),
            "within": within["fixed"],
            "metrics": {name: [before[name], metrics[name]] for name in before},
            "timed": timing_setup(self.model),
            "speed": [speed_record(whole), speed_record(smaller, "fixed")],
        }
        self.run.log(
            f"{within['fixed']} of {len(self.heads)} heads can be fixed within 1 % of the metric on "
            f"{self.select_on}; on {self.report_on} that changes it by {change_text(within)}"
            f"{': ' + verdict.sentence if within['fixed'] else ''}"
        )
        return FixedPatternsResult(fixed, record, study, patterns=patterns, among=self.model.heads)

    def _sentence(self) -> str:
        """How patterns and heads were chosen, for the model card."""
        on = f"on {len(self.examples[0].items)} examples of {self.select_on}"
        patterns = "Patterns were named"
        if self.config.patterns is None:
            patterns = "Each head has its nearest pattern"
        first = f"the least important heads are fixed first ({on})"
        return f"{patterns}; {first}. Nothing was chosen on the examples below."


def _within(rows: list[FixingRow]) -> FixingRow:
    """The row with the most fixed heads whose metric on the selection split is at least 99 % of the intact model's."""
    sizes = [row for row in rows if row["kind"] == "least"]
    least = WITHIN * sizes[0]["selection_metric"]
    within = [row for row in sizes if row["selection_metric"] >= least]
    return max(within, key=lambda row: row["fixed"], default=sizes[0])
