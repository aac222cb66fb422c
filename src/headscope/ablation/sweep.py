"""What does each head do for the task? Its exact removal, fast: nothing is computed twice that cannot have changed.

Examples come in blocks, each a random sample. For a block the intact pass is remembered (`model.replay`), and the
variants are run from the top of the model down, since the upper ones cost least. A finished unit is one block at one
site: the losses and scores of all its variants. Whoever wants to resume hands back which units are done.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from headscope.ablation.ablation_targets import Variant
from headscope.errors import HeadscopeError, choices
from headscope.heads import Head, Site
from headscope.model.anatomy import Parts, anatomy
from headscope.model.attention_model import AttentionModel
from headscope.model.edits import Ablate, Edit, Replace, Uniform
from headscope.model.fixed_patterns import Fixed
from headscope.model.replay import Replay, Shares
from headscope.model.tokens import Batch
from headscope.statistics.fixed_patterns import FixedPatterns
from headscope.tasks.base import Prepared, Task, batch_of, plan_batches, sequences_of
from headscope.tasks.inference import report_out_of_memory

if TYPE_CHECKING:
    from numpy.typing import NDArray

Mode = Literal["zero", "mean", "uniform", "fixed"]
# Of the largest answer: a shortcut that strays further from the plain run is not taken
TOLERANCE = 1e-5
MEMORY = 1_000_000_000  # bytes that the remembered passes of one block may take
INTACT = Variant("site", "intact", ())


def check_mode(mode: str) -> None:
    if mode not in get_args(Mode):
        raise HeadscopeError(
            f'"{mode}" is no way to ablate', where="`mode`", expected=choices(mode, get_args(Mode))
        )


@dataclass(frozen=True)
class Group:
    """Variants that are run together: those of one site, or one that concerns several sites."""

    name: str
    site: Site | None
    variants: tuple[Variant, ...]


@dataclass(frozen=True)
class Unit:
    """One block's examples at one group: losses [variant, item], scores [variant, item, column]."""

    block: int
    group: str
    variants: tuple[Variant, ...]
    items: tuple[int, ...]
    losses: NDArray[np.float64]
    scores: NDArray[np.float64]


