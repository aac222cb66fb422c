"""Iterative pruning: score heads, prune a few, train, and repeat (Michel et al. 2019, Prasanna et al. 2020)."""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from pathlib import Path

from headscope.config.option import options_of, record_options
from headscope.config.prune import PruneConfig
from headscope.config.search import SearchConfig
from headscope.config.shared import Reading, Run, TaskData
from headscope.data.records import find_split
from headscope.heads import Head
from headscope.model.attention_model import AttentionModel
from headscope.model.load import load
from headscope.model.surgery import prune
from headscope.pruning.pareto_front import Report
from headscope.pruning.recovery import delete_training_files, recover
from headscope.pruning.scores import scores_by
from headscope.pruning.search_inputs import SearchInputs, read_inputs
from headscope.pruning.search_result import SearchResult, make_result
from headscope.pruning.subset_evaluator import Memory, Removed, SubsetEvaluator, SubsetState
from headscope.pruning.target import heads_to_remove
from headscope.study.journal import check_or_write_header
from headscope.study.run_record import describe_files, hash_code

HEADER = "steps.json"
# packages whose code determines the results
CODE = ("model", "data", "tasks", "ablation", "pruning", "training", "statistics", "study")
STEPS = tuple(f"step-{number}" for number in range(1, 1000))


def prune_in_steps(
    model: AttentionModel,
    config: PruneConfig,
    data: TaskData,
    reading: Reading,
    run: Run,
    folder: Path,
) -> tuple[AttentionModel, SearchResult]:
    """Prune and train in steps; returns the last model, and all steps as the result of a search.

    folder  holds the models of finished steps, so that a stopped run can be resumed
    """
    started = time.perf_counter()
    inputs = read_inputs(model, config, data, reading, run)
    selection = inputs.selection(Memory())
    wanted = heads_to_remove(config, selection)
    assert wanted is not None
    _check_same(folder, inputs, config)
    steps = _Steps(inputs, selection, folder, config)
    report = Report(selection, inputs.report_set, build_model=steps.model_of)
    if report.chance_note is not None:
        run.log(f"note: {report.chance_note}")
    path = steps.follow(wanted)
    front = report.front([path], path[-1], config.front_sizes, run.log)
    training_options = {
        name: getattr(config, name) for name in ("recover", "distil", "learning_rate")
    }
    seconds = time.perf_counter() - started
    result = make_result(inputs, report, front, path[-1], seconds, training_options)
    run.log(result.plan.chosen["advice"])
    last = steps.model_of(path[-1].removed)
    last.path = None  # its files are temporary; the caller writes the model to its final directory
    return last, result


class _Steps:
    """The steps: for each set of removed units, the directory of the model that was trained without them.

    A unit is a group of heads that can only be removed together: one head, or the query heads that share a KV head.
    """

    def __init__(
        self, inputs: SearchInputs, selection: SubsetEvaluator, folder: Path, config: PruneConfig
    ) -> None:
        self.inputs, self.selection, self.folder, self.config = inputs, selection, folder, config
        self._folders: dict[Removed, Path] = {}
        self._last: tuple[Removed, AttentionModel] = (frozenset(), inputs.model)

    def follow(self, wanted: int) -> list[SubsetState]:
        """Take all steps; returns the states from the unpruned model to the last step. wanted: heads to remove."""
        path = [SubsetState(frozenset(), self.selection.intact)]
        metric, log = self.inputs.task.metrics[0], self.inputs.run.log
        while True:
            removed, outcome = path[-1].removed, path[-1].outcome
            count = self.selection.size(removed)
            log(f"{count} removed: loss {outcome.loss:.4f}, {metric} {outcome.metric:.4f}")
            heads = self._select_next(path[-1], wanted - count) if count < wanted else []
            if not heads:
                return path
            # A unit is removed as one, so it is enough to look up its first head.
            units = enumerate(self.selection.units)
            after = removed | {number for number, unit in units if unit[0] in heads}
            self._train(removed, after, heads, self.folder / STEPS[len(path) - 1])
            outcome = self.selection.evaluate_trained(after, self.model_of(after))
            path.append(SubsetState(after, outcome))

    def model_of(self, removed: Removed) -> AttentionModel:
        """The model that was trained without these units; only the last one is kept in memory."""
        if self._last[0] != removed:
            unpruned = self.inputs.model
            current = unpruned
            if removed:
                current = load(
                    self._folders[removed],
                    model_class=self.inputs.task.model_class,
                    device=str(unpruned.device),
                    reading=unpruned.reading,
                )
                assert current.cut is not None
                history = () if unpruned.cut is None else unpruned.cut.history
                # All steps together are one pruning, so the record names only prunings before this run.
                current.cut = replace(current.cut, history=history)
            self._last = removed, current
        return self._last[1]

    def _train(self, before: Removed, after: Removed, heads: list[Head], step: Path) -> None:
        """Prune and train the model of one step, unless its directory exists already.

        before, after  the removed units before and after the step
        heads          the heads that the step removes
        """
        self._folders[after] = step
        if not step.is_dir():
            unpruned, data, run = self.inputs.model, self.inputs.data, self.inputs.run
            pruned = prune(self.model_of(before), heads)
            recover(unpruned, pruned, self.folder, self.config, data, run).save(step)
            delete_training_files(self.folder)

    def _select_next(self, state: SubsetState, most_heads: int) -> list[Head]:
        """The heads to remove in the next step: the least important ones of the current model, `most_heads` at most."""
        config = self.config
        largest = max(len(unit) for unit in self.selection.units)
        per_step = max(round(config.step * len(self.inputs.model.heads)), largest)
        memory = Memory()
        # The current model was already evaluated after its training: store the outcome, so that it is not repeated.
        memory.add("evaluate []", asdict(state.outcome))
        current = self.inputs.selection(memory, self.model_of(state.removed))
        cost_before = current.spent
        scores = scores_by(current, config.by, config.relevance_rules)(frozenset())
        self.selection.spent += current.spent - cost_before
        removed: Removed = frozenset()
        for unit in sorted(range(len(current.units)), key=lambda unit: (scores[unit], unit)):
            fits = current.size(removed | {unit}) <= min(per_step, most_heads)
            if fits and unit in current.candidates(removed):
                removed |= {unit}
        return list(current.heads(removed))


def _check_same(folder: Path, inputs: SearchInputs, config: PruneConfig) -> None:
    """Refuse to resume if the folder holds the steps of a run with other options, data or code."""
    training = set(options_of(PruneConfig)) - set(options_of(SearchConfig)) - {"form"}
    header = inputs.header() | {
        "code": hash_code(*CODE),
        "train": describe_files([find_split(inputs.data.data, "train", task=inputs.task.name)]),
        "training": {
            name: value for name, value in record_options(config).items() if name in training
        },
    }
    check_or_write_header(folder / HEADER, header)
