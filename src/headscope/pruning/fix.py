"""fix, the verb: what is lost when heads attend by fixed patterns, one at a time, a layer of them, ever more, and all.

Patterns and the order of heads are chosen on one split, all that is reported is of another. What is written is a model
in which the heads have no queries and keys any more.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headscope.ablation.ablation_results import LOSS, METRIC
from headscope.ablation.evaluate import loaded_for
from headscope.ablation.importance import importance
from headscope.ablation.noninferiority import Margin, verdict_in
from headscope.ablation.significance import metrics_of, resamples
from headscope.atomic_dir import drafted
from headscope.config.checks import check_keep_metric
from headscope.config.importance import ImportanceConfig
from headscope.config.requirements import check_effects
from headscope.config.shared import Reading, Run, TaskData
from headscope.errors import HeadscopeError
from headscope.heads import Head, HeadSet
from headscope.model import latency as speed
from headscope.model.attention_model import AttentionModel
from headscope.model.fix_heads import check_fix, fix, read_patterns, written
from headscope.model.manifest import NAME as MANIFEST
from headscope.model.saving import write_model
from headscope.pruning.pareto_front import (
    UNTIMED,
    Speeds,
    changes,
    on_front,
    speeds_of,
    time_columns,
)
from headscope.pruning.recovery import Judgement
from headscope.pruning.search import JournalMemory
from headscope.pruning.subset_evaluator import Memory
from headscope.study.journal import NAME as JOURNAL
from headscope.study.journal import Journal
from headscope.study.run_record import code_of, describe_model, versions
from headscope.study.schema.record import Section
from headscope.study.schema.tables import TABLES
from headscope.study.study import Study
from headscope.study.study_dir import write_tables
from headscope.tasks import Judged, Prepared
from headscope.tasks.base import check_apart
from headscope.tasks.running import evaluate

SIZES = 12
ALONE, REPORTED = "alone", "reported"  # folders of the two sweeps, as long as the run is under way
WITHIN = 0.99  # of the metric: how many heads can be fixed so?
Told = Callable[[str], None]


@dataclass(frozen=True)
class FixOptions:
    """What to fix.

    heads        those that may be fixed; None: all of self-attention
    patterns     as they are written (`3.2=previous`), for these heads; None: each head's nearest
    keep_metric  fix only as many heads as keep this share of the metric; None: all
    sizes        the numbers of fixed heads that are reported, or how many of them
    """

    heads: str | None = None
    patterns: str | None = None
    keep_metric: float | None = None
    sizes: int | tuple[int, ...] = SIZES
    limit: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_effects("fix", {"heads": self.heads, "patterns": self.patterns})
        if self.keep_metric is not None:
            check_keep_metric(self.keep_metric)


def fix_into(
    out: str | Path,
    model: AttentionModel | str | Path | Callable[[str], AttentionModel],
    judgement: Judgement,
    options: FixOptions | None = None,
    *,
    report: Callable[[Study, Path], None] = lambda study, folder: None,
    command: str = "",
    resume: bool = False,
    overwrite: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
    say: Told = lambda line: None,
) -> Section:
    """From a model and a task to a directory with the model whose heads are fixed; returns what its manifest says.

    judgement  the task and its splits: chosen on `learn_on`, reported on `report_on`
    report     draws the study into its folder
    """

    options = options or FixOptions()
    task, started = judgement.task, time.perf_counter()
    to_choose = task.items(judgement.data, judgement.learn_on, limit=options.limit)
    to_report = task.items(judgement.data, judgement.report_on, limit=judgement.report_limit)
    check_apart(to_choose, to_report, "`report_on`")
    loaded = loaded_for(model, task)
    loaded.reading.check(loaded.name)  # what cannot be saved is not fixed
    given = (
        None
        if options.patterns is None
        else read_patterns(options.patterns, loaded.heads, where="`patterns`")
    )
    heads = _candidates(loaded, options, given)
    if not isinstance(options.sizes, int) and max(options.sizes) > len(heads):
        what = f"{max(options.sizes)} heads cannot be fixed"
        raise HeadscopeError(what, where="`sizes`", expected=f"at most {len(heads)}")
    with drafted(
        out, overwrite=overwrite, resume=resume, kept=[ALONE, REPORTED, JOURNAL], record=MANIFEST
    ) as folder:
        run = _Run(loaded, judgement, options, heads, folder, resume, progress, say)
        run.choose(given)
        study = run.alone(REPORTED, judgement.report_on, judgement.report_limit, run.patterns)
        run.prepare([to_choose, to_report])
        rows = run.rows()
        told = run.written(rows, run.chosen(rows))
        study.tables["fixing"] = TABLES["fixing"].frame(rows)
        study.record["command"] = command
        study.record["fixing"] = {**told, "seconds": round(time.perf_counter() - started, 1)}
        (folder / "study").mkdir()
        write_tables(study, folder / "study")
        report(study, folder / "study")
        run.clear()
    return told


def _candidates(
    model: AttentionModel, options: FixOptions, given: Mapping[Head, str] | None
) -> list[Head]:
    """The heads that may be fixed, or a refusal before anything is measured."""
    free = [
        head
        for head in model.heads
        if head.stack in ("encoder", "decoder") and head not in model.fixed
    ]
    heads = list(given) if given is not None else free
    if options.heads is not None:
        heads = list(HeadSet(options.heads, among=model.heads))
        across = [head for head in heads if head.stack not in ("encoder", "decoder")]
        if across:
            raise HeadscopeError(
                f"{across[0]} reads one text and attends to another",
                where="`heads`",
                expected="self-attention",
            )
    check_fix(model, given or dict.fromkeys(heads, "current"))
    if any(len(sites) > 1 for sites in model.attention_modules.values()):
        raise HeadscopeError(
            "its layers share their heads, which cannot be fixed one by one",
            where=model.name,
            mend='Fix them in Python: headscope.fix(model, {"*.2": "previous"})',
        )
    return sorted(heads)


class _Run:
    """One call of `fix_into`, in the folder that it drafts."""

    def __init__(
        self,
        model: AttentionModel,
        judgement: Judgement,
        options: FixOptions,
        heads: list[Head],
        folder: Path,
        resume: bool,
        progress: Callable[[int, int], None],
        say: Told,
    ) -> None:
        self.model, self.judgement, self.options, self.heads = model, judgement, options, heads
        self.task, self.folder, self.resume = judgement.task, folder, resume
        self.progress, self.say = progress, say
        self.patterns: dict[Head, str] = {}
        self.order: list[Head] = []
        self.memory: Memory = Memory()

    # One at a time

    def choose(self, given: Mapping[Head, str] | None) -> None:
        """Each head's pattern, and the order in which heads are fixed: those first that are missed least."""
        self.say(
            f"fixing {len(self.heads)} heads one at a time on {self.judgement.learn_on}, to choose"
        )
        study = self.alone(ALONE, self.judgement.learn_on, self.options.limit, given)
        told = study.record["importance"]["patterns"]
        self.patterns = (
            dict(given) if given is not None else {head: told[str(head)] for head in self.heads}
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
        place = self.folder / name
        place.mkdir(exist_ok=True)
        config = ImportanceConfig(
            mode="fixed",
            heads=",".join(map(str, self.heads)),
            patterns=patterns,
            batch_size=self.judgement.batch_size,
        )
        data = TaskData(
            self.task,
            self.judgement.data,
            split,
            limit=limit,
            max_length=self.judgement.max_length,
        )
        run = Run(
            seed=self.options.seed,
            resume=self.resume,
            progress=lambda done, total, part="": self.progress(done, total),
            log=lambda line: self.say(line),
        )
        return importance(self.model, config, data, Reading(), run, directory=place)

    # Several

    def prepare(self, splits: Sequence[list[Any]]) -> None:
        """The examples of both splits, the intact model on them, and the memory of what was measured."""
        header = {
            "model": describe_model(self.model)["sha256"],
            "reading": self.model.reading.record(),
            "options": asdict(self.options),
            "order": list(map(str, self.order)),
            "patterns": {str(head): name for head, name in self.patterns.items()},
            "splits": [self.judgement.learn_on, self.judgement.report_on],
            "examples": list(map(len, splits)),
            "task": self.judgement.named,
            "code": code_of("model", "data", "tasks", "ablation", "pruning"),
            "versions": versions(),
        }
        self.memory = JournalMemory(Journal(self.folder, header, resume=self.resume))
        self.examples: list[Prepared] = [
            self.task.prepare(self.model, items, max_length=self.judgement.max_length)
            for items in splits
        ]
        self.draws = None if self.task.mean_column is not None else resamples(len(splits[1]), 0)
        self.intact = self._judged("intact", lambda: self.model)

    def rows(self) -> list[dict[str, Any]]:
        """One for each number of heads, in the order of `choose`, and one for each layer."""
        self.say(f"fixing several on {len(self.examples[1].items)} other examples")
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
        count, wanted = len(self.heads), self.options.sizes
        if isinstance(wanted, int):
            return sorted(
                {round(i * count / max(wanted - 1, 1)) for i in range(wanted)} | {0, count}
            )
        return sorted({*wanted, 0, count})

    def _row(self, kind: str, named: str, heads: list[Head]) -> Section:
        found: list[AttentionModel] = []

        def fixed() -> AttentionModel:
            if not found:
                found.append(
                    fix(self.model, {head: self.patterns[head] for head in heads})
                    if heads
                    else self.model
                )
            return found[0]

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
        self.say(
            f"{named} fixed: {self.task.metrics[0]} {row['metric']:.4f}, change {row['metric_change']:+.4f} "
            f"[{row['change_low']:+.4f}, {row['change_high']:+.4f}]"
        )
        return row

    def _judged(self, key: str, model: Callable[[], AttentionModel]) -> list[Judged]:
        """A model on both splits."""
        known = self.memory.get(key)
        if known is None:
            size = self.judgement.batch_size
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
        size, keep = len(self.heads), self.options.keep_metric
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

    # What is written

    def written(self, rows: list[Section], heads: list[Head]) -> Section:
        """The model and its patterns, into the folder; what is told of them."""
        patterns = {head: self.patterns[head] for head in heads}
        fixed = fix(self.model, patterns)
        length = speed.longest(self.model, speed.TIMED[1])
        whole, smaller = self._speeds(f"{len(heads)} heads", lambda: fixed)
        after = self._judged(f"least {len(heads)} heads", lambda: fixed)[1]
        before, metrics = (metrics_of(self.task, one) for one in (self.intact[1], after))
        within = _within(rows)
        margin = Margin(rows[0]["metric"], 1 - WITHIN)  # the first row is the whole model
        verdict = verdict_in(within, margin, len(self.examples[1].items))
        told = {
            "how": self._sentence(),
            "task": self.task.name,
            "metric": self.task.metrics[0],
            "judged_on": f"{self.task.name}, {self.judgement.report_on}, {len(self.examples[1].items)} examples",
            "selected_on": {
                "split": self.judgement.learn_on,
                "examples": len(self.examples[0].items),
            },
            "reported_on": {
                "split": self.judgement.report_on,
                "examples": len(self.examples[1].items),
            },
            "patterns": {str(head): name for head, name in sorted(patterns.items())},
            "order": list(map(str, self.order)),
            "within": within["fixed"],
            "metrics": {name: [before[name], metrics[name]] for name in before},
            "timed": f"{speed.TIMED[0]} sequences of {length} tokens",
            "speed": [whole, smaller | {"name": "fixed"}],
        }
        write_model(fixed, self.folder, chosen=told)
        (self.folder / "patterns.txt").write_text(written(patterns, self.model.heads), "utf-8")
        change = f"{within['metric_change']:+.4f} [{within['change_low']:+.4f}, {within['change_high']:+.4f}]"
        self.say(
            f"{within['fixed']} of {len(self.heads)} heads can be fixed within 1 % of the metric on "
            f"{self.judgement.learn_on}; on {self.judgement.report_on} that changes it by {change}"
            f"{': ' + verdict.sentence if within['fixed'] else ''}"
        )
        return told

    def _sentence(self) -> str:
        on = f"on {len(self.examples[0].items)} examples of {self.judgement.learn_on}"
        patterns = (
            "Each head follows the pattern it is nearest to"
            if self.options.patterns is None
            else "Patterns were named"
        )
        return f"{patterns}; heads that are missed least come first ({on}). Nothing was chosen on the examples below."

    def clear(self) -> None:
        """Away with what a run that was stopped would have gone on from."""
        for name in (ALONE, REPORTED):
            shutil.rmtree(self.folder / name)
        (self.folder / JOURNAL).unlink()


def _within(rows: list[Section]) -> Section:
    """The row of the most heads that keep the metric within 1 % of the whole model's, where they were chosen."""
    sizes = [row for row in rows if row["kind"] == "least"]
    least = WITHIN * sizes[0]["selection_metric"]
    return max(
        (row for row in sizes if row["selection_metric"] >= least),
        key=lambda row: row["fixed"],
        default=sizes[0],
    )
