"""prune, carried out: the heads of a plan are cut, what can be mended is, and what it did is measured and written."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from headscope.ablation.noninferiority import Margin, verdict_of
from headscope.ablation.significance import delta_of_metric, metrics_of, resamples
from headscope.atomic_dir import check_free, drafted
from headscope.config.search import Mending, SearchOptions
from headscope.errors import HeadscopeError
from headscope.model import latency as speed
from headscope.model.attention_model import AttentionModel
from headscope.model.manifest import NAME as MANIFEST
from headscope.model.saving import check_form_of, write_model
from headscope.model.surgery import check_cut, prune, read_heads
from headscope.pruning.dry_run import Shown, Size
from headscope.pruning.iterative_pruning import HEADER, STEPS, in_steps
from headscope.pruning.pareto_front import speeds_of
from headscope.pruning.plan import Plan, read_plan
from headscope.pruning.prune_request import Wanted
from headscope.pruning.recovery import KEPT, Judgement, clear, recovered
from headscope.pruning.repair import repaired
from headscope.pruning.search import search
from headscope.pruning.search_config import CALIBRATION
from headscope.pruning.search_result import Search
from headscope.study.journal import NAME as JOURNAL
from headscope.study.journal import Journal
from headscope.study.study import Study
from headscope.study.study_dir import write_tables
from headscope.tasks import Judged
from headscope.tasks.running import evaluate, unpruned

Loader = Callable[[str | None], AttentionModel]  # given the class that the task wants


def shown(
    model: AttentionModel | Loader,
    wanted: Wanted,
    judgement: Judgement | None,
    options: SearchOptions,
    *,
    form: str = "small",
    progress: Callable[[int, int], None] = lambda done, total: None,
    say: Callable[[str], None] = lambda line: None,
) -> Shown:
    """The plan, and what carrying it out would come to; nothing is written."""
    if wanted.steps:
        raise HeadscopeError(
            "steps with training cannot be shown without training", where="`dry_run`"
        )
    wanted.check(judgement, Mending(), options)
    whole = _loaded(model, judgement)
    plan, found = _planned(whole, wanted, judgement, options, None, progress, say)
    sizes = Size.of(whole), Size.of(prune(whole, list(plan.heads)))
    return Shown(plan, form, sizes, judgement, has_study=found is not None)


def prune_into(
    out: str | Path,
    model: AttentionModel | Loader,
    wanted: Wanted,
    *,
    form: str = "small",
    judgement: Judgement | None = None,
    mending: Mending | None = None,
    options: SearchOptions | None = None,
    report: Callable[[Study, Path], None] = lambda study, folder: None,
    command: str = "",
    resume: bool = False,
    overwrite: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """From what is wanted to a directory with the smaller model; returns what its manifest says.

    model   loaded, or a function that loads it: only done once the rest is seen to be right
    report  draws the study of a search into its folder
    """
    mending, options = mending or Mending(), options or SearchOptions()
    wanted.check(judgement, mending, options)
    kept = [JOURNAL, HEADER, *KEPT, *STEPS]
    check_free(out, overwrite=overwrite, resume=resume, kept=kept, record=MANIFEST)
    model = _loaded(model, judgement)
    check_form_of(model, form)
    if mending.recover and model.model.dtype != torch.float32:
        raise HeadscopeError(
            "training is done in float32", where="`dtype`", mend="Leave `dtype` or `recover` out"
        )
    if wanted.heads is not None:
        check_cut(model, read_heads(model, wanted.heads))  # before anything is written
    opened: list[Journal] = []
    with drafted(out, overwrite=overwrite, resume=resume, kept=kept, record=MANIFEST) as folder:

        def journal(header: dict[str, Any]) -> Journal:
            opened.append(Journal(folder, header, resume=resume))
            return opened[0]

        trained, found = None, None
        try:
            if wanted.steps and wanted.target is not None and judgement is not None:
                trained, found = in_steps(
                    model, wanted.target, folder, judgement, mending, options, say=say
                )
                plan = found.plan
            else:
                plan, found = _planned(model, wanted, judgement, options, journal, progress, say)
        except HeadscopeError:
            if opened:  # another target is another run: nothing to go on with
                (folder / JOURNAL).unlink(missing_ok=True)
            raise
        say(_announced(plan, found))
        told = carry_out(
            model,
            plan,
            folder,
            form=form,
            judgement=judgement,
            mending=mending,
            trained=trained,
            found=found,
            say=say,
        )
        clear(folder)
        for name in (HEADER, *STEPS):  # only now: until the model is written they are all there is
            shutil.rmtree(folder / name, ignore_errors=True)
            (folder / name).unlink(missing_ok=True)
        if found is not None:
            (folder / "study").mkdir()
            study = _as_saved(
                found.study, command, {"form": form, "how": told["how"], "stages": told["stages"]}
            )
            write_tables(study, folder / "study")
            report(study, folder / "study")
        (folder / JOURNAL).unlink(missing_ok=True)
    return told


def _announced(plan: Plan, found: Search | None) -> str:
    """What is cut, and why although it is not recommended."""
    reason = ""
    if found is not None and not found.is_kept:
        target = " ".join(
            f"{name} {value}" for name, value in plan.chosen["target"].items() if value is not None
        )
        reason = (
            f" to reach the target ({target}), though not shown to stay within the allowed loss"
        )
    return (
        f"cutting {len(plan.heads)} head{'s' if len(plan.heads) > 1 else ''}{reason}: {plan.heads}"
    )


def _as_saved(study: Study, command: str, saved: dict[str, Any]) -> Study:
    """The study of a search that was carried out, with what was written."""
    pruning = study.record["pruning"] | {"saved": saved}
    return Study(
        study.heads,
        study.maps,
        study.record | {"command": command, "pruning": pruning},
        study.tables,
    )


def _loaded(model: AttentionModel | Loader, judgement: Judgement | None) -> AttentionModel:
    """A model that can do the task, if there is one."""
    if not isinstance(model, AttentionModel):
        model = model(None if judgement is None else judgement.task.model_class)
    if judgement is not None:
        judgement.task.check(model)
    return model


def _planned(
    model: AttentionModel,
    wanted: Wanted,
    judgement: Judgement | None,
    options: SearchOptions,
    journal: Callable[[dict[str, Any]], Journal] | None,
    progress: Callable[[int, int], None],
    say: Callable[[str], None],
) -> tuple[Plan, Search | None]:
    if wanted.plan is not None:
        plan = read_plan(wanted.plan, model)
        chosen_on = plan.chosen.get("selected_on")
        if judgement is not None and chosen_on is not None:
            judgement.check_apart_from(chosen_on["split"])
        return plan, None
    if wanted.heads is not None:
        return Plan.of(model, read_heads(model, wanted.heads)), None
    assert judgement is not None
    assert wanted.target is not None
    found = search(
        model,
        task=judgement.task,
        data=judgement.data,
        target=wanted.target,
        options=options,
        select_on=judgement.learn_on,
        report_on=judgement.report_on,
        report_limit=judgement.report_limit,
        max_length=judgement.max_length,
        batch_size=judgement.batch_size,
        journal=journal,
        progress=progress,
        say=say,
    )
    return found.plan, found


def carry_out(
    model: AttentionModel,
    plan: Plan,
    folder: Path,
    *,
    form: str = "small",
    judgement: Judgement | None = None,
    mending: Mending | None = None,
    trained: AttentionModel | None = None,
    found: Search | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Cut a plan's heads and write the model into a folder; returns what the manifest says of it.

    judgement  measure what it did on this task; needed for repairs and recovery
    trained    the model as it was cut and trained in steps already
    found      the search that chose the heads, if any: it has evaluated and timed both models already
    """
    mending = mending or Mending()
    cut = prune(model, list(plan.heads)) if trained is None else trained
    stages: dict[str, Any] = {}
    keep_metric = (plan.chosen.get("target") or {}).get("keep_metric")
    measured = None if judgement is None else _Measured(model, judgement, keep_metric, found, say)
    if measured is not None:
        judged = None if found is None else found.judged[1]
        measured.take("cut" if trained is None else "in steps", cut, stages, say, judged)
    for repair in mending.repairs:
        assert judgement is not None
        assert measured is not None
        items = judgement.task.items(judgement.data, judgement.learn_on, limit=CALIBRATION)
        examples = judgement.task.prepare(cut, items, max_length=judgement.max_length)
        repaired(
            model, cut, repair, judgement.task, examples, batch_size=judgement.batch_size, say=say
        )
        measured.take(repair, cut, stages, say)
    if mending.recover and trained is None:
        assert judgement is not None
        assert measured is not None
        cut = recovered(model, cut, folder, judgement, mending, say=say)
        measured.take("recovered", cut, stages, say)
    chosen = _told(plan, mending, measured, stages, is_trained=trained is not None)
    length = speed.longest(model, speed.TIMED[1])
    chosen["timed"] = f"{speed.TIMED[0]} sequences of {length} tokens" + (
        ", in the form small" if form == "plain" else ""
    )
    if found is None:
        say(f"timing both models on {chosen['timed']}")
    whole, smaller = speeds_of(model, cut) if found is None else found.speeds
    chosen["speed"] = [whole, smaller | {"name": "cut"}]
    aim, reached = (plan.chosen.get("target") or {}).get("speedup"), 1 / smaller["ratio"]
    if aim is not None and reached < aim:
        say(
            f"note: it is {reached:.2f} times as fast, not {aim:g}: that was expected from evenly thinned layers"
        )
    say("writing the model")
    write_model(cut, folder, form=form, chosen=chosen)
    plan.write(folder / "plan.json")
    return chosen


