"""prune, carried out: the heads of a plan are cut, what can be mended is, and what it did is measured and written."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from headscope.drafts import drafted
from headscope.errors import HeadscopeError
from headscope.importances.significance import delta_of_metric, metrics_of, resamples
from headscope.model.attention_model import AttentionModel
from headscope.model.manifest import NAME as MANIFEST
from headscope.model.saving import check_form_of, write_model
from headscope.model.surgery import check_cut, prune, read_heads, removed_heads
from headscope.pruning import speed
from headscope.pruning.plan import Plan, read_plan
from headscope.pruning.repair import repaired
from headscope.pruning.target import Target
from headscope.study.directory import write_tables
from headscope.study.journal import NAME as JOURNAL
from headscope.study.journal import Journal
from headscope.study.mending import KEPT, Judgement, Mending, clear, recovered
from headscope.study.search import CALIBRATION, Search, SearchOptions, search
from headscope.study.stepwise import HEADER, STEPS, in_steps
from headscope.study.study import Study
from headscope.tasks import Judged
from headscope.tasks.running import evaluate


@dataclass(frozen=True)
class Wanted:
    """What to remove: heads by name, a plan in a file, or what a search finds; steps: with training between them."""

    heads: str | None = None
    plan: Path | None = None
    target: Target | None = None
    steps: float | None = None

    @staticmethod
    def of(
        heads: str | None,
        plan: Path | None,
        sparsity: float | None,
        keep_metric: float | None,
        speedup: float | None,
        *,
        steps: float | None = None,
    ) -> Wanted:
        """As the options of the command say it; a bare number of heads is a target."""
        count = int(heads) if heads is not None and heads.isdecimal() else None
        named = heads if count is None else None
        aims = [one for one in (count, sparsity, keep_metric, speedup) if one is not None]
        if (named is not None) + (plan is not None) + bool(aims) > 1:
            raise HeadscopeError("the heads are given already", where="prune", expected="one way to say what to remove")
        target = Target(count, sparsity, keep_metric, speedup) if named is None and plan is None else None
        return Wanted(named, plan, target, steps)

    def check(self, judgement: Judgement | None, mending: Mending, options: SearchOptions) -> None:
        """Refuse what does not go together, before anything is loaded."""
        if self.target is not None and judgement is None:
            raise HeadscopeError("a search needs a task", where="--task", mend="Add --task NAME and --data PATH")
        if judgement is None and (mending.repairs or mending.recover):
            where = "--repair" if mending.repairs else "--recover"
            raise HeadscopeError("there is no task to learn from", where=where, mend="Add --task NAME and --data PATH")
        if self.target is None and options != SearchOptions(seed=options.seed):
            given = next(name for name, value in asdict(options).items() if value != getattr(SearchOptions(), name))
            option = {"how": "search", "repairs": "try-repairs"}.get(given, given.replace("_", "-"))
            raise HeadscopeError(f"--{option} belongs to a search, and the heads are given already", where="prune")
        mending.check()
        if judgement is not None:
            judgement.check(mending)
        if self.steps is not None and mending.repairs:
            raise HeadscopeError("what was trained cannot be repaired from what was not", where="--repair")
        if self.steps is not None and not (options.how == "iterative" and mending.recover and self.target is not None):
            raise HeadscopeError(
                "there are no steps to train between",
                where="--recover-steps",
                expected="--search iterative and --recover N",
            )


Loader = Callable[[str | None], AttentionModel]  # given the class that the task wants


def shown(
    model: AttentionModel | Loader,
    wanted: Wanted,
    judgement: Judgement | None,
    options: SearchOptions,
    *,
    progress: Callable[[int, int], None] = lambda done, total: None,
    say: Callable[[str], None] = lambda line: None,
) -> Plan:
    """The plan alone: nothing is cut or written."""
    if wanted.steps is not None:
        raise HeadscopeError("steps with training cannot be shown without training", where="--dry-run")
    wanted.check(judgement, Mending(), options)
    whole = _loaded(model, judgement)
    plan, _ = _planned(whole, wanted, judgement, options, None, progress, say)
    check_cut(whole, plan.heads)
    return plan


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
    model = _loaded(model, judgement)
    check_form_of(model, form)
    if mending.recover and model.model.dtype != torch.float32:
        raise HeadscopeError("training is done in float32", where="--dtype", mend="Leave --dtype or --recover out")
    if wanted.heads is not None:
        check_cut(model, read_heads(model, wanted.heads))  # before anything is written
    opened: list[Journal] = []
    with drafted(
        out, overwrite=overwrite, resume=resume, kept=[JOURNAL, HEADER, *KEPT, *STEPS], record=MANIFEST
    ) as folder:

        def journal(header: dict[str, Any]) -> Journal:
            opened.append(Journal(folder, header, resume=resume))
            return opened[0]

        trained, found = None, None
        try:
            if wanted.steps is not None and wanted.target is not None and judgement is not None:
                trained = in_steps(model, wanted.target, folder, judgement, mending, options, say=say)
                plan = Plan.of(model, removed_heads(trained), {"in_steps": wanted.steps, "by": options.by})
            else:
                plan, found = _planned(model, wanted, judgement, options, journal, progress, say)
        except HeadscopeError:
            if opened:  # another target is another run: nothing to go on with
                (folder / JOURNAL).unlink(missing_ok=True)
            raise
        say(f"cutting {len(plan.heads)} head{'s' if len(plan.heads) > 1 else ''}: {plan.heads}")
        told = carry_out(model, plan, folder, form=form, judgement=judgement, mending=mending, trained=trained, say=say)
        clear(folder)
        for name in (HEADER, *STEPS):  # only now: until the model is written they are all there is
            shutil.rmtree(folder / name, ignore_errors=True)
            (folder / name).unlink(missing_ok=True)
        if found is not None:
            (folder / "study").mkdir()
            found.study.record["command"] = command
            found.study.record["pruning"]["saved"] = {"form": form, "how": told["how"], "stages": told["stages"]}
            write_tables(found.study, folder / "study")
            report(found.study, folder / "study")
        (folder / JOURNAL).unlink(missing_ok=True)
    return told


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
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Cut a plan's heads and write the model into a folder; returns what the manifest says of it.

    judgement  measure what it did on this task; needed for repairs and recovery
    trained    the model as it was cut and trained in steps already
    """
    mending = mending or Mending()
    cut = prune(model, list(plan.heads)) if trained is None else trained
    stages: dict[str, Any] = {}
    measured = None if judgement is None else _Measured(model, judgement)
    if measured is not None:
        measured.take("cut" if trained is None else "in steps", cut, stages, say)
    for repair in mending.repairs:
        assert judgement is not None
        assert measured is not None
        items = judgement.task.items(judgement.data, judgement.learn_on, limit=CALIBRATION)
        examples = judgement.task.prepare(cut, items, max_length=judgement.max_length)
        repaired(model, cut, repair, judgement.task, examples, batch_size=judgement.batch_size, say=say)
        measured.take(repair, cut, stages, say)
    if mending.recover and trained is None:
        assert judgement is not None
        assert measured is not None
        cut = recovered(model, cut, folder, judgement, mending, say=say)
        measured.take("recovered", cut, stages, say)
    chosen = _told(plan, mending, measured, stages)
    length = speed.longest(model, speed.TIMED[1])
    chosen["timed"] = f"{speed.TIMED[0]} sequences of {length} tokens" + (
        ", in the form small" if form == "plain" else ""
    )
    both = speed.measure([model, cut], batch_size=speed.TIMED[0], length=length)
    chosen["speed"] = [asdict(both[0]), asdict(both[1]) | {"name": "cut"}]
    aim, reached = (plan.chosen.get("target") or {}).get("speedup"), 1 / both[1].ratio
    if aim is not None and reached < aim:
        say(f"note: it is {reached:.2f} times as fast, not {aim:g}: that was expected from evenly thinned layers")
    write_model(cut, folder, form=form, chosen=chosen)
    plan.write(folder / "plan.json")
    return chosen


