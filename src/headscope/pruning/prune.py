"""Prune a model: search for a plan or read one, remove its heads, repair and train the model, evaluate every stage."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch

from headscope.ablation.evaluate import open_for
from headscope.ablation.noninferiority import Margin, verdict_of
from headscope.ablation.significance import delta_of_metric, metrics_of, resamples_for
from headscope.config.command_line import option_words
from headscope.config.evaluate import EvaluateConfig, on_report_split
from headscope.config.option import record_options
from headscope.config.prune import PruneConfig
from headscope.config.search import splits_of
from headscope.config.shared import Reading, Run, TaskData
from headscope.errors import HeadscopeError
from headscope.heads import Heads, HeadSet
from headscope.masks.open_model import open_model
from headscope.model import surgery
from headscope.model.attention_model import AttentionModel
from headscope.model.load import ModelSource
from headscope.model.manifest import read_manifest
from headscope.model.pruning_record import PruningRecord, StageRecord
from headscope.model.saving import check_form, check_form_fits
from headscope.pruning.dry_run import DryRun, Size
from headscope.pruning.iterative_pruning import HEADER, STEPS, prune_in_steps
from headscope.pruning.model_result import ModelResult
from headscope.pruning.pareto_front import speed_record, speeds_of, timing_setup
from headscope.pruning.plan import Plan, read_plan
from headscope.pruning.recovery import TRAINING_FILES, check_report_split, check_splits, recover
from headscope.pruning.repair import repair_inplace
from headscope.pruning.search import OpenJournal, search
from headscope.pruning.search_inputs import calibration_set
from headscope.pruning.search_result import SearchResult
from headscope.study.journal import NAME as JOURNAL
from headscope.study.journal import Journal
from headscope.study.study import Study
from headscope.tasks import Judged, task_of
from headscope.tasks.inference import describe_unpruned, evaluate

# Files of finished work, from which a stopped run is resumed
TEMPORARY = (JOURNAL, HEADER, *TRAINING_FILES, *STEPS)

NAMED = "They were named."  # how the heads were chosen


@dataclass
class PruneResult(ModelResult):
    """A pruned model and its measurements. plan: the heads that were removed."""

    plan: Plan = field(kw_only=True)

    def write_plan(self, folder: Path) -> None:
        self.plan.write(folder / "plan.json")


def remove_heads(
    model: AttentionModel,
    heads: Heads | None = None,
    layers: int | str | Iterable[int | str] | None = None,
) -> PruneResult:
    """Remove named heads or whole layers; nothing is measured."""
    pruned = surgery.prune(model, heads, layers=layers)
    removed = set(surgery.removed_heads(pruned)) - set(surgery.removed_heads(model))
    plan = Plan.of(model, HeadSet(removed, among=surgery.original_heads(model)))
    return PruneResult(pruned, {"how": NAMED}, None, plan=plan)


def open_unpruned(
    model: ModelSource, config: PruneConfig, data: TaskData | None, reading: Reading, run: Run
) -> AttentionModel:
    """Load the model to prune, and check that it can be pruned with these options; cheap checks come first."""
    check_form(config.form)
    if data is None:
        loaded = open_model(model, reading, run)
    else:
        check_splits(config, data)
        loaded = open_for(task_of(data), model, reading, run)
    check_form_fits(loaded, config.form)
    if config.recover and loaded.model.dtype != torch.float32:
        raise HeadscopeError(
            "training is done in float32", where="`dtype`", fix="Leave `dtype` or `recover` out"
        )
    if config.heads is not None:
        surgery.check_prunable(loaded, surgery.read_heads(loaded, config.heads))
    return loaded


def preview(
    model: AttentionModel, config: PruneConfig, data: TaskData | None, reading: Reading, run: Run
) -> DryRun:
    """The plan and the size of the pruned model; nothing is repaired, trained or written."""
    if config.recover_steps:
        raise HeadscopeError(
            "steps with training cannot be shown without training", where="`dry_run`"
        )
    plan, result = _make_plan(model, config, data, reading, run)
    sizes = Size.of(model), Size.of(surgery.prune(model, list(plan.heads)))
    measured_on = None
    if data is not None:
        measured_on = option_words(EvaluateConfig(config.batch_size), on_report_split(data))
    return DryRun(plan, config.form, sizes, measured_on, has_study=result is not None)


def prune(
    model: AttentionModel,
    config: PruneConfig,
    data: TaskData | None,
    reading: Reading,
    run: Run,
    folder: Path,
) -> PruneResult:
    """Prune a loaded model.

    folder  for temporary files, and for finished work from which a stopped run is resumed
    """
    opened: list[Journal] = []

    def open_journal(header: Mapping[str, object]) -> Journal:
        opened.append(Journal(folder, header, resume=run.resume))
        return opened[0]

    trained: AttentionModel | None = None
    searched: SearchResult | None
    try:
        if config.recover_steps and data is not None:
            trained, searched = prune_in_steps(model, config, data, reading, run, folder)
            plan = searched.plan
        else:
            plan, searched = _make_plan(model, config, data, reading, run, open_journal)
    except HeadscopeError:
        # With corrected options the user starts another run, which could not resume from this journal.
        if opened:
            (folder / JOURNAL).unlink(missing_ok=True)
        raise
    run.log(_announcement(plan, searched))
    pruned = surgery.prune(model, list(plan.heads)) if trained is None else trained
    stages = None
    if data is not None:
        stages = _Stages(model, config, data, run, plan, searched)
        judged = None if searched is None else searched.judged[1]
        stages.add("cut" if trained is None else "in steps", pruned, judged)
        size, log = config.batch_size, run.log
        for repair in config.repair:
            examples = calibration_set(pruned, data)
            repair_inplace(model, pruned, repair, stages.task, examples, batch_size=size, say=log)
            stages.add(repair, pruned)
        if config.recover and trained is None:
            pruned = recover(model, pruned, folder, config, data, run)
            stages.add("recovered", pruned)
    recovery = {"epochs": config.recover, "teacher": config.distil} if config.recover else None
    record: PruningRecord = {
        **plan.chosen,
        "config": record_options(config, data, reading, run),
        "how": _describe(plan, config, is_judged=data is not None, is_trained=trained is not None),
        **({} if stages is None else stages.record()),
        "repair": list(config.repair),
        "recover": recovery,
        **_speeds(model, pruned, config, plan, searched, run),
    }
    study = (
        None
        if searched is None
        else _with_saved_model(searched.study, run.typed, config.form, record)
    )
    return PruneResult(pruned, record, study, config.form, plan=plan)


def delete_temporary(folder: Path) -> None:
    """Delete finished work. Call it only after the model is written."""
    for name in TEMPORARY:
        shutil.rmtree(folder / name, ignore_errors=True)
        (folder / name).unlink(missing_ok=True)


def _make_plan(
    model: AttentionModel,
    config: PruneConfig,
    data: TaskData | None,
    reading: Reading,
    run: Run,
    open_journal: OpenJournal | None = None,
) -> tuple[Plan, SearchResult | None]:
    """Read the plan from a file, make it from the named heads, or search for it."""
    if config.plan is not None:
        plan = read_plan(config.plan, model)
        if changes := _changes_after_pruning(Path(config.plan).parent):
            run.log(
                f"note: the model next to this plan was also changed by {changes}, which a plan does not contain. To "
                f'write that model in another form: headscope.load("{Path(config.plan).parent}").save(OUT, form=FORM)'
            )
        selected_on = plan.chosen.get("selected_on")
        if data is not None and selected_on is not None:
            check_report_split(data, str(selected_on["split"]))
        return plan, None
    if config.heads is not None:
        return Plan.of(model, surgery.read_heads(model, config.heads)), None
    assert data is not None
    result = search(model, config, data, reading, run, open_journal)
    return result.plan, result


def _changes_after_pruning(folder: Path) -> str:
    """Repairs and training of the pruned model in a directory, after its heads were removed; empty if unknown."""
    try:
        manifest = read_manifest(folder)
    except HeadscopeError:
        return ""
    if manifest is None:
        return ""
    repairs = list(manifest.chosen.get("repair") or ())
    return ", ".join([*repairs, *(["training"] if manifest.chosen.get("recover") else [])])


def _announcement(plan: Plan, result: SearchResult | None) -> str:
    """Log line: the heads to remove, and a remark if the set is not recommended."""
    reason, plural = "", "s" if len(plan.heads) > 1 else ""
    if result is not None and not result.is_kept:
        targets = plan.chosen["target"].items()
        target = " ".join(f"{name} {value}" for name, value in targets if value is not None)
        reason = (
            f" to reach the target ({target}), though not shown to stay within the allowed loss"
        )
    return f"cutting {len(plan.heads)} head{plural}{reason}: {plan.heads}"


def _with_saved_model(study: Study, command: str, form: str, record: PruningRecord) -> Study:
    """The study of a search, with the pruned model in its record."""
    saved = {"form": form, "how": record["how"], "stages": record["stages"]}
    pruning = study.record["pruning"] | {"saved": saved}
    changed = study.record | {"command": command, "pruning": pruning}
    return Study(study.heads, study.maps, changed, study.tables)


def _speeds(
    model: AttentionModel,
    pruned: AttentionModel,
    config: PruneConfig,
    plan: Plan,
    result: SearchResult | None,
    run: Run,
) -> PruningRecord:
    """Speed of the unpruned and the pruned model, taken from the search if there was one, else measured."""
    timed = timing_setup(model) + (", in the form small" if config.form == "plain" else "")
    if result is None:
        run.log(f"timing both models on {timed}")
    before, after = speeds_of(model, pruned) if result is None else result.speeds
    target, reached = (plan.chosen.get("target") or {}).get("speedup"), 1 / after.ratio
    if target is not None and reached < target:
        run.log(
            f"note: the model is {reached:.2f} times as fast, not {target:g}, which was predicted for heads removed "
            "evenly from all layers"
        )
    return {"timed": timed, "speed": [speed_record(before), speed_record(after, "cut")]}


class _Stages:
    """Evaluates the unpruned model and the stages of the pruned one on the report split."""

    def __init__(
        self,
        model: AttentionModel,
        config: PruneConfig,
        data: TaskData,
        run: Run,
        plan: Plan,
        result: SearchResult | None,
    ) -> None:
        self.task, self.batch_size, self.log = task_of(data), config.batch_size, run.log
        self.report_on = splits_of(data)[1]
        self.stages: dict[str, StageRecord] = {}
        if result is None:
            items = self.task.items(data.data, self.report_on, limit=data.report_limit)
            self.examples = self.task.prepare(model, items, max_length=data.max_length)
        else:
            self.examples = result.report_set
        count = len(self.examples.items)
        self.draws = resamples_for(self.task, count)
        if result is None:
            run.log(
                f"evaluating the unpruned and the pruned model on {count} examples of {self.report_on}"
            )
        self.before = self._evaluate(model) if result is None else result.judged[0]
        name = self.task.metrics[0]
        run.log(describe_unpruned(self.task, self.task.measure(self.before.scores)[name], count))
        self.metrics = metrics_of(self.task, self.before)
        intact = self.metrics[name]["value"]
        keep_metric = (plan.chosen.get("target") or {}).get("keep_metric")
        self.margin = Margin.of(math.nan if intact is None else intact, keep_metric)

    def _evaluate(self, model: AttentionModel) -> Judged:
        return evaluate(model, self.task, self.examples, batch_size=self.batch_size)

    def add(self, stage: str, model: AttentionModel, judged: Judged | None = None) -> None:
        """Record a stage. judged: results of the model on these examples, if it was evaluated already."""
        name = self.task.metrics[0]
        judged = self._evaluate(model) if judged is None else judged
        change = delta_of_metric(self.task, self.before.scores, judged.scores, self.draws)
        metrics = metrics_of(self.task, judged)
        # Losses are finite (`Task.judge`), so `or 0` serves only the type checker.
        losses = [float(s["metrics"]["loss"]["value"] or 0) for s in self.stages.values()]
        verdict = verdict_of(change.value, change.low, change.high, self.margin, change.count)
        interval = f"change of {change.value:+.4f} [{change.low:+.4f}, {change.high:+.4f}]"
        self.stages[stage] = {
            "metrics": metrics,
            "change": asdict(change),
            "verdict": f"A {interval}: {verdict.sentence}.",
        }
        self.log(
            f"{stage}: {name} {metrics[name]['value']:.4f}, {interval} on {self.report_on}: {verdict.sentence}"
        )
        loss = float(metrics["loss"]["value"] or 0)
        if losses and loss > losses[-1]:
            self.log(f"note: this stage raised the loss from {losses[-1]:.4f} to {loss:.4f}")

    def record(self) -> PruningRecord:
        """Metrics before pruning and after the last stage, and the results of all stages, for cut.json."""
        last = list(self.stages.values())[-1]
        return {
            "metrics": {name: [self.metrics[name], last["metrics"][name]] for name in self.metrics},
            "stages": self.stages,
            "verdict": last["verdict"],
            "judged_on": f"{self.task.name}, {self.report_on}, {len(self.examples.items)} examples",
        }


def _describe(plan: Plan, config: PruneConfig, *, is_judged: bool, is_trained: bool) -> str:
    """How the heads were chosen and what was done after pruning, in sentences for the model card."""
    method = plan.chosen.get("search")
    if method is None:
        text = NAMED
    else:
        on = plan.chosen["selected_on"]
        text = (
            f"By the search `{method}` for the task {plan.chosen['task']}, on {on['examples']} examples of "
            f"{on['split']}{'; nothing was chosen on the examples below' if is_judged else ''}."
        )
    if "in_steps" in plan.chosen and not is_trained:
        text += (
            " They were chosen in steps with training between them, which this model has not had."
        )
    if config.repair:
        text += f" Repaired without training: {', '.join(config.repair)}."
    if config.recover:
        when = "After every step" if is_trained else "Then"
        teacher = " with the whole model as teacher" if config.distil else ""
        text += f" {when} trained for {config.recover} epoch{'s' if config.recover > 1 else ''}{teacher}."
    return text
