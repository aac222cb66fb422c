"""importance, the verb: what every head does for a task, by exact removal and by cheaper guesses of it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from headscope.ablation.ablation_results import LOSS
from headscope.ablation.ablation_run import Asked, Progress, Removal, Told
from headscope.ablation.ablation_targets import KINDS
from headscope.ablation.agreement import Importance, agreement, ceilings, rank_rows
from headscope.ablation.chance import chance_note
from headscope.ablation.evaluate import loaded_for
from headscope.ablation.gradients import Terms, terms
from headscope.ablation.norms import output_norms
from headscope.ablation.relevance import Relevances, relevances
from headscope.ablation.significance import metrics_of
from headscope.ablation.sweep import Mode, check_mode
from headscope.config.checks import check_pairs, check_rules
from headscope.config.requirements import check_effects, without_effect
from headscope.data.records import find_split
from headscope.errors import HeadscopeError, choices, names_in
from headscope.heads import Head, Heads, written_heads
from headscope.model.attention_model import AttentionModel
from headscope.model.fixed_patterns import Patterns, by_head
from headscope.model.relevance.rules import Rules
from headscope.statistics import chosen as statistics_named
from headscope.statistics import stream
from headscope.study.journal import Journal
from headscope.study.run_record import (
    build_record,
    code_of,
    describe_files,
    describe_model,
    versions,
)
from headscope.study.schema.record import RunRecord
from headscope.study.schema.tables import TABLES
from headscope.study.study import Study
from headscope.tables import Moments, Row, TableRow, rows_of, to_frame
from headscope.tasks import Judged, Prepared, Task, task_named
from headscope.tasks.base import batch_of, plan, two_files
from headscope.tasks.running import answers, evaluate, sites_in_use, unpruned

BY = ("ablation", "gradient", "relevance", "confidence", "entropy", "norm", "random")


def importance(
    model: AttentionModel | str | Path | Callable[[str], AttentionModel],
    *,
    task: str | Task,
    data: str | Path,
    by: str | Iterable[str] = "ablation",
    split: str = "dev",
    kinds: str | Iterable[str] = "head",
    mode: Mode = "zero",
    heads: Heads | None = None,
    patterns: Patterns | None = None,
    race: float | None = None,
    labels_free: bool = False,
    normalized: bool = False,
    rules: Rules | None = None,
    columns: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    max_length: int | None = None,
    limit: int | None = None,
    batch_size: int = 32,
    seed: int = 0,
    journal: Callable[[dict[str, Any]], Journal] | None = None,
    progress: Progress = lambda done, total: None,
    say: Told = lambda line: None,
) -> Study:
    """What every head does for a task, with intervals and tests; a study with the rows and tables of docs/study.md.

    by           ablation (exact), gradient, relevance, confidence, entropy, norm, random; several, or "all"
    kinds        what is taken away: head, only (all but one of a site), site, layer, all, pair, shared (ALBERT)
    mode         zero, mean (its average result over the data), uniform (attention 1/n), fixed (its nearest pattern)
    heads        the heads that are taken away, alone or in pairs; all by default
    patterns     of the mode fixed: those chosen on other examples; by default each head's nearest on these
    race         settle clear heads early, at this error rate; None runs all heads on all examples
    labels_free  the gradient of the loss against what the model itself says
    normalized   gradients divided by the norm of their layer's (Michel's option)
    rules        of relevance: voita (everything that gates is held fixed; the default) or attnlrp
    journal      makes the journal of finished units from what the run depends on
    """
    started = time.perf_counter()
    asked = Asked(
        _named(by, BY, "`by`", "importance"),
        _named(kinds, KINDS, "`kinds`", "kind of ablation"),
        mode,
        None if heads is None else written_heads(heads),
        _rate(race),
        labels_free,
        normalized,
        batch_size,
        seed,
        rules=rules or "voita",
    )
    the_task = task_named(task, columns=columns, labels=labels) if isinstance(task, str) else task
    _check(asked, the_task)
    given = {
        "by": asked.by,
        "kind": kinds,
        "mode": mode,
        "heads": heads,
        "patterns": patterns,
        "race": race,
    }
    check_effects(
        "importance",
        given | {"normalized": normalized, "rules": rules, "data": data, "split": split},
    )
    if labels_free:
        the_task = copy(the_task)  # the caller's stays as it is
        the_task.needs_labels = False
    items = the_task.items(data, split, limit=limit)
    if labels_free and "gradient" not in asked.by and items[0].target is not None:
        raise without_effect("labels_free", '`by="gradient"` (or all), or data without labels')
    loaded = loaded_for(model, the_task)
    loaded.canary()
    if patterns is not None:
        asked = replace(asked, patterns=by_head(patterns, loaded.heads))
    prepared = the_task.prepare(loaded, items, max_length=max_length)
    is_labelled = prepared.items[0].target is not None or not labels_free
    if not is_labelled:
        say(
            "note: the data has no labels: what the model itself says stands in for what is right, everywhere"
        )
        prepared = the_task.labelled_by_itself(
            answers(loaded, the_task, prepared, batch_size=batch_size), prepared
        )
    described = describe_files(two_files(data) or [find_split(data, split, task=the_task.name)])
    model_now = describe_model(loaded)
    header: dict[str, Any] = {
        "model": model_now["sha256"],
        "dtype": model_now["dtype"],
        "device": model_now["device"],
        "edits": model_now["edits"],
        "reading": model_now["reading"],
        "code": code_of("model", "data", "tasks", "ablation"),
        "task": the_task.name,
        "data": described,
        "split": split,
        "examples": len(prepared.items),
        "kinds": list(asked.kinds),
        "options": {
            "mode": mode,
            "heads": asked.heads,
            "race": race,
            "columns": the_task.columns,
            "labels": the_task.renamed,
            "max_length": max_length,
            "limit": limit,
            "batch_size": batch_size,
            "seed": seed,
            **(
                {}
                if asked.patterns is None
                else {"patterns": {str(h): name for h, name in asked.patterns.items()}}
            ),
        },
        "versions": {name: version for name, version in versions().items() if name != "python"},
    }
    run = _Run(loaded, the_task, prepared, asked, progress, say)
    _refuse_undefined(the_task, run.intact)
    intact = metrics_of(the_task, run.intact)
    metric = intact[the_task.metrics[0]]["value"]
    say(unpruned(the_task, math.nan if metric is None else metric, len(prepared.items)))
    knows_nothing = chance_note(loaded, the_task, prepared, intact)
    if knows_nothing is not None:
        say(f"note: {knows_nothing}")
    run.removal.journal = None if journal is None or "ablation" not in asked.by else journal(header)
    study = run.study()
    sections: RunRecord = {
        "importance": {
            "task": the_task.name,
            "data": described,
            "split": split,
            "examples": len(prepared.items),
            "truncated": prepared.counts.truncated,
            "skipped": prepared.counts.skipped,
            "unknown": asdict(prepared.counts.unknown),
            "by": list(asked.by),
            "kinds": list(asked.kinds),
            **header["options"],
            "labels_free": labels_free,
            **({} if is_labelled else {"labels_by": "the model itself"}),
            "normalized": normalized,
            **({"rules": asked.rules} if "relevance" in asked.by else {}),
            "intact": intact,
            **({} if knows_nothing is None else {"knows_nothing": knows_nothing}),
            "metric": the_task.metrics[0],
            "way": run.removal.way,
            **({"patterns": run.removal.patterns} if run.removal.patterns else {}),
            "notes": run.removal.notes,
        },
    }
    run.durations["all"] = round(time.perf_counter() - started, 3)
    sections["durations"] = run.durations
    study.record = build_record(model_now, sections, seed=seed)
    return study


def _check(asked: Asked, task: Task) -> None:
    """Refuse what cannot be found out, before anything is read."""
    check_mode(asked.mode)
    check_rules(asked.rules)
    check_pairs(asked.kinds, asked.heads)
    if asked.race is not None and task.is_coupled:
        raise HeadscopeError(
            f"the examples of {task.name} hang together, so none can be left out",
            where="`race`",
            mend="Leave `race` out",
        )


class _Run:
    """One call of `importance`."""

    def __init__(
        self,
        model: AttentionModel,
        task: Task,
        prepared: Prepared,
        asked: Asked,
        progress: Progress,
        say: Told,
    ) -> None:
        self.model, self.task, self.prepared, self.asked = model, task, prepared, asked
        self.progress, self.say = progress, say
        sites = sites_in_use(model, task, prepared)
        if asked.mode == "fixed":  # from one text to another there is no fixed pattern
            sites = tuple(site for site in sites if site.stack in ("encoder", "decoder"))
        self.heads = tuple(head for head in model.heads if head.site in sites)
        self.removal = Removal(model, task, prepared, asked, sites, progress, say)
        self.durations: dict[str, float] = {}
        self._terms: Terms | None = None
        self._guides: Terms | None = None  # the race's: of the loss that is raced on
        say(f"evaluating the unpruned model on {len(prepared.items)} examples")
        self.intact = evaluate(
            model, task, prepared, batch_size=asked.batch_size, progress=progress
        )

    def study(self) -> Study:
        rows: list[Row] = []
        tables: dict[str, list[TableRow]] = {}
        importances: dict[str, Importance] = {}
        if self.asked.race is not None:
            self._guides = self._timed("race", lambda: self._found_terms(labels_free=False))
            self.removal.start_race(self._guides, self.asked.race)
        if "gradient" in self.asked.by:
            self._terms = self._timed(
                "gradient", lambda: self._found_terms(labels_free=self.asked.labels_free)
            )
        if "ablation" in self.asked.by:
            self._timed("ablation", self.removal.run)
            rows += self.removal.rows()
            tables |= self.removal.tables()
        if "gradient" in self.asked.by:
            assert self._terms is not None
            rows += self._terms.rows(normalized=self.asked.normalized)
            importances |= self._terms.importances(normalized=self.asked.normalized)
        if "relevance" in self.asked.by:
            shared_out = self._timed("relevance", self._relevances)
            rows += shared_out.rows()
            importances |= shared_out.importances()
            tables["relevance_layers"] = shared_out.layer_rows()
        rows += self._timed("others", lambda: self._others(importances))
        exact = self.removal.exact(self.heads)
        if exact is not None:
            tables["ceilings"] = ceilings(exact, self.heads, seed=self.asked.seed)
        if exact is not None and importances:
            tables["agreement"] = agreement(importances, exact, seed=self.asked.seed)
            tables["ranks"] = rank_rows(
                {LOSS: exact} | importances, self.heads, len(exact), seed=self.asked.seed
            )
        frames = {name: TABLES[name].frame(table) for name, table in tables.items()}
        return Study(to_frame(rows), {}, {}, frames)

    def _timed(self, name: str, work: Callable[[], Any]) -> Any:
        begun = time.perf_counter()
        found = work()
        self.durations[name] = round(time.perf_counter() - begun, 3)
        return found

    def _found_terms(self, *, labels_free: bool) -> Terms:
        if self._guides is not None and not labels_free:
            return self._guides
        self.say("gradients")
        return terms(
            self.model,
            self.task,
            self.prepared,
            batch_size=self.asked.batch_size,
            labels_free=labels_free,
            progress=self.progress,
        )

    def _relevances(self) -> Relevances:
        self.say(f"relevance by the rules of {self.asked.rules}")
        return relevances(
            self.model,
            self.task,
            self.prepared,
            rules=self.asked.rules,
            batch_size=self.asked.batch_size,
            seed=self.asked.seed,
            progress=self.progress,
        )

    def _others(self, importances: dict[str, Importance]) -> list[Row]:
        rows: list[Row] = []
        heads = self.heads
        wanted = [name for name in self.asked.by if name in ("confidence", "entropy")]
        if wanted:
            self.say(" and ".join(wanted))
            asked = statistics_named(wanted)
            batches = (
                batch_of(self.model, self.prepared, numbers)
                for numbers in plan(self.prepared, self.asked.batch_size)
            )
            for _ in stream(self.model, batches, asked):
                pass
            found = [
                row for statistic in asked for row in statistic.table() if row.statistic in wanted
            ]
            rows += found
            for name in wanted:
                by_head = {
                    Head(row.stack, row.layer, row.head): row.value
                    for row in found
                    if row.statistic == name
                }
                sign = (
                    -1 if name == "entropy" else 1
                )  # a head that spreads its attention is held for less important
                importances[name] = sign * np.array([by_head.get(head, np.nan) for head in heads])
        if "norm" in self.asked.by:
            norms = output_norms(
                self.model, self.task, self.prepared, self.heads, self.asked.batch_size
            )
            if norms is not None:
                moments = Moments((len(heads),))
                moments.add(norms)
                rows += rows_of(heads, "output-norm", moments)
                importances["output-norm"] = norms
            else:
                self.say(
                    "note: this family's heads have no output projection that is a module, so no norms"
                )
        if "random" in self.asked.by:
            chance = np.random.default_rng(self.asked.seed).random(len(heads))
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
            mend="Take more examples, or a model that was trained for longer",
        )


def _rows(name: str, values: dict[Head, float]) -> list[Row]:
    nothing = float("nan")
    return [
        Row(h.stack, h.layer, h.head, name, value, nothing, nothing, 1)
        for h, value in values.items()
    ]


def _named(
    given: str | Iterable[str], known: Sequence[str], where: str, what: str
) -> tuple[str, ...]:
    names = names_in(given, where.strip("`"))
    if "all" in names and where == "`by`":
        names = [*known]
    for name in names:
        if name not in known:
            words = [*known, "all"] if where == "`by`" else known
            raise HeadscopeError(
                f'"{name}" is no {what}', where=where, expected=choices(name, words)
            )
    return tuple(dict.fromkeys(names))


def _rate(race: float | None) -> float | None:
    if race is not None and not 0 < race < 1:
        raise HeadscopeError(
            f"{race} is no error rate", where="`race`", expected="a number between 0 and 1"
        )
    return race
