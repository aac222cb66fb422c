"""Importance of every head for a task: exact ablation and faster estimates."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from copy import copy
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from headscope.ablation.ablation_results import LOSS
from headscope.ablation.ablation_run import AblationRun
from headscope.ablation.agreement import Importance, agreement, ceilings, rank_rows
from headscope.ablation.chance import chance_note
from headscope.ablation.evaluate import open_for
from headscope.ablation.gradients import Terms, terms
from headscope.ablation.norms import output_norms
from headscope.ablation.relevance import Relevances, relevances
from headscope.ablation.significance import metrics_of
from headscope.config.importance import ImportanceConfig
from headscope.config.option import recorded
from headscope.config.requirements import without_effect
from headscope.config.shared import Reading, Run, TaskData
from headscope.data.records import find_split
from headscope.errors import HeadscopeError
from headscope.heads import Head
from headscope.model.attention_model import AttentionModel
from headscope.model.fixed_patterns import by_head
from headscope.statistics import select_statistics as statistics_named
from headscope.statistics import stream
from headscope.study.journal import Journal
from headscope.study.run_record import (
    build_record,
    check_same_model,
    describe_files,
    describe_model,
    hash_code,
    versions,
)
from headscope.study.schema.record import RunRecord
from headscope.study.schema.tables import TABLES
from headscope.study.study import Study
from headscope.tables import Moments, Row, TableRow, rows_of, to_frame
from headscope.tasks import Judged, Prepared, Task, task_of
from headscope.tasks.base import batch_of, plan_batches, two_files
from headscope.tasks.inference import answers, describe_unpruned, evaluate, sites_in_use


def importance(
    model: AttentionModel | str | Path,
    config: ImportanceConfig,
    data: TaskData,
    reading: Reading,
    run: Run,
    *,
    directory: Path | None = None,
    existing: Study | None = None,
) -> Study:
    """Importance of every head for a task, with intervals and tests: rows and tables as docs/study.md lists them.

    directory  holds the journal of finished ablations; without one nothing can be resumed
    existing   a study of the same model, to which the result is added
    """
    started = time.perf_counter()
    task = task_of(data)
    if config.race is not None and task.is_coupled:
        raise HeadscopeError(
            f"`race` cannot be used with {task.name}: its examples depend on each other",
            fix="Leave `race` out",
        )
    if config.labels_free:
        task = copy(task)  # the caller's is not changed
        task.needs_labels = False
    items = task.items(data.data, data.split, limit=data.limit)
    if config.labels_free and "gradient" not in config.by and items[0].target is not None:
        raise without_effect("labels_free", '`by="gradient"` (or all), or data without labels')
    model = open_for(task, model, reading, run)
    if existing is not None:
        check_same_model(model, existing, run.out or "study")
    model.canary()
    if config.patterns is not None:
        config = replace(config, patterns=by_head(config.patterns, model.heads))
    prepared = task.prepare(model, items, max_length=data.max_length)
    is_labelled = prepared.items[0].target is not None or not config.labels_free
    if not is_labelled:
        run.log("note: the data has no labels: the model's own predictions are the labels")
        predictions = answers(model, task, prepared, batch_size=config.batch_size)
        prepared = task.with_predicted_labels(predictions, prepared)
    work = _Importances(model, task, prepared, config, run)
    _refuse_undefined(task, work.intact)
    intact = metrics_of(task, work.intact)
    metric = intact[task.metrics[0]]["value"]
    run.log(describe_unpruned(task, math.nan if metric is None else metric, len(prepared.items)))
    chance = chance_note(model, task, prepared, intact)
    if chance is not None:
        run.log(f"note: {chance}")
    described = describe_model(model)
    facts: dict[str, Any] = {
        "task": task.name,
        "data": describe_files(
            two_files(data.data) or [find_split(data.data, data.split, task=task.name)]
        ),
        "examples": len(prepared.items),
        "config": recorded(config, data, reading, run),
    }
    if directory is not None and "ablation" in config.by:
        header = {
            "model": described["sha256"],
            "dtype": described["dtype"],
            "device": described["device"],
            "edits": described["edits"],
            "reading": described["reading"],
            "code": hash_code("model", "data", "tasks", "ablation"),
            **facts,
            "versions": {name: version for name, version in versions().items() if name != "python"},
        }
        work.ablation.journal = Journal(directory, header, resume=run.resume)
    study = work.study()
    sections: RunRecord = {
        "importance": {
            **facts,
            "truncated": prepared.counts.truncated,
            "skipped": prepared.counts.skipped,
            "unknown": asdict(prepared.counts.unknown),
            "mode": config.mode,
            **({} if is_labelled else {"labels_by": "the model itself"}),
            **({"rules": config.rules or "voita"} if "relevance" in config.by else {}),
            "intact": intact,
            **({} if chance is None else {"knows_nothing": chance}),
            "metric": task.metrics[0],
            "way": work.ablation.method,
            **({"patterns": work.ablation.patterns} if work.ablation.patterns else {}),
            "notes": work.ablation.notes,
        },
        "durations": work.durations | {"all": round(time.perf_counter() - started, 3)},
    }
    study.record = build_record(described, sections, command=run.typed or None, seed=run.seed)
    return study if existing is None else existing.merge(study)


class _Importances:
    """The importances of one run: exact ablation and estimates, on the same examples."""

    def __init__(
        self,
        model: AttentionModel,
        task: Task,
        prepared: Prepared,
        config: ImportanceConfig,
        run: Run,
    ) -> None:
        self.model, self.task, self.prepared = model, task, prepared
        self.config, self.run_config = config, run
        sites = sites_in_use(model, task, prepared)
        if config.mode == "fixed":  # cross-attention has no fixed pattern
            sites = tuple(site for site in sites if site.stack in ("encoder", "decoder"))
        self.heads = tuple(head for head in model.heads if head.site in sites)
        self.ablation = AblationRun(model, task, prepared, config, run, sites)
        self.durations: dict[str, float] = {}
        self._terms: Terms | None = None
        self._guides: Terms | None = None  # gradients of the loss that a sequential test is about
        run.log(f"evaluating the unpruned model on {len(prepared.items)} examples")
        self.intact = evaluate(
            model, task, prepared, batch_size=config.batch_size, progress=run.progress
        )

    def study(self) -> Study:
        rows: list[Row] = []
        tables: dict[str, list[TableRow]] = {}
        importances: dict[str, Importance] = {}
        if self.config.race is not None:
            self._guides = self._timed("race", lambda: self._gradient_terms(labels_free=False))
            self.ablation.start_race(self._guides, self.config.race)
        if "gradient" in self.config.by:
            self._terms = self._timed(
                "gradient", lambda: self._gradient_terms(labels_free=self.config.labels_free)
            )
        if "ablation" in self.config.by:
            self._timed("ablation", self.ablation.run)
            rows += self.ablation.rows()
            tables |= self.ablation.tables()
        if "gradient" in self.config.by:
            assert self._terms is not None
            rows += self._terms.rows(normalized=self.config.normalized)
            importances |= self._terms.importances(normalized=self.config.normalized)
        if "relevance" in self.config.by:
            relevance = self._timed("relevance", self._relevances)
            rows += relevance.rows()
            importances |= relevance.importances()
            tables["relevance_layers"] = relevance.layer_rows()
        rows += self._timed("others", lambda: self._others(importances))
        exact = self.ablation.exact(self.heads)
        if exact is not None:
            tables["ceilings"] = ceilings(exact, self.heads, seed=self.run_config.seed)
        if exact is not None and importances:
            tables["agreement"] = agreement(importances, exact, seed=self.run_config.seed)
            tables["ranks"] = rank_rows(
                {LOSS: exact} | importances, self.heads, len(exact), seed=self.run_config.seed
            )
        frames = {name: TABLES[name].frame(table) for name, table in tables.items()}
        return Study(to_frame(rows), {}, {}, frames)

    def _timed(self, name: str, work: Callable[[], Any]) -> Any:
        begun = time.perf_counter()
        result = work()
        self.durations[name] = round(time.perf_counter() - begun, 3)
        return result

    def _gradient_terms(self, *, labels_free: bool) -> Terms:
        if self._guides is not None and not labels_free:
            return self._guides
        self.run_config.log("gradients")
        return terms(
            self.model,
            self.task,
            self.prepared,
            batch_size=self.config.batch_size,
            labels_free=labels_free,
            progress=self.run_config.progress,
        )

    def _relevances(self) -> Relevances:
        self.run_config.log(f"relevance by the rules of {self.config.rules or 'voita'}")
        return relevances(
            self.model,
            self.task,
            self.prepared,
            rules=self.config.rules or "voita",
            batch_size=self.config.batch_size,
            seed=self.run_config.seed,
            progress=self.run_config.progress,
        )

    def _others(self, importances: dict[str, Importance]) -> list[Row]:
        rows: list[Row] = []
        heads = self.heads
        wanted = [name for name in self.config.by if name in ("confidence", "entropy")]
        if wanted:
            self.run_config.log(" and ".join(wanted))
            statistics = statistics_named(wanted)
            batches = (
                batch_of(self.model, self.prepared, numbers)
                for numbers in plan_batches(self.prepared, self.config.batch_size)
            )
            for _ in stream(self.model, batches, statistics):
                pass
            measured = [
                row
                for statistic in statistics
                for row in statistic.table()
                if row.statistic in wanted
            ]
            rows += measured
            for name in wanted:
                by_head = {
                    Head(row.stack, row.layer, row.head): row.value
                    for row in measured
                    if row.statistic == name
                }
                sign = (
                    -1 if name == "entropy" else 1
                )  # a head that spreads its attention is held for less important
                importances[name] = sign * np.array([by_head.get(head, np.nan) for head in heads])
        if "norm" in self.config.by:
            norms = output_norms(
                self.model, self.task, self.prepared, self.heads, self.config.batch_size
            )
            if norms is not None:
                moments = Moments((len(heads),))
                moments.add(norms)
                rows += rows_of(heads, "output-norm", moments)
                importances["output-norm"] = norms
            else:
                self.run_config.log(
                    "note: this family's heads have no output projection that is a module, so no norms"
                )
        if "random" in self.config.by:
            chance = np.random.default_rng(self.run_config.seed).random(len(heads))
            rows += _rows("random", dict(zip(heads, chance.tolist(), strict=True)))
            importances["random"] = chance
        return rows


def _refuse_undefined(task: Task, intact: Judged) -> None:
    """A metric that the intact model has no value of cannot change."""
    name = task.metrics[0]
    if not np.isfinite(task.measure(intact.scores)[name]):
        raise HeadscopeError(
            f"{name} is undefined on these {len(intact.losses)} examples: the model gives one answer to all of them",
            where=f'`task="{task.name}"`',
            fix="Take more examples, or a model that was trained for longer",
        )


def _rows(name: str, values: dict[Head, float]) -> list[Row]:
    nothing = float("nan")
    return [
        Row(h.stack, h.layer, h.head, name, value, nothing, nothing, 1)
        for h, value in values.items()
    ]
