"""Iterative pruning with training between the steps: score, cut a few, recover, and again (Michel; Prasanna)."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

from headscope.data.records import find_split
from headscope.errors import HeadscopeError
from headscope.heads import Head
from headscope.model.attention_model import AttentionModel
from headscope.model.load import load
from headscope.model.surgery import prune, read_heads
from headscope.model.weights import weights_sha256
from headscope.pruning.scores import scores_by
from headscope.pruning.selection import Selection
from headscope.pruning.target import Target
from headscope.study.importance import code_of
from headscope.study.journal import check_same_run
from headscope.study.mending import Judgement, Mending, clear, recovered
from headscope.study.record import describe_files, versions
from headscope.study.search import SearchOptions

HEADER = "steps.json"
STEPS = tuple(f"step-{number}" for number in range(1, 1000))


def in_steps(
    model: AttentionModel,
    target: Target,
    folder: Path,
    judgement: Judgement,
    mending: Mending,
    options: SearchOptions,
    *,
    say: Callable[[str], None] = lambda line: None,
) -> AttentionModel:
    """The model after its last step. Finished steps lie in the folder, so that a run that was stopped goes on."""
    if target.heads is None and target.sparsity is None:
        raise HeadscopeError(
            "steps with training go to a number of heads", where="--recover-steps", expected="--heads N or --sparsity P"
        )
    items = judgement.task.items(judgement.data, judgement.learn_on, limit=options.limit)
    among = None if options.among is None else read_heads(model, options.among)
    now, number, wanted, each = model, 0, None, 1
    while True:
        prepared = judgement.task.prepare(now, items, max_length=judgement.max_length)
        selection = Selection(
            now,
            judgement.task,
            prepared,
            at_least=options.at_least,
            among=among,
            max_length=judgement.max_length,
            batch_size=judgement.batch_size,
            seed=mending.seed,
        )
        if wanted is None:
            wanted = target.most(selection)
            assert wanted is not None
            _check_same(folder, model, target, judgement, mending, options)
            each = max(round(options.step * len(model.heads)), *(len(unit) for unit in selection.units))
        gone = len(model.heads) - len(now.heads)
        name = judgement.task.metrics[0]
        say(f"{gone} removed: loss {selection.intact.loss:.4f}, {name} {selection.intact.metric:.4f}")
        heads = _next(selection, options.by, min(each, wanted - gone))
        if not heads:
            break
        done = folder / STEPS[number]
        number += 1
        if not done.is_dir():
            recovered(model, prune(now, heads), folder, judgement, mending, say=say).save(done)
            clear(folder)
        now = load(done, model_class=judgement.task.model_class, device=str(model.device))
        assert now.cut is not None
        now.cut = replace(now.cut, history=() if model.cut is None else model.cut.history)  # steps are one cut
    now.path = None  # its files are gone; it is written anew
    return now


def _check_same(
    folder: Path,
    model: AttentionModel,
    target: Target,
    judgement: Judgement,
    mending: Mending,
    options: SearchOptions,
) -> None:
    """Refuse to go on with the steps of another run."""
    header = {
        "model": weights_sha256(model),
        "target": asdict(target),
        "dtype": str(model.model.dtype),
        "device": str(model.device),
        "code": code_of("model", "data", "tasks", "importances", "pruning", "training", "statistics", "study"),
        "data": describe_files(
            find_split(judgement.data, split, task=judgement.task.name) for split in ("train", judgement.learn_on)
        ),
        "task": judgement.named,
        "learn_on": judgement.learn_on,
        "mending": asdict(mending),
        "options": asdict(options),
        "versions": versions(),
    }
    path = folder / HEADER
    if path.exists():
        check_same_run(json.loads(path.read_text("utf-8")), json.loads(json.dumps(header)), path)
    path.write_text(json.dumps(header), "utf-8")


def _next(selection: Selection, by: str, most: int) -> list[Head]:
    """The heads that go in one step: the least important, not more than so many."""
    known = scores_by(selection, by)(frozenset())
    removed: frozenset[int] = frozenset()
    for unit in sorted(range(len(selection.units)), key=lambda one: (known[one], one)):
        fits = selection.size(removed | {unit}) <= most
        if fits and unit in selection.candidates(removed):
            removed |= {unit}
    return list(selection.heads(removed))
