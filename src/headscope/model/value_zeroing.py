"""Token maps by intervention: how states change if a token's values, or all attention to it, are removed in one layer.

Value zeroing (Mohebbi et al. 2023) sets the values of one token to zero in one layer. The effect on every token is the
cosine distance (1 − cosine) between its states at the layer's output with and without the change.

One forward pass tests many tokens in all layers. All rows of the batch hold the same input. Row 0 is unchanged, and in
each other row the values of another token are zeroed, in every layer. After each layer the states of row 0 are copied
to all rows, so that changes do not accumulate over layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from headscope.errors import HeadscopeError
from headscope.heads import Head, Site
from headscope.model.anatomy import anatomy
from headscope.model.attention_model import AttentionModel
from headscope.model.edits import Edit
from headscope.model.knockout import KnockOut
from headscope.model.tokens import Batch, Layout, Tokens

# Tokens per batch of trials; larger batches need more memory and are hardly faster.
ROW_TOKENS = 4096
STACKS = ("encoder", "decoder", "cross")
T = TypeVar("T")


@dataclass(frozen=True)
class Trial:
    """One intervention: the token `key` whose values are zeroed, in one head (its index at the site) or in all."""

    key: int
    head: int | None = None  # None: all heads


class _Zeroing(Edit):
    """Performs trial r - 1 in row r > 0 of the batch, at every site of a stack."""

    def __init__(self, stack: str, trials: Sequence[Trial]) -> None:
        self.stack, self.trials = stack, trials

    def changes_weights(self, site: Site) -> bool:
        return site.stack == self.stack

    def weights(self, site: Site, weights: Tensor) -> Tensor:
        # Setting all weights on a token to 0 has the same effect as setting its values to 0.
        weights = weights.clone()
        for row, trial in enumerate(self.trials, start=1):
            if trial.head is None:
                weights[row, :, :, trial.key] = 0
            elif trial.head < weights.shape[1]:
                weights[row, trial.head, :, trial.key] = 0
        return weights


def value_zeroing(model: AttentionModel, batch: Batch) -> dict[str, NDArray[np.float32]]:
    """{stack: [layer, 1, query, key]}: the cosine distance of the query's state if the key's values are zeroed.

    Rows are divided by their sums.
    """
    maps = {}
    for stack, distances in zero_values(model, batch).items():
        layers = 1 + max(site.layer for site in model.sites if site.stack == stack)
        values = np.zeros((layers, 1, *next(iter(distances.values())).shape[1:]))
        for site, distance in distances.items():
            values[site.layer] = normalize_rows(distance)
        maps[stack] = values.astype(np.float32)
    return maps


def zero_values(
    model: AttentionModel, batch: Batch, *, by_head: bool = False
) -> dict[str, dict[Site, NDArray[np.float64]]]:
    """{stack: {site: [1 or head, query, key]}}: cosine distances of the query's state at the layer's output.

    by_head  zero the values in one head at a time, instead of in all heads together
    """
    model.check_evaluating()
    by_stack: dict[str, dict[Site, NDArray[np.float64]]] = {}
    for stack in stacks_of(model, batch):
        queries, keys = _lengths_of_sides(batch, stack)
        sites = [site for site in model.sites if site.stack == stack and site.numbers]
        most_heads = max(len(site.numbers or ()) for site in sites)
        heads = range(most_heads) if by_head else (None,)
        trials = [Trial(key, head) for head in heads for key in range(keys)]
        distances = _run_trials(model, batch, stack, sites, trials)
        # [trial, query] to [head, key, query] to [head, query, key]; a site with fewer heads ignores the last trials.
        by_stack[stack] = {
            site: distances[site]
            .reshape(-1, keys, queries)
            .transpose(0, 2, 1)[: len(site.numbers or ())]
            for site in sites
        }
    return by_stack


def _run_trials(
    model: AttentionModel, batch: Batch, stack: str, sites: list[Site], trials: list[Trial]
) -> dict[Site, NDArray[np.float64]]:
    """{site: [trial, query]}: cosine distances at every site of the stack."""
    by_site: dict[Site, list[NDArray[np.float64]]] = {site: [] for site in sites}
    for group in _groups(trials, batch):
        # If rows and tokens are equally many, one row is added, so that _reset_after_blocks can tell the axes apart.
        rows = 1 + len(group) + (1 + len(group) in lengths_of(batch))
        with (
            torch.inference_mode(),
            model.edited(_Zeroing(stack, group)),
            _reset_after_blocks(model, sites, rows) as states,
        ):
            model(repeat_batch(batch, rows))
        for site in sites:
            by_site[site].append(distance_to_first(states[site][: 1 + len(group)]))
    return {site: np.concatenate(distances) for site, distances in by_site.items()}


def _groups(trials: Sequence[T], batch: Batch) -> Iterator[Sequence[T]]:
    """Divide trials into groups whose batch (one row per trial, and row 0) has at most ROW_TOKENS tokens."""
    size = max(1, ROW_TOKENS // max(lengths_of(batch)) - 1)
    for start in range(0, len(trials), size):
        yield trials[start : start + size]


@contextmanager
def _reset_after_blocks(
    model: AttentionModel, sites: list[Site], rows: int
) -> Iterator[dict[Site, Tensor]]:
    """While open, record the states [row, token, width] after each site's block, then copy row 0 to all rows.

    rows  the number of rows of the batch; must differ from the number of tokens
    """
    modules = dict(model.model.named_modules())
    parts = anatomy(model)
    recorded: dict[Site, Tensor] = {}

    def make_hook(name: str) -> Callable[..., Any]:
        by_turn = {parts[site].turn: site for site in sites if parts[site].block == name}
        turn = -1  # number of earlier calls of this block

        def reset_rows(module: nn.Module, args: Any, output: Any) -> Any:
            nonlocal turn
            turn += 1
            states: Tensor = output if isinstance(output, Tensor) else output[0]
            is_time_major = states.shape[0] != rows  # XLNet's states are [token, row, width]
            by_row = states.transpose(0, 1) if is_time_major else states
            if turn in by_turn:
                recorded[by_turn[turn]] = by_row
            reset = by_row[:1].expand_as(by_row)
            reset = reset.transpose(0, 1) if is_time_major else reset
            return reset if isinstance(output, Tensor) else (reset, *output[1:])

        return reset_rows

    with ExitStack() as stack:
        for name in {parts[site].block for site in sites}:
            stack.callback(modules[name].register_forward_hook(make_hook(name)).remove)
        yield recorded


def knockout_effects(model: AttentionModel, batch: Batch) -> dict[str, NDArray[np.float32]]:
    """{stack: [layer, form, query, key]}: cosine distance of the query's last state if no token attends to the key.

    Attention to the key is removed in all heads of one layer. Form 0 removes it before the softmax, so that its weight
    goes to the other keys; form 1 after the softmax, so that its weight is lost.
    """
    model.check_evaluating()
    maps = {}
    for stack in stacks_of(model, batch):
        queries, keys = _lengths_of_sides(batch, stack)
        sites = [site for site in model.sites if site.stack == stack and site.numbers]
        values = np.zeros((1 + max(site.layer for site in sites), 2, queries, keys))
        for site in sites:
            heads = site.heads(len(site.numbers or ()))
            for form, renormalise in enumerate((True, False)):
                distances = _knock_out_keys(model, batch, stack, heads, keys, renormalise)
                values[site.layer, form] = distances.T
        maps[stack] = values.astype(np.float32)
    return maps


def _knock_out_keys(
    model: AttentionModel, batch: Batch, stack: str, heads: list[Head], keys: int, renormalise: bool
) -> NDArray[np.float64]:
    """[key, query]: cosine distances of the queries' last states if no token attends to the key in these heads."""
    distances = []
    for group in _groups(range(keys), batch):
        # Row 0 is unchanged; each other row removes another key.
        removed = torch.zeros(1 + len(group), keys, dtype=torch.bool)
        removed[torch.arange(1, 1 + len(group)), torch.tensor(group)] = True
        edit = KnockOut(removed, heads=heads, renormalise=renormalise)
        with torch.inference_mode(), model.edited(edit), record_last_states(model, stack) as states:
            model(repeat_batch(batch, 1 + len(group)))
        distances.append(distance_to_first(states[0]))
    return np.concatenate(distances)


