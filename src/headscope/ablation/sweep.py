"""Exact ablation of every head, without repeating the part of the forward pass that an ablation cannot change.

Examples are run in blocks, each a random sample. The intact pass of a block (without ablation) is stored
(`model.replay`). Variants are sets of heads to ablate. They are run from the top layer down, since an ablation in an
upper layer changes the fewest blocks and therefore costs least. The losses and scores of one block with all variants of
one site are a unit. A stopped run resumes after its last finished unit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from headscope.ablation.ablation_targets import Variant
from headscope.ablation.modes import mode_class
from headscope.heads import Head, Site
from headscope.model.anatomy import Parts, anatomy
from headscope.model.attention_model import AttentionModel
from headscope.model.replay import Replay, SiteOutput
from headscope.model.tokens import Batch
from headscope.tasks.base import Task
from headscope.tasks.inference import report_out_of_memory
from headscope.tasks.prepared import Prepared, batch_of, plan_batches, sequences_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Allowed difference of a faster method from complete passes, relative to the largest answer
TOLERANCE = 1e-5
MEMORY = 1_000_000_000  # bytes for the stored passes of one block
INTACT = Variant("site", "intact", ())


@dataclass(frozen=True)
class Group:
    """Variants that are run together: all variants of one site, or a variant with heads of several sites."""

    name: str
    site: Site | None
    variants: tuple[Variant, ...]


@dataclass(frozen=True)
class Unit:
    """Results of one group on one block of examples: losses [variant, item], scores [variant, item, column]."""

    block: int
    group: str
    variants: tuple[Variant, ...]
    items: tuple[int, ...]
    losses: NDArray[np.float64]
    scores: NDArray[np.float64]


@dataclass
class Sweep:
    """Exact ablation of variants by the fastest valid method.

    mode      what replaces the output of ablated heads: the name of a file in `ablation.modes`
    patterns  the fixed pattern of each head, for the mode `fixed`. If empty, each head's nearest pattern on these
              examples is used
    method    "rows": reuse stored passes, and compute only the first token in the last block;
              "reuse": reuse stored passes; "plain": a complete pass for each variant.
              None: the fastest method that passes a check on a few sequences. A method that is passed in is not checked
    notes     why a faster method is not valid for this model
    """

    model: AttentionModel
    task: Task
    prepared: Prepared
    mode: str = "zero"
    batch_size: int = 32
    seed: int = 0
    patterns: Mapping[Head, str] = field(default_factory=dict)
    method: str | None = None
    notes: list[str] = field(default_factory=list)
    parts: dict[Site, Parts] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.replacement = mode_class(self.mode)(self.patterns)
        self.model.check_evaluating()
        self.replacement.prepare(self.model, self.task, self.prepared, self.batch_size)
        if self.method is None:
            self._choose_method()
        elif self.method != "plain":
            self.parts = anatomy(self.model)

    # Method

    def _choose_method(self) -> None:
        """Set the fastest method whose answers equal those of complete passes on a few sequences."""
        self.method = "plain"
        if self.task.generates:
            self.notes.append(
                f"{self.task.name} judges generated texts: every head needs a complete run"
            )
            return
        if self.model.permanent_edits:
            self.notes.append(
                f"the model has the permanent edit {self.model.permanent_edits[0]!r}: "
                "every head needs a complete pass"
            )
            return
        self.parts = anatomy(self.model)
        without = [str(site) for site, part in self.parts.items() if part.projection is None]
        if without:
            self.notes.append(
                f"{without[0]} has no output projection of its own: every head needs a complete pass"
            )
            return
        numbers = list(range(min(4, len(self.prepared.sequences))))
        for method in ("rows", "reuse") if self.task.reads_first else ("reuse",):
            self.method = method
            problem = self._find_difference(numbers)
            if problem is None:
                return
            if problem:
                self.notes.append(f"the method {method!r} is not valid for this model: {problem}")
        self.method = "plain"

    def _find_difference(self, numbers: list[int]) -> str | None:
        """How the answers of the method differ from complete passes; None if they do not, "" if it cannot be used."""
        batch = batch_of(self.model, self.prepared, numbers)
        heads = [head for head in self.model.heads if self.replacement.replaces(head)]
        sites = list(dict.fromkeys(head.site for head in heads))
        try:
            with torch.inference_mode():
                replay = self._replay(batch)
                if self.method == "rows" and not replay.by_row:
                    return ""
                for site in dict.fromkeys((sites[0], sites[len(sites) // 2], sites[-1])):
                    head = next(head for head in heads if head.site == site)
                    variant = Variant("head", str(head), (head,))
                    answers = self._replayed_answers(
                        replay, batch, variant, replay.site_output(site)
                    )
                    expected = self._plain_answers(batch, variant)
                    largest = float(expected.abs().max().clamp_min(1.0))
                    if not torch.allclose(answers, expected, rtol=0, atol=TOLERANCE * largest):
                        difference = float((answers - expected).abs().max())
                        return f"answers without {head} differ by {difference:.1e}"
        except (RuntimeError, ValueError, TypeError, IndexError, KeyError, AssertionError) as cause:
            return f"{type(cause).__name__} in {type(self.model.model).__name__}"
        return None

    # Running

    def groups(self, variants: Sequence[Variant]) -> list[Group]:
        """The intact model first, then one group per site, in the order of the variants."""
        members: dict[Site | str, list[Variant]] = {}
        for variant in variants:
            members.setdefault(variant.site or variant.named, []).append(variant)
        return [
            Group(INTACT.named, None, (INTACT,)),
            *(
                Group(str(key), key if isinstance(key, Site) else None, tuple(group))
                for key, group in members.items()
            ),
        ]

    def blocks(self) -> list[list[int]]:
        """The items in random order, in blocks as large as MEMORY allows; one block if examples are coupled."""
        count = len(self.prepared.items)
        if self.task.is_coupled:
            return [list(range(count))]
        order = np.random.default_rng(self.seed).permutation(count).tolist()
        size = max(self.batch_size, int(MEMORY / max(self._bytes_per_item(), 1)))
        return [block.tolist() for block in np.array_split(order, -(-count // size))]

    def _bytes_per_item(self) -> float:
        """Estimated bytes of a stored pass, per item."""
        lengths = [
            len(sequence.source.ids) + len(sequence.target.ids if sequence.target else ())
            for sequence in self.prepared.sequences
        ]
        config = self.model.model.config
        width = int(getattr(config, "hidden_size", None) or config.d_model)
        return sum(lengths) / len(self.prepared.items) * width * 4 * len(self.model.sites)

    def run(
        self, block: int, items: Sequence[int], groups: Sequence[Group], done: Collection[str] = ()
    ) -> Iterator[Unit]:
        """Run one block; yields the units of all groups except those in `done`."""
        missing = [group for group in groups if group.name not in done]
        if not missing:
            return
        numbers = sequences_of(self.prepared, items)
        chunks = plan_batches(self.prepared, self.batch_size, set(numbers))  # longest first
        batches = [batch_of(self.model, self.prepared, chunk) for chunk in chunks]
        fits = self._bytes_per_item() * len(items) <= 2 * MEMORY
        with torch.inference_mode(), report_out_of_memory(self.batch_size):
            replays: list[Replay | None] = [None] * len(batches)
            if fits and self.method != "plain":
                replays = [self._replay(batch) for batch in batches]
            for group in missing:
                answers: list[dict[int, Tensor]] = [{} for _ in group.variants]  # by sequence
                for batch, replay in zip(batches, replays, strict=True):
                    for i, answer in enumerate(self._answers(batch, group, replay)):
                        answers[i].update(zip(batch.indices, answer, strict=True))
                stacked = (torch.stack([by_number[n] for n in numbers]) for by_number in answers)
                judged = [self.task.judge(answer, self.prepared, items) for answer in stacked]
                losses = np.stack([variant.losses for variant in judged])
                scores = np.stack([variant.scores for variant in judged])
                yield Unit(block, group.name, group.variants, tuple(items), losses, scores)

    def _answers(self, batch: Batch, group: Group, replay: Replay | None) -> Iterator[Tensor]:
        """For each variant of the group, its answers for one batch."""
        if group.variants == (INTACT,):
            result = self.task.call(self.model, batch) if replay is None else replay.result
            yield self._extract(batch, result)
            return
        if self.method == "plain" or group.site is None:
            for variant in group.variants:
                yield self._plain_answers(batch, variant)
            return
        replay = self._replay(batch) if replay is None else replay
        site_output = replay.site_output(group.site)
        intact = self._extract(batch, replay.result)
        for variant in group.variants:
            is_single = self.replacement.is_zero and len(variant.heads) == 1
            if is_single and site_output.is_zero(self.model.index_of(variant.heads[0])):
                yield intact  # the head adds exactly zero
            else:
                yield self._replayed_answers(replay, batch, variant, site_output)

    def _replayed_answers(
        self, replay: Replay, batch: Batch, variant: Variant, site_output: SiteOutput
    ) -> Tensor:
        """Answers with the heads of one site replaced: only the blocks above the site are computed again."""
        site = variant.site
        assert site is not None
        if len(variant.heads) == 1:
            head = variant.heads[0]
            output = site_output.without(
                self.model.index_of(head), self._replacement_of(replay, head, site_output)
            )
        else:
            context = site_output.context.clone()
            for head in variant.heads:
                result = self._replacement_of(replay, head, site_output)
                context[:, :, self.model.index_of(head)] = 0 if result is None else result
            projected = context.flatten(2) @ site_output.weight.flatten(1).T
            output = site_output.without_heads() + projected
        return self._extract(batch, replay.run_with(site, output, site_output))

    def _replacement_of(self, replay: Replay, head: Head, site_output: SiteOutput) -> Tensor | None:
        """The output that replaces an ablated head's, before projection [sequence, query, head width]; None: zero."""
        mode = self.replacement
        if mode.is_zero:
            return None
        constant = mode.constant(head)
        if constant is not None:
            return constant.expand_as(site_output.context[:, :, 0])
        # The heads of a site do not affect each other, so one pass with all of them edited serves each of them.
        if site_output.edited_context is None:
            heads = [h for h in self.model.heads if h.site == head.site and mode.replaces(h)]
            with self.model.edited(mode.edit(tuple(heads))):
                site_output.edited_context = replay.context_under(head.site)
        queries = site_output.context.shape[1]  # 1 if only the first token is computed
        return site_output.edited_context[:, :queries, self.model.index_of(head)]

    def _plain_answers(self, batch: Batch, variant: Variant) -> Tensor:
        """Answers of a complete pass with the variant's heads ablated."""
        with self.model.edited(self.replacement.edit(variant.heads)):
            return self._extract(batch, self.task.call(self.model, batch))

    def _replay(self, batch: Batch) -> Replay:
        real = batch.inputs.get("attention_mask")
        return Replay(
            self.model,
            self.parts,
            lambda: self.task.call(self.model, batch),
            real=None if real is None else real.bool().to(self.model.device),
            reads_first=self.method == "rows",
        )

    def _extract(self, batch: Batch, output: Any) -> Tensor:
        return self.task.extract_answers(output, batch, self.prepared)