@dataclass
class Sweep:
    """How a sweep is run: which way, and why not a faster one.

    proven  a way that was found valid for this model before it lost heads, which need not be tried again
    way     "rows" (reuse, and the last block by its first row), "reuse", or "plain" (a whole pass for each variant)
    notes   why a faster way is not valid for this model
    fixed   the patterns of the mode fixed, where they are known from elsewhere; else the nearest on these examples
    """

    model: AttentionModel
    task: Task
    prepared: Prepared
    mode: Mode = "zero"
    batch_size: int = 32
    seed: int = 0
    plainly: bool = False
    proven: str | None = None
    way: str = "plain"
    notes: list[str] = field(default_factory=list)
    parts: dict[Site, Parts] = field(default_factory=dict)
    means: dict[Head, Tensor] = field(default_factory=dict)
    fixed: dict[Head, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_mode(self.mode)
        self.model.check_evaluating()
        if self.mode == "mean":
            self.means = mean_results(self.model, self.task, self.prepared, self.batch_size)
        if self.mode == "fixed" and not self.fixed:
            self.fixed = nearest_patterns(self.model, self.task, self.prepared, self.batch_size)
        if self.proven is not None:
            self.way = self.proven
            self.parts = {} if self.way == "plain" else anatomy(self.model)
        elif not self.plainly:
            self._find_way()

    # Which way

    def _find_way(self) -> None:
        """Try the shortcuts on a few sequences and take the fastest that gives what the plain run gives."""
        if self.task.generates:
            self.notes.append(
                f"{self.task.name} judges what the model says itself: every head is a whole run"
            )
            return
        if self.model.worn:
            self.notes.append(f"the model wears {self.model.worn[0]!r}: every head is a whole pass")
            return
        self.parts = anatomy(self.model)
        without = [str(site) for site, part in self.parts.items() if part.projection is None]
        if without:
            self.notes.append(
                f"{without[0]} has no output projection of its own: every head is a whole pass"
            )
            return
        numbers = list(range(min(4, len(self.prepared.sequences))))
        for way in ("rows", "reuse"):
            self.way = way
            if way == "rows" and not self.task.reads_first:
                continue
            strays = self._strays(numbers)
            if strays is None:
                return
            if strays:
                self.notes.append(f"the way {way!r} is not valid for this model: {strays}")
        self.way = "plain"

    def _strays(self, numbers: list[int]) -> str | None:
        """How far the way is from plain runs, in words; None where it is valid, "" where it is not to be had."""
        batch = batch_of(self.model, self.prepared, numbers)
        heads = [head for head in self.model.heads if self.mode != "fixed" or head in self.fixed]
        alive = list(dict.fromkeys(head.site for head in heads))
        sites = [alive[0], alive[len(alive) // 2], alive[-1]]
        try:
            with torch.inference_mode():
                replay = self._replay(batch)
                if self.way == "rows" and not replay.by_row:
                    return ""
                for site in dict.fromkeys(sites):
                    head = next(head for head in heads if head.site == site)
                    variant = Variant("head", str(head), (head,))
                    found = self._changed(replay, batch, variant, replay.shares(site))
                    wanted = self._plain(batch, variant)
                    largest = float(wanted.abs().max().clamp_min(1.0))
                    if not torch.allclose(found, wanted, rtol=0, atol=TOLERANCE * largest):
                        return f"{head} strays by {float((found - wanted).abs().max()):.1e}"
        except (RuntimeError, ValueError, TypeError, IndexError, KeyError, AssertionError) as cause:
            return f"{type(cause).__name__} in {type(self.model.model).__name__}"
        return None

    # Running

    def groups(self, variants: Sequence[Variant]) -> list[Group]:
        """The intact model first, then one group a site in the order given."""
        sites: dict[Site | str, list[Variant]] = {}
        for variant in variants:
            sites.setdefault(variant.site or variant.named, []).append(variant)
        found = [
            Group(str(key), key if isinstance(key, Site) else None, tuple(these))
            for key, these in sites.items()
        ]
        return [Group(INTACT.named, None, (INTACT,)), *found]

    def blocks(self) -> list[list[int]]:
        """The items in random order, in blocks as large as the memory for remembered passes allows.

        A task whose examples hang together is one block.
        """
        count = len(self.prepared.items)
        if self.task.is_coupled:
            return [list(range(count))]
        order = np.random.default_rng(self.seed).permutation(count).tolist()
        each = max(self.batch_size, int(MEMORY / max(self._bytes_an_item(), 1)))
        return [part.tolist() for part in np.array_split(order, -(-count // each))]

    def _bytes_an_item(self) -> float:
        lengths = [
            len(one.source.ids) + len(one.target.ids if one.target else ())
            for one in self.prepared.sequences
        ]
        config = self.model.model.config
        width = int(getattr(config, "hidden_size", None) or config.d_model)
        return sum(lengths) / len(self.prepared.items) * width * 4 * len(self.model.sites)

    def run(
        self, block: int, items: Sequence[int], groups: Sequence[Group], done: Collection[str] = ()
    ) -> Iterator[Unit]:
        """The units of one block that are not done yet."""
        wanted = [group for group in groups if group.name not in done]
        if not wanted:
            return
        # The block's sequences in batches of like length, the longest first.
        chunks = plan_batches(
            self.prepared, self.batch_size, set(sequences_of(self.prepared, items))
        )
        batches = [batch_of(self.model, self.prepared, chunk) for chunk in chunks]
        kept = self._bytes_an_item() * len(items) <= 2 * MEMORY and self.way != "plain"
        with torch.inference_mode(), report_out_of_memory(self.batch_size):
            replays = [self._replay(batch) for batch in batches] if kept else None
            for group in wanted:
                found: list[dict[int, Tensor]] = [{} for _ in group.variants]
                for i, batch in enumerate(batches):
                    replay = None if replays is None else replays[i]
                    for place, answer in enumerate(self._answers(batch, group, replay)):
                        found[place].update(zip(batch.indices, answer, strict=True))
                yield self._unit(block, items, group, found)

    def _unit(
        self, block: int, items: Sequence[int], group: Group, found: list[dict[int, Tensor]]
    ) -> Unit:
        numbers = sequences_of(self.prepared, items)
        stacked = (torch.stack([answers[number] for number in numbers]) for answers in found)
        judged = [self.task.judge(answers, self.prepared, items) for answers in stacked]
        losses = np.stack([one.losses for one in judged])
        scores = np.stack([one.scores for one in judged])
        return Unit(block, group.name, group.variants, tuple(items), losses, scores)

    def _answers(self, batch: Batch, group: Group, replay: Replay | None) -> Iterator[Tensor]:
        """Each variant's answers for one batch."""
        if group.variants == (INTACT,):
            yield self._read(
                batch, self.task.call(self.model, batch) if replay is None else replay.result
            )
            return
        if self.way == "plain" or group.site is None:
            for variant in group.variants:
                yield self._plain(batch, variant)
            return
        replay = self._replay(batch) if replay is None else replay
        shares = replay.shares(group.site)
        intact = self._read(batch, replay.result)
        for variant in group.variants:
            if (
                self.mode == "zero"
                and len(variant.heads) == 1
                and shares.is_silent(self.model.index_of(variant.heads[0]))
            ):
                yield intact  # exactly nothing is taken away
            else:
                yield self._changed(replay, batch, variant, shares)

    def _changed(self, replay: Replay, batch: Batch, variant: Variant, shares: Shares) -> Tensor:
        site = variant.site
        assert site is not None
        if len(variant.heads) == 1:
            head = variant.heads[0]
            output = shares.without(self.model.index_of(head), self._instead(replay, head, shares))
        else:
            stay = shares.context.clone()
            for head in variant.heads:
                instead = self._instead(replay, head, shares)
                stay[:, :, self.model.index_of(head)] = 0 if instead is None else instead
            output = shares.silent() + stay.flatten(2) @ shares.weight.flatten(1).T
        return self._read(batch, replay.changed(site, output, shares))

    def _instead(self, replay: Replay, head: Head, shares: Shares) -> Tensor | None:
        """What stands for an ablated head's result [sequence, query, head width]; None for nothing."""
        if self.mode == "zero":
            return None
        if self.mode == "mean":
            return self.means[head].expand_as(shares.context[:, :, 0])
        # The heads of a site do not hear of each other: one pass tells of all of them
        if shares.under is None:
            heads = [one for one in self.model.heads if one.site == head.site]
            heads = [one for one in heads if self.mode != "fixed" or one in self.fixed]
            with self.model.edited(self._edit(Variant("site", str(head.site), tuple(heads)))):
                shares.under = replay.context_under(head.site)
        return shares.under[:, : shares.context.shape[1], self.model.index_of(head)]

    def _plain(self, batch: Batch, variant: Variant) -> Tensor:
        with self.model.edited(self._edit(variant)):
            return self._read(batch, self.task.call(self.model, batch))

    def _edit(self, variant: Variant) -> Edit:
        if self.mode == "mean":
            return Replace({head: self.means[head] for head in variant.heads})
        if self.mode == "fixed":
            return Fixed({head: self.fixed[head] for head in variant.heads})
        return Uniform(variant.heads) if self.mode == "uniform" else Ablate(variant.heads)

    def _replay(self, batch: Batch) -> Replay:
        real = batch.inputs.get("attention_mask")
        return Replay(
            self.model,
            self.parts,
            lambda: self.task.call(self.model, batch),
            real=None if real is None else real.bool().to(self.model.device),
            reads_first=self.way == "rows",
        )

    def _read(self, batch: Batch, output: Any) -> Tensor:
        return self.task.extract_answers(output, batch, self.prepared)


def mean_results(
    model: AttentionModel, task: Task, prepared: Prepared, batch_size: int
) -> dict[Head, Tensor]:
    """Each head's average result [head width] over all real tokens of the data."""
    means = _Means()
    with torch.inference_mode(), model.edited(means), report_out_of_memory(batch_size):
        for numbers in plan_batches(prepared, batch_size):
            means.batch = batch_of(model, prepared, numbers)
            task.single_pass(model, means.batch)
    return {
        head: (row / means.counts[site]).float()
        for site, total in means.totals.items()
        for head, row in zip(site.heads(len(total)), total, strict=True)
    }


def nearest_patterns(
    model: AttentionModel, task: Task, prepared: Prepared, batch_size: int
) -> dict[Head, str]:
    """The fixed pattern that each head of a self-attention is nearest to on this data, by Jensen-Shannon divergence."""
    patterns = FixedPatterns()
    with torch.inference_mode(), model.watched(patterns.update), report_out_of_memory(batch_size):
        for numbers in plan_batches(prepared, batch_size):
            task.single_pass(model, batch_of(model, prepared, numbers))
    found: dict[Head, list[tuple[float, str]]] = {}
    for row in patterns.table():
        if np.isfinite(row.value):
            name = row.statistic.removeprefix("js-")
            found.setdefault(Head(row.stack, row.layer, row.head), []).append((row.value, name))
    return {head: min(distances)[1] for head, distances in found.items()}


class _Means(Edit):
    """Changes nothing; sums the heads' results over real tokens."""

    def __init__(self) -> None:
        self.batch: Batch | None = None
        self.totals: dict[Site, Tensor] = {}
        self.counts: dict[Site, int] = {}

    def changes_output(self, site: Site) -> bool:
        return True

    def output(self, site: Site, output: Tensor) -> Tensor:
        assert self.batch is not None
        sides = self.batch.layout.sides(site.stack)
        assert sides is not None
        real = output[sides[0].real.to(output.device)].double()
        self.totals[site] = self.totals.get(site, 0) + real.sum(dim=0)
        self.counts[site] = self.counts.get(site, 0) + real.shape[0]
        return output
