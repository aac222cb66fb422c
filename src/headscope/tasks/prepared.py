"""The examples of a task as sequences for one model, and batches of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from headscope.config.checks import check_count
from headscope.data.batches import collate
from headscope.data.encode import Counts, Encoder
from headscope.data.encode import Sequence as Encoded
from headscope.data.examples import Example
from headscope.errors import HeadscopeError
from headscope.model.attention_model import AttentionModel
from headscope.model.tokens import Batch
from headscope.tasks.items import Item

OVERHEAD = 128  # cost of a batch in addition to its tokens, in tokens
IGNORED = -100  # label of a token that is not judged


@dataclass
class Prepared:
    """A task's examples as sequences for one model.

    sequences  the sequences that the model reads, `index` being their number
    parts      for each item the numbers of its sequences
    targets    one per item, as the task's `losses` takes them
    labels     for tasks that judge tokens: the target of each token of each sequence, or IGNORED
    extras     other data of the task
    """

    items: list[Item]
    sequences: list[Encoded]
    parts: list[tuple[int, ...]]
    targets: Any
    counts: Counts
    labels: list[list[int]] | None = None
    extras: Any = None

    @property
    def is_one_to_one(self) -> bool:
        """Whether every item is one sequence, so that the losses of a batch depend on its own answers only."""
        return all(part == (i,) for i, part in enumerate(self.parts))


def sequences_of(prepared: Prepared, items: Sequence[int]) -> list[int]:
    """The numbers of these items' sequences, item by item."""
    return [number for item in items for number in prepared.parts[item]]


def part_rows(prepared: Prepared, items: Sequence[int]) -> Tensor:
    """[item, part]: rows of the items' sequences in a tensor that holds the sequences of these `items`, item by item.

    All items have the same number of sequences (parts).
    """
    width = len(prepared.parts[items[0]])
    return torch.arange(len(items) * width).view(len(items), width)


def plan_batches(
    prepared: Prepared, batch_size: int, among: Iterable[int] | None = None
) -> list[list[int]]:
    """Numbers of sequences in batches, the longest first. among: these sequences instead of all.

    Splits the sorted sequences into batches at minimum cost, by dynamic programming. The cost of a batch is its
    padded number of tokens plus OVERHEAD.
    """
    check_count(batch_size, "`batch_size`")
    numbers = range(len(prepared.sequences)) if among is None else among
    order = sorted(numbers, key=lambda i: (*_lengths(prepared.sequences[i]), -i), reverse=True)
    widths = [sum(_lengths(prepared.sequences[i])) for i in order]
    # For each end: the least cost of batches of the sequences before it, and the start of the last of these batches
    least, first = [0.0], [0]
    for end in range(1, len(order) + 1):
        lowest, best, width = math.inf, end - 1, 0
        for start in range(end - 1, max(0, end - batch_size) - 1, -1):
            width = max(width, widths[start])
            cost = least[start] + (end - start) * width + OVERHEAD
            if cost < lowest:
                lowest, best = cost, start
        least.append(lowest)
        first.append(best)
    batches, end = [], len(order)
    while end:
        batches.append(order[first[end] : end])
        end = first[end]
    return batches[::-1]


def _lengths(sequence: Encoded) -> tuple[int, int]:
    return len(sequence.source.ids), 0 if sequence.target is None else len(sequence.target.ids)


def batch_of(model: AttentionModel, prepared: Prepared, numbers: Sequence[int]) -> Batch:
    """One padded batch; its `indices` are the sequences' numbers."""
    batch = collate(model, [prepared.sequences[i] for i in numbers])
    if prepared.labels is None:
        return batch
    side = batch.inputs.get("decoder_input_ids", batch.inputs["input_ids"])
    return replace(batch, labels=labels_of(prepared, batch, side.shape[1]))


def labels_of(prepared: Prepared, batch: Batch, length: int) -> Tensor:
    """[sequence, token]: the labels of a batch, IGNORED for tokens that are not judged."""
    assert prepared.labels is not None
    padded = [(prepared.labels[i] + [IGNORED] * length)[:length] for i in batch.indices]
    return torch.tensor(padded)


def encode_examples(
    model: AttentionModel, examples: Sequence[Example], max_length: int | None
) -> tuple[list[Encoded | None], Counts]:
    """Each example's sequence, None if it has none, and counts of what was left out."""
    encoder = Encoder(model, max_length=max_length)
    sequences: list[Encoded | None] = [None] * len(examples)
    for sequence in encoder.encode(list(examples), 0):
        sequences[sequence.index] = sequence
    encoder.unknown.warn()
    return sequences, encoder.counts


def encode_items(
    model: AttentionModel,
    items: list[Item],
    max_length: int | None,
    fewest_tokens: tuple[int, str] = (0, ""),
) -> Prepared:
    """Items of one sequence each, without targets. Sequences below `fewest_tokens` are skipped, with the reason."""
    examples = [Example(*item.texts, where=item.where) for item in items]  # type: ignore[misc]
    sequences, counts = encode_examples(model, examples, max_length)
    for number, sequence in enumerate(sequences):
        if sequence is not None and len(sequence.source.ids) < fewest_tokens[0]:
            sequences[number] = None
            counts.skip(fewest_tokens[1])
    return drop_incomplete(items, sequences, 1, counts)


def drop_incomplete(
    items: list[Item], sequences: Sequence[Encoded | None], size: int, counts: Counts
) -> Prepared:
    """The items whose `size` consecutive sequences all exist, with sequences renumbered and without targets."""
    complete: list[Item] = []
    encoded: list[Encoded] = []
    for item, start in zip(items, range(0, len(sequences), size), strict=True):
        group = [part for part in sequences[start : start + size] if part is not None]
        if len(group) == size:
            complete.append(item)
            encoded += group
    if not complete:
        why = ", ".join(f"{count} {reason}" for reason, count in counts.skipped.items())
        raise HeadscopeError(
            f"no example could be read by the model ({why})", expected="texts that become tokens"
        )
    numbered = [Encoded(i, part.source, part.target) for i, part in enumerate(encoded)]
    parts = [tuple(range(i * size, (i + 1) * size)) for i in range(len(complete))]
    return Prepared(complete, numbered, parts, None, counts)