class _Measured:
    """The intact model on the split that nothing is learned from, and stages of the cut one beside it."""

    def __init__(
        self,
        model: AttentionModel,
        judgement: Judgement,
        keep_metric: float | None,
        found: Search | None,
        say: Callable[[str], None],
    ) -> None:
        self.judgement, task = judgement, judgement.task
        items = task.items(judgement.data, judgement.report_on, limit=judgement.report_limit)
        self.prepared = task.prepare(model, items, max_length=judgement.max_length)
        self.draws = (
            None if task.mean_column is not None else resamples(len(self.prepared.items), 0)
        )
        examples = len(self.prepared.items)
        if found is None:
            say(
                f"evaluating the unpruned and the pruned model on {examples} examples of {judgement.report_on}"
            )
        self.before = self._judged(model) if found is None else found.judged[0]
        say(unpruned(task, task.measure(self.before.scores)[task.metrics[0]], examples))
        self.metrics = metrics_of(task, self.before)
        intact = self.metrics[task.metrics[0]]["value"]
        self.margin = Margin.of(math.nan if intact is None else intact, keep_metric)

    def _judged(self, model: AttentionModel) -> Judged:
        return evaluate(
            model, self.judgement.task, self.prepared, batch_size=self.judgement.batch_size
        )

    def take(
        self,
        stage: str,
        model: AttentionModel,
        stages: dict[str, Any],
        say: Callable[[str], None],
        judged: Judged | None = None,
    ) -> None:
        """Record a stage; judged: what the model does on these examples, if it was evaluated already."""
        task, name = self.judgement.task, self.judgement.task.metrics[0]
        judged = self._judged(model) if judged is None else judged
        change = delta_of_metric(task, self.before.scores, judged.scores, self.draws)
        metrics = metrics_of(task, judged)
        earlier = [one["metrics"]["loss"]["value"] for one in stages.values()]
        verdict = verdict_of(change.value, change.low, change.high, self.margin, change.count)
        told = f"change of {change.value:+.4f} [{change.low:+.4f}, {change.high:+.4f}]"
        stages[stage] = {
            "metrics": metrics,
            "change": asdict(change),
            "verdict": f"A {told}: {verdict.sentence}.",
        }
        say(
            f"{stage}: {name} {metrics[name]['value']:.4f}, {told} on {self.judgement.report_on}: {verdict.sentence}"
        )
        if earlier and metrics["loss"]["value"] > earlier[-1]:
            say(
                f"note: the loss rose by it, from {earlier[-1]:.4f} to {metrics['loss']['value']:.4f}"
            )


