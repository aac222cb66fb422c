"""Importance of every head for a task: by exact ablation, and by faster estimates."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import asdict, replace
from pathlib import Path

from headscope.ablation.ablation_results import LOSS
from headscope.ablation.ablation_run import AblationRun
from headscope.ablation.agreement import Importance, agreement, ceilings, rank_rows
from headscope.ablation.chance import Metrics, chance_note
from headscope.ablation.estimates import EstimateInputs, compute_estimate
from headscope.ablation.estimates.gradient import compute_terms
from headscope.ablation.evaluate import open_for
from headscope.ablation.modes import mode_class
from headscope.ablation.significance import metrics_of
from headscope.config.importance import ImportanceConfig
from headscope.config.names import ESTIMATES
from headscope.config.option import record_options
from headscope.config.requirements import without_effect
from headscope.config.shared import Reading, Run, TaskData
from headscope.data.records import find_split
from headscope.errors import HeadscopeError
from headscope.model.attention_model import AttentionModel
from headscope.model.fixed_patterns import patterns_by_head
from headscope.model.load import ModelSource
from headscope.study.journal import Journal
from headscope.study.run_record import (
    build_record,
    check_same_model,
    describe_files,
    describe_model,
    resume_header,
)
from headscope.study.schema.record import RunRecord, Section
from headscope.study.schema.tables import TABLES
from headscope.study.study import Study
from headscope.tables import Row, TableRow, to_frame
from headscope.tasks import Item, Prepared, Task, task_of
from headscope.tasks.inference import answers, describe_unpruned, evaluate, sites_in_use
from headscope.tasks.items import two_files


def importance(
    model: ModelSource,
    config: ImportanceConfig,
    data: TaskData,
    reading: Reading,
    run: Run,
    *,
    directory: Path | None = None,
    existing: Study | None = None,
) -> Study:
    """Importance of every head for a task, with intervals and tests: rows and tables of docs/reference/tables.md.

    directory  for the journal of finished ablations; None: the run cannot be resumed
    existing   a study of the same model, to which the result is added
    """
    started = time.perf_counter()
    task, items = _read_items(config, data)
    model = open_for(task, model, reading, run)
    if existing is not None:
        check_same_model(model, existing, run.out or "study")
    model.self_check()
    if config.patterns is not None:
        config = replace(config, patterns=patterns_by_head(config.patterns, model.heads))
    prepared = task.prepare(model, items, max_length=data.max_length)
    is_labelled = prepared.items[0].target is not None or not config.self_labels
    if not is_labelled:
        run.log("note: the data has no labels: the model's own predictions are the labels")
        predictions = answers(model, task, prepared, batch_size=config.batch_size)
        prepared = task.with_predicted_labels(predictions, prepared)
    work = _Importances(model, task, prepared, config, run)
    intact = metrics_of(task, work.intact)
    chance = _describe_intact(work, intact)
    described = describe_model(model)
    files = two_files(data.data) or [find_split(data.data, data.split, task=task.name)]
    facts: Section = {
        "task": task.name,
        "data": describe_files(files),
        "examples": len(prepared.items),
        "config": record_options(config, data, reading, run),
    }
    if directory is not None and "ablation" in config.by:
        header = resume_header(described, ("model", "data", "tasks", "ablation"), **facts)
        work.ablation.journal = Journal(directory, header, resume=run.resume)
    study = work.study()
    section = {**facts, **_describe_run(work, intact, chance, is_labelled=is_labelled)}
    durations = work.durations | {"all": round(time.perf_counter() - started, 3)}
    sections: RunRecord = {"importance": section, "durations": durations}
    study.record = build_record(described, sections, command=run.typed or None, seed=run.seed)
    return study if existing is None else existing.merge(study)


def _describe_run(
    work: _Importances, intact: Metrics, chance: str | None, *, is_labelled: bool
) -> Section:
    """Entries of the run record: left-out examples, results of the unpruned model, and how heads were ablated."""
    config, counts, ablation = work.config, work.prepared.counts, work.ablation
    return {
        "truncated": counts.truncated,
        "skipped": counts.skipped,
        "unknown": asdict(counts.unknown),
        "mode": config.mode,
        **({} if is_labelled else {"labels_by": "the model itself"}),
        **({"rules": config.relevance_rules or "voita"} if "relevance" in config.by else {}),
        "intact": intact,
        **({} if chance is None else {"knows_nothing": chance}),
        "metric": work.task.metrics[0],
        "way": ablation.method,
        **({"patterns": ablation.patterns} if ablation.patterns else {}),
        "notes": ablation.notes,
    }


def _read_items(config: ImportanceConfig, data: TaskData) -> tuple[Task, list[Item]]:
    """The task and its examples. With `self_labels` the task accepts examples without labels."""
    task = task_of(data)
    if config.sequential_test is not None and task.is_coupled:
        raise HeadscopeError(
            f"`sequential_test` cannot be used with {task.name}: its examples depend on each other",
            fix="Leave `sequential_test` out",
        )
    if config.self_labels:
        task = copy(task)  # the caller's task must not change
        task.needs_labels = False
    items = task.items(data.data, data.split, limit=data.limit)
    if config.self_labels and "gradient" not in config.by and items[0].target is not None:
        raise without_effect("self_labels", '`by="gradient"` (or all), or data without labels')
    return task, items


def _describe_intact(work: _Importances, intact: Metrics) -> str | None:
    """Log the metric of the unpruned model. Returns a note if the model is at chance level."""
    task, prepared, log = work.task, work.prepared, work.run_config.log
    metric = intact[task.metrics[0]]["value"]
    if metric is None:
        raise HeadscopeError(
            f"{task.metrics[0]} is undefined on these {len(prepared.items)} examples: "
            "the model gives one answer to all of them",
            where=f'`task="{task.name}"`',
            fix="Take more examples, or a model that was trained for longer",
        )
    log(describe_unpruned(task, metric, len(prepared.items)))
    chance = chance_note(work.model, task, prepared, intact)
    if chance is not None:
        log(f"note: {chance}")
    return chance


class _Importances:
    """Exact ablation and estimates on the same examples."""

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
        stacks = mode_class(config.mode).stacks
        sites = tuple(site for site in sites if stacks is None or site.stack in stacks)
        self.heads = tuple(head for head in model.heads if head.site in sites)
        self.ablation = AblationRun(model, task, prepared, config, run, sites)
        self.durations: dict[str, float] = {}
        run.log(f"evaluating the unpruned model on {len(prepared.items)} examples")
        self.intact = evaluate(
            model, task, prepared, batch_size=config.batch_size, progress=run.progress
        )

    def study(self) -> Study:
        """Compute all importances and their agreement.

        Estimates come first: they are cheap, and if one of them raises an error, it does so before a long ablation.
        """
        model, task, prepared, config = self.model, self.task, self.prepared, self.config
        seed, log, progress = self.run_config.seed, self.run_config.log, self.run_config.progress
        inputs = EstimateInputs(
            model, task, prepared, self.heads, config, seed, log=log, progress=progress
        )
        if config.sequential_test is not None:
            with self._timed("sequential_test"):
                inputs.terms = compute_terms(inputs)
            self.ablation.start_sequential_test(inputs.terms, config.sequential_test)
        estimates = []
        for name in ESTIMATES:
            if name in config.by:
                with self._timed(name):
                    estimates.append(compute_estimate(name, inputs))
        rows: list[Row] = []
        tables: dict[str, list[TableRow]] = {}
        importances: dict[str, Importance] = {}
        if "ablation" in config.by:
            with self._timed("ablation"):
                self.ablation.run()
            rows += self.ablation.rows()
            tables |= self.ablation.tables()
        for estimate in estimates:
            rows += estimate.rows
            tables |= estimate.tables
            importances |= estimate.importances_of(self.heads)
        exact = self.ablation.exact(self.heads)
        if exact is not None:
            tables["ceilings"] = ceilings(exact, self.heads, seed=seed)
        if exact is not None and importances:
            tables["agreement"] = agreement(importances, exact, seed=seed)
            ranked = {LOSS: exact} | importances
            tables["ranks"] = rank_rows(ranked, self.heads, len(exact), seed=seed)
        frames = {name: TABLES[name].frame(table) for name, table in tables.items()}
        return Study(to_frame(rows), {}, {}, frames)

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.durations[name] = round(time.perf_counter() - start, 3)
