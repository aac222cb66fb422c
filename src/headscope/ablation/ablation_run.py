"""Exact ablation of all variants on all examples. A sequential test drops heads with a clear verdict early."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from headscope.ablation.ablation_results import Deltas
from headscope.ablation.ablation_targets import variants_of
from headscope.ablation.estimates.gradient import Terms
from headscope.ablation.sequential_test import SequentialTest
from headscope.ablation.sweep import INTACT, Group, Sweep, Unit
from headscope.config.importance import ImportanceConfig
from headscope.config.shared import Run
from headscope.heads import Head, HeadSet
from headscope.model.attention_model import AttentionModel
from headscope.study.journal import Journal, check_same_run, decode_array, encode_array
from headscope.tables import Row, TableRow
from headscope.tasks import Prepared, Task

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headscope.heads import Site


class AblationRun:
    """One run of exact ablation: its options, its progress and its results.

    deltas    losses and scores of the intact model and of every variant
    patterns  the fixed pattern of each head, in the mode `fixed`
    test      the sequential test, if there is one
    """

    def __init__(
        self,
        model: AttentionModel,
        task: Task,
        prepared: Prepared,
        config: ImportanceConfig,
        run: Run,
        sites: Sequence[Site],
    ) -> None:
        self.model, self.task, self.prepared = model, task, prepared
        self.config, self.run_config = config, run
        self.journal: Journal | None = None
        self.method, self.notes = "", list[str]()
        self.patterns: dict[str, str] = {}
        self.deltas = Deltas(task, len(prepared.items), run.seed)
        self.test: SequentialTest | None = None
        among = None if config.heads is None else list(HeadSet(config.heads, among=model.heads))
        self.variants = [
            variant
            for kind in config.kind
            for variant in variants_of(model, kind, among, sites=sites)  # type: ignore[arg-type]
        ]

    def start_sequential_test(self, terms: Terms, error_rate: float) -> None:
        """Make the next `run` a sequential test. terms: gradient terms of all examples."""
        heads = [variant.heads[0] for variant in self.variants if variant.kind == "head"]
        signed = terms.signed[:, [terms.heads.index(head) for head in heads]]
        self.test = SequentialTest(heads, signed, error_rate, self.run_config.seed)

    def run(self) -> None:
        """Ablate all variants; results are in `deltas`."""
        sweep = Sweep(
            self.model,
            self.task,
            self.prepared,
            mode=self.config.mode,
            batch_size=self.config.batch_size,
            seed=self.run_config.seed,
            patterns=self.config.patterns or {},
        )
        self.method, self.notes = sweep.method or "", sweep.notes
        self.patterns = {str(head): name for head, name in sweep.replacement.patterns.items()}
        for note in sweep.notes:
            self.run_config.log(f"note: {note}")
        units = "heads" if self.config.kind == ("head",) else "heads or sets of heads"
        self.run_config.log(
            f"ablating {len(self.variants)} {units}, one at a time, "
            f"on {len(self.prepared.items)} examples (mode {self.config.mode})"
        )
        groups = sweep.groups(self.variants)
        blocks = sweep.blocks() if self.test is None else self.test.sample.blocks()
        total = len(blocks) * len(self.variants)
        done = 0
        for number, items in enumerate(blocks):
            undecided = self._live(groups)
            if all(group.variants == (INTACT,) for group in undecided):
                break  # all heads are settled
            for unit in self._units(sweep, number, items, undecided):
                self.deltas.add(unit)
                self._log_strongest(unit)
                if unit.variants != (INTACT,):
                    done += len(unit.variants)
                    self.run_config.progress(min(done, total), total)
            if self.test is not None and self.test.live and number + 1 < len(blocks):
                self.test.look(number, self.changes(self.test.live))
                settled, run = len(self.test.settled), self.test.sample.counts[number].sum()
                self.run_config.log(
                    f"{settled} of {len(self.test.heads)} heads settled after {run} examples"
                )

    def rows(self) -> list[Row]:
        """Rows of heads.csv; none if no single heads were ablated."""
        if "head" not in self.config.kind:
            return []
        return self.deltas.rows() if self.test is None else self.test.rows(self.deltas.rows())

    def tables(self) -> dict[str, list[TableRow]]:
        """Rows of other tables, by name of the table."""
        tables: dict[str, list[TableRow]] = {}
        if "head" in self.config.kind:
            tests = self.deltas.significance()
            tables["significance"] = tests if self.test is None else self.test.significance(tests)
        others = [kind for kind in self.config.kind if kind != "head"]
        if others:
            tables["ablations"] = self.deltas.ablations(others)
        if "only" in others:
            tables["all_but_one"] = self.deltas.all_but_one()
        return tables

    def _log_strongest(self, unit: Unit) -> None:
        """Log the head of a site whose ablation changes the loss most over the examples so far."""
        heads = [variant for variant in unit.variants if variant.kind == "head"]
        # In a sequential test heads are not evaluated on the same examples.
        if len(heads) > 1 and self.test is None:
            strongest = max(heads, key=lambda variant: abs(self.deltas.of_loss(variant).value))
            delta = self.deltas.of_loss(strongest)
            between = f"[{delta.low:+.4f}, {delta.high:+.4f}]"
            self.run_config.log(
                f"{unit.group}: largest change of the loss {delta.value:+.4f} {between}, by {strongest.named}"
            )

    def _live(self, groups: list[Group]) -> list[Group]:
        """The groups without the heads that are settled in the sequential test."""
        if self.test is None:
            return groups
        live = set(self.test.live)
        remaining = (
            tuple(v for v in group.variants if v.kind != "head" or v.heads[0] in live)
            for group in groups
        )
        return [
            replace(group, variants=variants)
            for group, variants in zip(groups, remaining, strict=True)
            if variants
        ]

    def changes(self, heads: Sequence[Head]) -> NDArray[np.float64]:
        """[item, head]: the change of loss when each of these heads is ablated."""
        by_head = {variant.heads[0]: variant for variant in self.deltas.variants("head")}
        return np.stack([self.deltas.changes(by_head[head]) for head in heads], axis=1)

    def _units(
        self, sweep: Sweep, block: int, items: Sequence[int], groups: list[Group]
    ) -> Iterator[Unit]:
        """The units that the journal holds, then those that are run now; these are added to the journal."""
        journal, sample = self.journal, {"sample": list(items)}
        units = [] if journal is None else journal.units
        finished = {unit["group"]: unit for unit in units if unit["block"] == block}
        for group in groups:
            stored = finished.get(group.name)
            if stored is not None and journal is not None:
                check_same_run({"sample": stored["items"]}, sample, journal.path)
                losses, scores = decode_array(stored["losses"]), decode_array(stored["scores"])
                yield Unit(block, group.name, group.variants, tuple(items), losses, scores)
        done = finished.keys() & {group.name for group in groups}
        for unit in sweep.run(block, items, groups, done):
            if journal is not None:
                stored = {"losses": encode_array(unit.losses), "scores": encode_array(unit.scores)}
                journal.add({"block": block, "group": unit.group, "items": list(items), **stored})
            yield unit

    def exact(self, heads: Sequence[Head]) -> NDArray[np.float64] | None:
        """[item, head]: the change of loss when each head is ablated; None if any was not run on all examples."""
        ablated = {variant.heads[0] for variant in self.deltas.variants("head")}
        is_complete = ablated == set(heads) and (self.test is None or not self.test.settled)
        return self.changes(heads) if is_complete else None
