"""Exact removal, one variant after another: over all examples or, in a race, over as many as a verdict takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from headscope.ablation.ablation_results import Deltas
from headscope.ablation.ablation_targets import variants_of
from headscope.ablation.gradients import Terms
from headscope.ablation.sequential_test import Race
from headscope.ablation.sweep import INTACT, Group, Mode, Sweep, Unit
from headscope.heads import Head, HeadSet
from headscope.model.attention_model import AttentionModel
from headscope.model.relevance.rules import Rules
from headscope.study.journal import Journal, check_same_run, packed, unpacked
from headscope.tables import Row, TableRow
from headscope.tasks import Prepared, Task

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headscope.heads import Site

Progress = Callable[[int, int], None]
Told = Callable[[str], None]


@dataclass(frozen=True)
class Asked:
    """What is to be found out, and how."""

    by: tuple[str, ...]
    kinds: tuple[str, ...]
    mode: Mode
    heads: str | None
    race: float | None
    labels_free: bool
    normalized: bool
    batch_size: int
    seed: int
    patterns: Mapping[Head, str] | None = None
    rules: Rules = "voita"


class Removal:
    """What each variant changes, example by example."""

    def __init__(
        self,
        model: AttentionModel,
        task: Task,
        prepared: Prepared,
        asked: Asked,
        sites: Sequence[Site],
        progress: Progress,
        say: Told,
    ) -> None:
        self.model, self.task, self.prepared, self.asked = model, task, prepared, asked
        self.progress, self.say = progress, say
        self.journal: Journal | None = None
        self.way, self.notes = "", list[str]()
        self.patterns: dict[str, str] = {}
        self.deltas = Deltas(task, len(prepared.items), asked.seed)
        self.race: Race | None = None
        among = None if asked.heads is None else list(HeadSet(asked.heads, among=model.heads))
        self.variants = [
            variant
            for kind in asked.kinds
            for variant in variants_of(model, kind, among, sites=sites)  # type: ignore[arg-type]
        ]

    def start_race(self, guides: Terms, error_rate: float) -> None:
        heads = [variant.heads[0] for variant in self.variants if variant.kind == "head"]
        signed = guides.signed[:, [guides.heads.index(head) for head in heads]]
        self.race = Race(heads, signed, error_rate, self.asked.seed)

    def run(self) -> None:
        sweep = Sweep(
            self.model,
            self.task,
            self.prepared,
            mode=self.asked.mode,
            batch_size=self.asked.batch_size,
            seed=self.asked.seed,
            fixed=dict(self.asked.patterns or {}),
        )
        self.way, self.notes = sweep.way, sweep.notes
        self.patterns = {str(head): name for head, name in sweep.fixed.items()}
        for note in sweep.notes:
            self.say(f"note: {note}")
        what = (
            "heads, one at a time,"
            if self.asked.kinds == ("head",)
            else "heads or sets of heads, one at a time,"
        )
        self.say(
            f"ablating {len(self.variants)} {what} on {len(self.prepared.items)} examples (mode {self.asked.mode})"
        )
        groups = sweep.groups(self.variants)
        blocks = sweep.blocks() if self.race is None else self.race.design.blocks()
        total = len(blocks) * len(self.variants)
        done = 0
        for number, items in enumerate(blocks):
            here = self._live(groups)
            if all(group.variants == (INTACT,) for group in here):
                break  # all heads are settled
            for unit in self._units(sweep, number, items, here):
                self.deltas.add(unit)
                self._tell(unit)
                if unit.variants != (INTACT,):
                    done += len(unit.variants)
                    self.progress(min(done, total), total)
            if self.race is not None and self.race.live and number + 1 < len(blocks):
                self.race.look(number, self.changes(self.race.live))
                settled, run = len(self.race.estimates), self.race.design.taken[number].sum()
                self.say(f"{settled} of {len(self.race.heads)} heads settled after {run} examples")

    def rows(self) -> list[Row]:
        """A row a head, where heads were removed alone."""
        if "head" not in self.asked.kinds:
            return []
        return self.deltas.rows() if self.race is None else self.race.rows(self.deltas.rows())

    def tables(self) -> dict[str, list[TableRow]]:
        tables: dict[str, list[TableRow]] = {}
        if "head" in self.asked.kinds:
            tests = self.deltas.significance()
            tables["significance"] = tests if self.race is None else self.race.significance(tests)
        others = [kind for kind in self.asked.kinds if kind != "head"]
        if others:
            tables["ablations"] = self.deltas.ablations(others)
        if "only" in others:
            tables["all_but_one"] = self.deltas.all_but_one()
        return tables

    def _tell(self, unit: Unit) -> None:
        """The head of a site whose removal changes the loss most over the examples so far."""
        found = [one for one in unit.variants if one.kind == "head"]
        if len(found) > 1 and self.race is None:  # a race does not take examples alike
            strongest = max(found, key=lambda one: abs(self.deltas.of_loss(one).value))
            delta = self.deltas.of_loss(strongest)
            between = f"[{delta.low:+.4f}, {delta.high:+.4f}]"
            self.say(
                f"{unit.group}: largest change of the loss {delta.value:+.4f} {between}, by {strongest.named}"
            )

    def _live(self, groups: list[Group]) -> list[Group]:
        """The groups without the heads that are settled."""
        if self.race is None:
            return groups
        live = set(self.race.live)
        kept = [
            Group(
                group.name,
                group.site,
                tuple(one for one in group.variants if one.kind != "head" or one.heads[0] in live),
            )
            for group in groups
        ]
        return [group for group in kept if group.variants]

    def changes(self, heads: Sequence[Head]) -> NDArray[np.float64]:
        """[item, head]: the change of loss by each of these heads."""
        by_head = {variant.heads[0]: variant for variant in self.deltas.variants("head")}
        return np.stack([self.deltas.changes(by_head[head]) for head in heads], axis=1)

    def _units(
        self, sweep: Sweep, block: int, items: Sequence[int], groups: list[Group]
    ) -> Iterator[Unit]:
        """Those of the journal, then the rest, each written down as it comes."""
        known = (
            {}
            if self.journal is None
            else {(unit["block"], unit["group"]): unit for unit in self.journal.units}
        )
        for group in groups:
            stored = known.get((block, group.name))
            if stored is not None:
                check_same_run(
                    {"sample": stored["items"]},
                    {"sample": list(items)},
                    self.journal.path,  # type: ignore[union-attr]
                )
                losses, scores = unpacked(stored["losses"]), unpacked(stored["scores"])
                yield Unit(block, group.name, group.variants, tuple(items), losses, scores)
        done = {group.name for group in groups if (block, group.name) in known}
        for unit in sweep.run(block, items, groups, done):
            if self.journal is not None:
                stored = {"losses": packed(unit.losses), "scores": packed(unit.scores)}
                self.journal.add(
                    {"block": block, "group": unit.group, "items": list(items), **stored}
                )
            yield unit

    def exact(self, heads: Sequence[Head]) -> NDArray[np.float64] | None:
        """[item, head]: the change of loss by each head, where all heads were run on all examples."""
        run = {variant.heads[0] for variant in self.deltas.variants("head")}
        is_whole = run == set(heads) and (self.race is None or not self.race.estimates)
        return self.changes(heads) if is_whole else None
