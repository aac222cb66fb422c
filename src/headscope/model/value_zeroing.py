"""Token maps by trial: how states change if one token's values, or all attention to it, are removed in one layer.

Value zeroing (Mohebbi et al. 2023): in one layer a token's values are set to zero, so that nobody gathers anything from
it. The effect is how far each token's state at the layer's output turns, as 1 − cosine. The tokens of all layers are
tried in one forward pass: row 0 of a batch is the unchanged input, every other row has another token's values zeroed,
and at the end of each layer all rows become row 0 again.
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

ROW_TOKENS = 4096  # tokens of a batch of trials: memory stays small, and more are hardly faster
STACKS = ("encoder", "decoder", "cross")
T = TypeVar("T")


@dataclass(frozen=True)
class Trial:
    """A token whose values are zeroed, in all heads of a site or in one (its index at the site)."""

    key: int
    head: int | None = None


class _Zeroing(Edit):
    """Row r > 0 of the batch lacks the values of the token of trial r - 1, at every site of a stack."""

    def __init__(self, stack: str, trials: Sequence[Trial]) -> None:
        self.stack, self.trials = stack, trials

    def changes_weights(self, site: Site) -> bool:
        return site.stack == self.stack

    def weights(self, site: Site, weights: Tensor) -> Tensor:
        weights = weights.clone()  # no weight on a value is the same as no value
        for row, trial in enumerate(self.trials, start=1):
            if trial.head is None:
                weights[row, :, :, trial.key] = 0
            elif trial.head < weights.shape[1]:
                weights[row, trial.head, :, trial.key] = 0
        return weights


def value_zeroing(model: AttentionModel, batch: Batch) -> dict[str, NDArray[np.float32]]:
    """For each stack [layer, 1, query, key]: how far the query's state turns, rows divided by their sums."""
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
    """For each stack and site [1 or head, query, key]: how far each query's state at the layer's output turns."""
    model.check_evaluating()
    by_stack: dict[str, dict[Site, NDArray[np.float64]]] = {}
    for stack in stacks_of(model, batch):
        queries, keys = _lengths_of_sides(batch, stack)
        sites = [site for site in model.sites if site.stack == stack and site.numbers]
        most_heads = max(len(site.numbers or ()) for site in sites)
        heads = range(most_heads) if by_head else (None,)
        trials = [Trial(key, head) for head in heads for key in range(keys)]
        distances = _run_trials(model, batch, stack, sites, trials)
        # [trial, query] to [head, query, key]; a site with fewer heads has no use for the last trials.
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
    """[trial, query] at every site of the stack, some trials at a time."""
    parts: dict[Site, list[NDArray[np.float64]]] = {site: [] for site in sites}
    for some in _portions(trials, batch):
        # One row too many if rows and tokens are equally many, so that the two axes can be told apart.
        rows = 1 + len(some) + (1 + len(some) in lengths_of(batch))
        with (
            torch.inference_mode(),
            model.edited(_Zeroing(stack, some)),
            _reset_after_blocks(model, sites, rows) as states,
        ):
            model(repeat_batch(batch, rows))
        for site in sites:
            parts[site].append(distance_to_first(states[site][: 1 + len(some)]))
    return {site: np.concatenate(distances) for site, distances in parts.items()}