def _told(
    plan: Plan,
    mending: Mending,
    measured: _Measured | None,
    stages: dict[str, Any],
    *,
    is_trained: bool,
) -> dict[str, Any]:
    """For the manifest and the card."""
    found: dict[str, Any] = dict(plan.chosen)
    found["how"] = _sentence(plan, mending, is_judged=measured is not None, is_trained=is_trained)
    if measured is not None:
        last = list(stages.values())[-1]["metrics"]
        task = measured.judgement.task
        found["metrics"] = {name: [measured.metrics[name], last[name]] for name in measured.metrics}
        found["stages"] = stages
        found["verdict"] = list(stages.values())[-1]["verdict"]
        found["judged_on"] = (
            f"{task.name}, {measured.judgement.report_on}, {len(measured.prepared.items)} examples"
        )
    found["repair"] = list(mending.repairs)
    found["recover"] = (
        {"epochs": mending.recover, "teacher": mending.teacher} if mending.recover else None
    )
    return found


def _sentence(plan: Plan, mending: Mending, *, is_judged: bool, is_trained: bool) -> str:
    search = plan.chosen.get("search")
    if search is None:
        said = "They were named."
    else:
        on = plan.chosen["selected_on"]
        said = (
            f"By the search `{search}` for the task {plan.chosen['task']}, on {on['examples']} examples of "
            f"{on['split']}{'; nothing was chosen on the examples below' if is_judged else ''}."
        )
    if "in_steps" in plan.chosen and not is_trained:
        said += (
            " They were chosen in steps with training between them, which this model has not had."
        )
    if mending.repairs:
        said += f" Repaired without training: {', '.join(mending.repairs)}."
    if mending.recover:
        when = "After every step" if is_trained else "Then"
        beside = " with the whole model as teacher" if mending.teacher else ""
        said += f" {when} trained for {mending.recover} epoch{'s' if mending.recover > 1 else ''}{beside}."
    return said