@contextmanager
def record_last_states(model: AttentionModel, stack: str) -> Iterator[list[Tensor]]:
    """While open, record the last states [row, token, width] of the queries of a stack, before any task head."""
    module = model.model.base_model
    if model.is_encoder_decoder and stack == "encoder":
        module = model.model.get_encoder()
    states: list[Tensor] = []
    handle = module.register_forward_hook(lambda module, args, output: states.append(output[0]))
    try:
        yield states
    finally:
        handle.remove()


def distance_to_first(states: Tensor) -> NDArray[np.float64]:
    """[row - 1, token]: cosine distances (1 − cosine) of the states [row, token, width] of each row to those of row 0.

    Computed as half the squared distance between unit vectors, which is precise even if they hardly differ.
    """
    units = torch.nn.functional.normalize(states.double(), dim=-1)
    distances: NDArray[np.float64] = (
        ((units[1:] - units[:1]).square().sum(dim=-1) / 2).cpu().numpy()
    )
    return distances


def normalize_rows(cells: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rows [..., query, key] divided by their sums; rows of zeros stay zeros."""
    sums = cells.sum(axis=-1, keepdims=True)
    return cells / np.where(sums > 0, sums, 1)


def repeat_batch(batch: Batch, rows: int) -> Batch:
    """A batch of `rows` copies of one input."""

    def repeat(tensor: Tensor) -> Tensor:
        return tensor.expand(rows, *tensor.shape[1:]).contiguous()

    def repeat_side(tokens: Tokens | None) -> Tokens | None:
        if tokens is None:
            return None
        ids, words, segments = (
            None if tensor is None else repeat(tensor)
            for tensor in (tokens.ids, tokens.words, tokens.segments)
        )
        return Tokens(repeat(tokens.real), ids, words, segments, tokens.marks)

    sides = batch.layout.encoder, batch.layout.decoder, batch.layout.targets
    encoder, decoder, targets = map(repeat_side, sides)
    inputs = {name: repeat(tensor) for name, tensor in batch.inputs.items()}
    return Batch(inputs, Layout(encoder, decoder, targets))


def stacks_of(model: AttentionModel, batch: Batch) -> list[str]:
    """The stacks that attend when the model is called with a batch of one input; raises if the batch has more."""
    sides = [side for side in (batch.layout.encoder, batch.layout.decoder) if side is not None]
    if len(batch) != 1 or not all(bool(side.real.all()) for side in sides):
        raise HeadscopeError(
            "this map is computed for one input at a time, without padding",
            expected="a batch of one",
        )
    stacks = dict.fromkeys(site.stack for site in model.sites if site.numbers)
    return [name for name in stacks if name in STACKS and batch.layout.sides(name) is not None]


def _lengths_of_sides(batch: Batch, stack: str) -> tuple[int, int]:
    """The numbers of queries and keys of a stack."""
    sides = batch.layout.sides(stack)
    assert sides is not None
    return sides[0].length, sides[1].length


def lengths_of(batch: Batch) -> list[int]:
    """The numbers of tokens of the encoder and the decoder, of those that the batch has."""
    layout = batch.layout
    return [side.length for side in (layout.encoder, layout.decoder) if side is not None]