def _portions(trials: Sequence[T], batch: Batch) -> Iterator[Sequence[T]]:
    """The trials in portions whose rows, with one for the unchanged input, have at most ROW_TOKENS tokens."""
    size = max(1, ROW_TOKENS // max(lengths_of(batch)) - 1)
    for start in range(0, len(trials), size):
        yield trials[start : start + size]


@contextmanager
def _reset_after_blocks(
    model: AttentionModel, sites: list[Site], rows: int
) -> Iterator[dict[Site, Tensor]]:
    """Record the states [row, token, width] after each site's block, then make all rows row 0 again."""
    modules = dict(model.model.named_modules())
    parts = anatomy(model)
    recorded: dict[Site, Tensor] = {}

    def make_hook(name: str) -> Callable[..., Any]:
        by_turn = {parts[site].turn: site for site in sites if parts[site].block == name}
        turn = -1

        def reset_rows(module: nn.Module, args: Any, output: Any) -> Any:
            nonlocal turn
            turn += 1
            states: Tensor = output if isinstance(output, Tensor) else output[0]
            is_time_major = states.shape[0] != rows  # XLNet's states are [token, row, width]
            by_row = states.transpose(0, 1) if is_time_major else states
            if turn in by_turn:
                recorded[by_turn[turn]] = by_row
            same = by_row[:1].expand_as(by_row)
            same = same.transpose(0, 1) if is_time_major else same
            return same if isinstance(output, Tensor) else (same, *output[1:])

        return reset_rows

    with ExitStack() as stack:
        for name in {parts[site].block for site in sites}:
            stack.callback(modules[name].register_forward_hook(make_hook(name)).remove)
        yield recorded


def knockout_effects(model: AttentionModel, batch: Batch) -> dict[str, NDArray[np.float32]]:
    """For each stack [layer, form, query, key]: how far the query's last state turns if nobody attends to the key.

    Forms: the weight on the key goes to the other keys (removed before the softmax), or is lost (after it).
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
    """[key, query]: how far last states turn without each key, some keys at a time."""
    parts = []
    for some in _portions(range(keys), batch):
        hidden = torch.zeros(1 + len(some), keys, dtype=torch.bool)
        hidden[torch.arange(1, 1 + len(some)), torch.tensor(some)] = True
        edit = KnockOut(hidden, heads=heads, renormalise=renormalise)
        with torch.inference_mode(), model.edited(edit), record_last_states(model, stack) as states:
            model(repeat_batch(batch, 1 + len(some)))
        parts.append(distance_to_first(states[0]))
    return np.concatenate(parts)


@contextmanager
def record_last_states(model: AttentionModel, stack: str) -> Iterator[list[Tensor]]:
    """Record the last states [row, token, width] of the tokens of a stack's queries, below any task head."""
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
    """[row - 1, token]: 1 − cosine between each row's states [row, token, width] and those of row 0.

    Computed as half the squared distance of the unit vectors, which does not drown in rounding if they hardly differ.
    """
    units = torch.nn.functional.normalize(states.double(), dim=-1)
    distances: NDArray[np.float64] = (
        ((units[1:] - units[:1]).square().sum(dim=-1) / 2).cpu().numpy()
    )
    return distances


def normalize_rows(cells: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rows [..., query, key] divided by their sums; rows of zeros stay so."""
    sums = cells.sum(axis=-1, keepdims=True)
    return cells / np.where(sums > 0, sums, 1)


def repeat_batch(batch: Batch, rows: int) -> Batch:
    """A batch with one input repeated in all rows."""

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
    """The stacks that attend when the model is called with this one input."""
    sides = [side for side in (batch.layout.encoder, batch.layout.decoder) if side is not None]
    if len(batch) != 1 or not all(bool(side.real.all()) for side in sides):
        raise HeadscopeError(
            "tries are made with one input at a time, without padding", expected="a batch of one"
        )
    stacks = dict.fromkeys(site.stack for site in model.sites if site.numbers)
    return [name for name in stacks if name in STACKS and batch.layout.sides(name) is not None]


def _lengths_of_sides(batch: Batch, stack: str) -> tuple[int, int]:
    """The numbers of queries and keys of a stack."""
    sides = batch.layout.sides(stack)
    assert sides is not None
    return sides[0].length, sides[1].length


def lengths_of(batch: Batch) -> list[int]:
    """The numbers of tokens of the encoder and the decoder."""
    layout = batch.layout
    return [side.length for side in (layout.encoder, layout.decoder) if side is not None]
