"""Replace heads by fixed attention patterns, and measure the loss: one head, a layer, more and more of them, and all.

Patterns and the order of heads are selected on one split, results are reported on another. The heads of the model
that is made have no queries and keys any more.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from headscope.ablation.ablation_results import LOSS, METRIC
from headscope.ablation.evaluate import open_for
from headscope.ablation.importance import importance
from headscope.ablation.noninferiority import Margin, verdict_in
from headscope.ablation.significance import metrics_of, resamples
from headscope.config.fix import FixConfig
from headscope.config.importance import ImportanceConfig
from headscope.config.option import recorded
from headscope.config.search import splits_of
from headscope.config.shared import Reading, Run, TaskData
from headscope.errors import HeadscopeError
from headscope.heads import Head, HeadSet
from headscope.model import latency as speed
from headscope.model.attention_model import AttentionModel
from headscope.model.fix_heads import check_fix, read_patterns, written
from headscope.model.fix_heads import fix as fix_heads
from headscope.model.fixed_patterns import by_head
from headscope.pruning.model_result import ModelResult
from headscope.pruning.pareto_front import (
    UNTIMED,
    Speeds,
    changes,
    on_front,
    speeds_of,
    time_columns,
)
from headscope.pruning.search import JournalMemory
from headscope.pruning.subset_evaluator import Memory
from headscope.study.journal import NAME as JOURNAL
from headscope.study.journal import Journal
from headscope.study.run_record import code_of, describe_model, versions
from headscope.study.schema.record import Section
from headscope.study.schema.tables import TABLES
from headscope.study.study import Study
from headscope.tasks import Judged, Prepared, task_of
from headscope.tasks.base import check_apart
from headscope.tasks.running import evaluate

ALONE, REPORTED = "alone", "reported"  # folders of the two sweeps, until the model is written
TEMPORARY = (ALONE, REPORTED, JOURNAL)
WITHIN = 0.99  # share of the metric: how many heads can be fixed within it?


@dataclass
class FixResult(ModelResult):
    """A model with fixed heads, and what was measured. patterns: of each fixed head."""

    patterns: dict[Head, str] = field(kw_only=True)
    among: tuple[Head, ...] = field(kw_only=True, repr=False)  # all heads of the model

    def write_plan(self, folder: Path) -> None:
        (folder / "patterns.txt").write_text(written(self.patterns, self.among), "utf-8")


@dataclass(frozen=True)
class FixInputs:
    """The loaded model, the heads that may be fixed, given patterns, and the examples to select and to report on."""

    model: AttentionModel
    heads: list[Head]
    patterns: dict[Head, str] | None
    items: tuple[list[Any], list[Any]]


def read_inputs(
    model: AttentionModel | str | Path,
    config: FixConfig,
    data: TaskData,
    reading: Reading,
    run: Run,
) -> FixInputs:
    """Read the examples, load the model, and refuse what cannot be fixed."""
    task = task_of(data)
    select_on, report_on = splits_of(data)
    to_select = task.items(data.data, select_on, limit=data.limit)
    to_report = task.items(data.data, report_on, limit=data.report_limit)
    check_apart(to_select, to_report, "`report_on`")
    loaded = open_for(task, model, reading, run)
    loaded.reading.check(loaded.name)  # what cannot be saved is not fixed
    patterns = (
        None
        if config.patterns is None
        else read_patterns(config.patterns, loaded.heads, where="`patterns`")
        if isinstance(config.patterns, str)
        else by_head(config.patterns, loaded.heads)
    )
    heads = _candidates(loaded, config, patterns)
    sizes = config.reported_sizes
    if not isinstance(sizes, int) and max(sizes) > len(heads):
        what = f"{max(sizes)} heads cannot be fixed"
        raise HeadscopeError(what, where="`sizes`", expected=f"at most {len(heads)}")
    return FixInputs(loaded, heads, patterns, (to_select, to_report))


def fix(
    inputs: FixInputs, config: FixConfig, data: TaskData, reading: Reading, run: Run, folder: Path
) -> FixResult:
    """Fix heads and measure the loss. folder: for finished work, from which a stopped run is resumed."""
    started = time.perf_counter()
    fixing = _Fixing(inputs, config, data, reading, run, folder)
    fixing.choose(inputs.patterns)
    study = fixing.alone(REPORTED, fixing.report_on, data.report_limit, fixing.patterns)
    fixing.prepare(inputs.items)
    rows = fixing.rows()
    result = fixing.result(rows, fixing.chosen(rows), study)
    study.tables["fixing"] = TABLES["fixing"].frame(rows)
    study.record["command"] = run.typed
    study.record["config"] = recorded(config, data, reading, run)
    study.record["fixing"] = {**result.record, "seconds": round(time.perf_counter() - started, 1)}
    return result


def delete_temporary(folder: Path) -> None:
    """Delete finished work, once the model is written."""
    for name in (ALONE, REPORTED):
        shutil.rmtree(folder / name)
    (folder / JOURNAL).unlink()


def _candidates(
    model: AttentionModel, config: FixConfig, patterns: Mapping[Head, str] | None
) -> list[Head]:
    """The heads that may be fixed, or a refusal before anything is measured."""
    free = [
        head
        for head in model.heads
        if head.stack in ("encoder", "decoder") and head not in model.fixed
    ]
    heads = list(patterns) if patterns is not None else free
    if config.heads is not None:
        heads = list(HeadSet(config.heads, among=model.heads))
        across = [head for head in heads if head.stack not in ("encoder", "decoder")]
        if across:
            raise HeadscopeError(
                f"{across[0]} reads one text and attends to another",
                where="`heads`",
                expected="self-attention",
            )
    check_fix(model, patterns or dict.fromkeys(heads, "current"))
    if any(len(sites) > 1 for sites in model.attention_modules.values()):
        raise HeadscopeError(
            "its layers share their heads, which cannot be fixed one by one",
            where=model.name,
            mend='Fix them in Python: headscope.fix(model, {"*.2": "previous"})',
        )
    return sorted(heads)


class _Fixing:
    """One run of `fix`."""

    def __init__(
        self,
        inputs: FixInputs,
        config: FixConfig,
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

    def choose(self, given: Mapping[Head, str] | None) -> None:
        """Each head's pattern, and the order in which heads are fixed: those first that are missed least."""
        self.run.log(f"fixing {len(self.heads)} heads one at a time on {self.select_on}, to choose")
        study = self.alone(ALONE, self.select_on, self.data.limit, given)
        nearest = study.record["importance"]["patterns"]
        self.patterns = (
            dict(given) if given is not None else {head: nearest[str(head)] for head in self.heads}
        )
        by_loss = self.task.objective == "loss"
        rows = study.heads[study.heads["statistic"] == (LOSS if by_loss else METRIC)]
        places = zip(rows["stack"], rows["layer"], rows["head"], strict=True)
        change = dict(zip((Head(*place) for place in places), rows["value"].tolist(), strict=True))
        self.order = sorted(
            self.heads, key=lambda head: (change[head] if by_loss else -change[head], head)
        )

    def alone(
        self, name: str, split: str, limit: int | None, patterns: Mapping[Head, str] | None
    ) -> Study:
        """The exact change by each head alone on a split."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        config = ImportanceConfig(
            mode="fixed",
            heads=",".join(map(str, self.heads)),
            patterns=patterns,
            batch_size=self.config.batch_size,
        )
        data = TaskData(
            self.task, self.data.data, split, limit=limit, max_length=self.data.max_length
        )
        run = Run(
            seed=self.run.seed,
            resume=self.run.resume,
            progress=self.run.progress,
            log=self.run.log,
        )
        return importance(self.model, config, data, Reading(), run, directory=folder)

    # Several

    def prepare(self, splits: Sequence[list[Any]]) -> None:
        """The examples of both splits, the intact model on them, and the memory of what was measured."""
        header = {
            "model": describe_model(self.model)["sha256"],
            "reading": self.model.reading.record(),
            "config": recorded(self.config, self.data, self.reading, self.run),
            "order": list(map(str, self.order)),
            "patterns": {str(head): name for head, name in self.patterns.items()},
            "examples": list(map(len, splits)),
            "code": code_of("model", "data", "tasks", "ablation", "pruning"),
            "versions": versions(),
        }
        self.memory = JournalMemory(Journal(self.folder, header, resume=self.run.resume))
        self.examples: list[Prepared] = [
            self.task.prepare(self.model, items, max_length=self.data.max_length)
            for items in splits
        ]
        self.draws = None if self.task.mean_column is not None else resamples(len(splits[1]), 0)
        self.intact = self._judged("intact", lambda: self.model)

    def rows(self) -> list[dict[str, Any]]:
        """One for each number of heads, in the order of `choose`, and one for each layer."""
        self.run.log(f"fixing several on {len(self.examples[1].items)} other examples")
        rows = [self._row("least", f"{size} heads", self.order[:size]) for size in self._sizes()]
        fronts = on_front([{**row, "left": row["learned"]} for row in rows])
        rows = [row | {"is_front": is_front} for row, is_front in zip(rows, fronts, strict=True)]
        for site in dict.fromkeys(head.site for head in self.heads):
            here = [head for head in self.heads if head.site == site]
            if len(here) < len(self.heads):
                rows.append(self._row("layer", str(site), here) | {"is_front": False})
        return rows

    def _sizes(self) -> list[int]:
        """From none to all."""
        count, wanted = len(self.heads), self.config.reported_sizes
        if isinstance(wanted, int):
            return sorted(
                {round(i * count / max(wanted - 1, 1)) for i in range(wanted)} | {0, count}
            )
        return sorted({*wanted, 0, count})

    def _row(self, kind: str, named: str, heads: list[Head]) -> Section:
        @cache
        def fixed() -> AttentionModel:
            if not heads:
                return self.model
            return fix_heads(self.model, {head: self.patterns[head] for head in heads})

        chosen_on, reported = self._judged(f"{kind} {named}", fixed) if heads else self.intact
        before = sum(p.numel() for p in self.model.model.parameters())
        row = {
            "kind": kind,
            "named": named,
            "fixed": len(heads),
            "learned": len(self.model.heads) - len(heads) - len(self.model.fixed),
            "parameters": before
            if not heads
            else sum(p.numel() for p in fixed().model.parameters()),
            **(
                UNTIMED
                if not heads
                else time_columns(self._speeds(named, fixed))
                if kind == "least"
                else dict.fromkeys(UNTIMED, np.nan)
            ),
            "selection_loss": float(chosen_on.losses.mean()),
            "selection_metric": float(self.task.measure(chosen_on.scores)[self.task.metrics[0]]),
            **changes(self.task, self.intact[1], reported, self.draws),
            "heads": str(HeadSet(heads, among=self.model.heads)) if heads else "",
        }
        self.run.log(
            f"{named} fixed: {self.task.metrics[0]} {row['metric']:.4f}, change {row['metric_change']:+.4f} "
            f"[{row['change_low']:+.4f}, {row['change_high']:+.4f}]"
        )
        return row

    def _judged(self, key: str, model: Callable[[], AttentionModel]) -> list[Judged]:
        """A model on both splits."""
        known = self.memory.get(key)
        if known is None:
            size = self.config.batch_size
            both = [
                evaluate(model(), self.task, examples, batch_size=size)
                for examples in self.examples
            ]
            known = [{"losses": one.losses.tolist(), "scores": one.scores.tolist()} for one in both]
            self.memory.add(key, known)
        return [Judged(np.array(one["losses"]), np.array(one["scores"])) for one in known]

    def _speeds(self, named: str, fixed: Callable[[], AttentionModel]) -> Speeds:
        """The model with these heads fixed beside the whole one, measured once."""
        known: Speeds | None = self.memory.get(f"speeds {named}")
        if known is None:
            known = speeds_of(self.model, fixed())
            self.memory.add(f"speeds {named}", known)
        return known

    def chosen(self, rows: list[dict[str, Any]]) -> list[Head]:
        """The heads that are fixed in the end; marks their row."""
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
                    mend="Name smaller `sizes`, or leave `keep_metric` out",
                )
            size = max(good)
        for row in rows:
            row["is_chosen"] = row["kind"] == "least" and row["fixed"] == size
        return self.order[:size]

    # The result

    def result(self, rows: list[Section], heads: list[Head], study: Study) -> FixResult:
        """The model with these heads fixed, and its record."""
        patterns = {head: self.patterns[head] for head in heads}
        fixed = fix_heads(self.model, patterns)
        length = speed.longest(self.model, speed.TIMED[1])
        whole, smaller = self._speeds(f"{len(heads)} heads", lambda: fixed)
        after = self._judged(f"least {len(heads)} heads", lambda: fixed)[1]
        before, metrics = (metrics_of(self.task, one) for one in (self.intact[1], after))
        within = _within(rows)
        margin = Margin(rows[0]["metric"], 1 - WITHIN)  # the first row is the whole model
        verdict = verdict_in(within, margin, len(self.examples[1].items))
        record = {
            "how": self._sentence(),
            "task": self.task.name,
            "metric": self.task.metrics[0],
            "judged_on": f"{self.task.name}, {self.report_on}, {len(self.examples[1].items)} examples",
            "selected_on": {
                "split": self.select_on,
                "examples": len(self.examples[0].items),
            },
            "reported_on": {
                "split": self.report_on,
                "examples": len(self.examples[1].items),
            },
            "patterns": {str(head): name for head, name in sorted(patterns.items())},
            "order": list(map(str, self.order)),
            "within": within["fixed"],
            "metrics": {name: [before[name], metrics[name]] for name in before},
            "timed": f"{speed.TIMED[0]} sequences of {length} tokens",
            "speed": [whole, smaller | {"name": "fixed"}],
        }
        change = f"{within['metric_change']:+.4f} [{within['change_low']:+.4f}, {within['change_high']:+.4f}]"
        self.run.log(
            f"{within['fixed']} of {len(self.heads)} heads can be fixed within 1 % of the metric on "
            f"{self.select_on}; on {self.report_on} that changes it by {change}"
            f"{': ' + verdict.sentence if within['fixed'] else ''}"
        )
        return FixResult(fixed, record, study, patterns=patterns, among=self.model.heads)

    def _sentence(self) -> str:
        on = f"on {len(self.examples[0].items)} examples of {self.select_on}"
        patterns = (
            "Each head follows the pattern it is nearest to"
            if self.config.patterns is None
            else "Patterns were named"
        )
        return f"{patterns}; heads that are missed least come first ({on}). Nothing was chosen on the examples below."


def _within(rows: list[Section]) -> Section:
    """The row of the most heads that keep the metric within 1 % of the whole model's, where they were chosen."""
    sizes = [row for row in rows if row["kind"] == "least"]
    least = WITHIN * sizes[0]["selection_metric"]
    return max(
        (row for row in sizes if row["selection_metric"] >= least),
        key=lambda row: row["fixed"],
        default=sizes[0],
    )