class _Measured:
    """The intact model on the split that nothing is learned from, and stages of the cut one beside it."""

    def __init__(self, model: AttentionModel, judgement: Judgement) -> None:
        self.judgement, task = judgement, judgement.task
        items = task.items(judgement.data, judgement.report_on, limit=judgement.report_limit)
        self.prepared = task.prepare(model, items, max_length=judgement.max_length)
        self.draws = None if task.mean_column is not None else resamples(len(self.prepared.items), 0)
        self.before = self._judged(model)
        self.metrics = metrics_of(task, self.before)

    def _judged(self, model: AttentionModel) -> Judged:
        return evaluate(model, self.judgement.task, self.prepared, batch_size=self.judgement.batch_size)

    def take(self, stage: str, model: AttentionModel, stages: dict[str, Any], say: Callable[[str], None]) -> None:
        task, name = self.judgement.task, self.judgement.task.metrics[0]
        judged = self._judged(model)
        change = delta_of_metric(task, self.before.scores, judged.scores, self.draws)
        metrics = metrics_of(task, judged)
        earlier = [one["metrics"]["loss"]["value"] for one in stages.values()]
        stages[stage] = {"metrics": metrics, "change": asdict(change)}
        say(
            f"{stage}: {name} {metrics[name]['value']:.4f}, change {change.value:+.4f} "
            f"[{change.low:+.4f}, {change.high:+.4f}] on {self.judgement.report_on}"
        )
        if earlier and metrics["loss"]["value"] > earlier[-1]:
            say(f"note: the loss rose by it, from {earlier[-1]:.4f} to {metrics['loss']['value']:.4f}")


def _told(plan: Plan, mending: Mending, measured: _Measured | None, stages: dict[str, Any]) -> dict[str, Any]:
    """For the manifest and the card."""
    found: dict[str, Any] = dict(plan.chosen)
    found["how"] = _sentence(plan, mending, measured is not None)
    if measured is not None:
        last = list(stages.values())[-1]["metrics"]
        task = measured.judgement.task
        found["metrics"] = {name: [measured.metrics[name], last[name]] for name in measured.metrics}
        found["stages"] = stages
        found["judged_on"] = f"{task.name}, {measured.judgement.report_on}, {len(measured.prepared.items)} examples"
    found["repair"] = list(mending.repairs)
    found["recover"] = {"epochs": mending.recover, "teacher": mending.teacher} if mending.recover else None
    return found


def _sentence(plan: Plan, mending: Mending, is_judged: bool) -> str:
    search = plan.chosen.get("search")
    if "in_steps" in plan.chosen:
        said = f"In steps by {plan.chosen['by']}, trained after each of them."
    elif search is None:
        said = "They were named."
    else:
        on = plan.chosen["selected_on"]
        said = (
            f"By the search `{search}` for the task {plan.chosen['task']}, on {on['examples']} examples of "
            f"{on['split']}{'; nothing was chosen on the examples below' if is_judged else ''}."
        )
    if mending.repairs:
        said += f" Repaired without training: {', '.join(mending.repairs)}."
    if mending.recover and "in_steps" not in plan.chosen:
        beside = " with the whole model as teacher" if mending.teacher else ""
        said += f" Then trained for {mending.recover} epoch{'s' if mending.recover > 1 else ''}{beside}."
    return said
