"""What tokens lose when one token's values, or all attention to it, is taken away in one layer: token maps by trying.

Value zeroing (Mohebbi et al. 2023): in one layer a token's values are zero, so that nobody gathers anything from it;
how far that turns each token's state at the layer's output, as 1 − cosine. All tokens of all layers are tried in one
forward pass: row 0 of a batch is the input as it is, every other row has another token's values zeroed, and at the end
of each layer all rows become row 0 again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from headscope.errors import HeadscopeError
from headscope.heads import Site
from headscope.model.anatomy import anatomy
from headscope.model.attention_model import AttentionModel
from headscope.model.edits import Edit
from headscope.model.knockout import KnockOut
from headscope.model.tokens import Batch, Layout, Tokens

ROW_TOKENS = 4096  # tokens of a batch of tries: memory stays small, and more are hardly faster
STACKS = ("encoder", "decoder", "cross")


@dataclass(frozen=True)
class Trial:
    """A token whose values are zeroed, in all heads of a site or in one (its place among them)."""

    key: int
    head: int | None = None


class _Zeroing(Edit):
    """Row r > 0 of the batch does without the values of its try's token, at every site of a stack."""

    def __init__(self, stack: str, tries: list[Trial]) -> None:
        self.stack, self.tries = stack, tries

    def changes_weights(self, site: Site) -> bool:
        return site.stack == self.stack

    def weights(self, site: Site, weights: Tensor) -> Tensor:
        weights = weights.clone()  # no weight on a value is the same as no value
        for row, one in enumerate(self.tries, start=1):
            if one.head is None:
                weights[row, :, :, one.key] = 0
            elif one.head < weights.shape[1]:
                weights[row, one.head, :, one.key] = 0
        return weights


def value_zeroing(model: AttentionModel, batch: Batch) -> dict[str, NDArray[np.float32]]:
    """For each stack [layer, 1, query, key]: how far the query's state turns, rows divided by their sums."""
    found = {}
    for stack, moved in zero_values(model, batch).items():
        layers = 1 + max(site.layer for site in model.sites if site.stack == stack)
        values = np.zeros((layers, 1, *next(iter(moved.values())).shape[1:]))
        for site, turned in moved.items():
            values[site.layer] = normalize_rows(turned)
        found[stack] = values.astype(np.float32)
    return found


def zero_values(
    model: AttentionModel, batch: Batch, *, by_head: bool = False
) -> dict[str, dict[Site, NDArray[np.float64]]]:
    """For each stack and site [1 or head, query, key]: how far each query's state at the layer's output turns."""
    model.check_evaluating()
    found: dict[str, dict[Site, NDArray[np.float64]]] = {}
    for stack in stacks_of(model, batch):
        sides = batch.layout.sides(stack)
        assert sides is not None
        queries, keys = (side.length for side in sides)
        sites = [site for site in model.sites if site.stack == stack and site.numbers]
        heads = max(len(site.numbers or ()) for site in sites)
        tries = [
            Trial(key, head)
            for head in (range(heads) if by_head else (None,))
            for key in range(keys)
        ]
        turned = _tried(model, batch, stack, sites, tries)
        found[stack] = {
            site: turned[site]
            .reshape(-1, keys, queries)
            .transpose(0, 2, 1)[: len(site.numbers or ())]
            for site in sites
        }
    return found


def _tried(
    model: AttentionModel, batch: Batch, stack: str, sites: list[Site], tries: list[Trial]
) -> dict[Site, NDArray[np.float64]]:
    """[try, query] at every site of the stack, some tries at a time."""
    room = max(1, ROW_TOKENS // max(lengths_of(batch)) - 1)
    parts: dict[Site, list[NDArray[np.float64]]] = {site: [] for site in sites}
    for start in range(0, len(tries), room):
        now = tries[start : start + room]
        # One row too many where rows and tokens are equally many, so that the two axes can be told apart.
        rows = 1 + len(now) + (1 + len(now) in lengths_of(batch))
        with (
            torch.inference_mode(),
            model.edited(_Zeroing(stack, now)),
            _put_back(model, sites, rows) as states,
        ):
            model(repeat_batch(batch, rows))
        for site in sites:
            parts[site].append(distance_to_first(states[site][: 1 + len(now)]))
    return {site: np.concatenate(one) for site, one in parts.items()}


@contextmanager
def _put_back(model: AttentionModel, sites: list[Site], rows: int) -> Iterator[dict[Site, Tensor]]:
    """The states [row, token, width] that each site's block gives, after which all rows become row 0 again."""
    modules = dict(model.model.named_modules())
    parts = anatomy(model)
    found: dict[Site, Tensor] = {}

    def hook(name: str) -> Callable[..., Any]:
        here = {parts[site].turn: site for site in sites if parts[site].block == name}
        turn = -1

        def put_back(module: nn.Module, args: Any, output: Any) -> Any:
            nonlocal turn
            turn += 1
            states: Tensor = output if isinstance(output, Tensor) else output[0]
            by_row = (
                states if states.shape[0] == rows else states.transpose(0, 1)
            )  # XLNet's: token, row, width
            if turn in here:
                found[here[turn]] = by_row
            same = by_row[:1].expand_as(by_row)
            same = same if states.shape[0] == rows else same.transpose(0, 1)
            return same if isinstance(output, Tensor) else (same, *output[1:])

        return put_back

    with ExitStack() as stack:
        for name in {parts[site].block for site in sites}:
            stack.callback(modules[name].register_forward_hook(hook(name)).remove)
        yield found


def knockout_effects(model: AttentionModel, batch: Batch) -> dict[str, NDArray[np.float32]]:
    """For each stack [layer, form, query, key]: how far the query's last state turns when nobody sees the key there.

    Forms: what goes to the key is given to the others (before the softmax), or is gone (after it).
    """
    model.check_evaluating()
    found = {}
    for stack in stacks_of(model, batch):
        sides = batch.layout.sides(stack)
        assert sides is not None
        queries, keys = (side.length for side in sides)
        sites = [site for site in model.sites if site.stack == stack and site.numbers]
        values = np.zeros((1 + max(site.layer for site in sites), 2, queries, keys))
        for site in sites:
            heads = site.heads(len(site.numbers or ()))
            for form, renormalise in enumerate((True, False)):
                values[site.layer, form] = _last_states_turned(
                    model, batch, stack, heads, keys, renormalise
                ).T
        found[stack] = values.astype(np.float32)
    return found


def _last_states_turned(
    model: AttentionModel, batch: Batch, stack: str, heads: list[Any], keys: int, renormalise: bool
) -> NDArray[np.float64]:
    """[key, query], some keys at a time."""
    room = max(1, ROW_TOKENS // max(lengths_of(batch)) - 1)
    parts = []
    for start in range(0, keys, room):
        now = range(start, min(start + room, keys))
        unseen = torch.zeros(1 + len(now), keys, dtype=torch.bool)
        unseen[torch.arange(1, 1 + len(now)), torch.tensor(now)] = True
        edit = KnockOut(unseen, heads=heads, renormalise=renormalise)
        with torch.inference_mode(), model.edited(edit), record_last_states(model, stack) as states:
            model(repeat_batch(batch, 1 + len(now)))
        parts.append(distance_to_first(states[0]))
    return np.concatenate(parts)


@contextmanager
def record_last_states(model: AttentionModel, stack: str) -> Iterator[list[Tensor]]:
    """What the model gives for the tokens of a stack's queries [row, token, width] before any head is put on top."""
    module = model.model.base_model
    if model.is_encoder_decoder and stack == "encoder":
        module = model.model.get_encoder()
    found: list[Tensor] = []
    handle = module.register_forward_hook(lambda module, args, output: found.append(output[0]))
    try:
        yield found
    finally:
        handle.remove()


def distance_to_first(states: Tensor) -> NDArray[np.float64]:
    """[row - 1, token]: 1 − cosine between each row's states [row, token, width] and those of row 0.

    As half the squared distance of the unit vectors, which does not drown in rounding where they hardly differ.
    """
    units = torch.nn.functional.normalize(states.double(), dim=-1)
    turned: NDArray[np.float64] = ((units[1:] - units[:1]).square().sum(dim=-1) / 2).cpu().numpy()
    return turned


def normalize_rows(turned: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rows [..., query, key] divided by their sums; a row of nothing stays so."""
    sums = turned.sum(axis=-1, keepdims=True)
    return turned / np.where(sums > 0, sums, 1)


def repeat_batch(batch: Batch, rows: int) -> Batch:
    """One input so many times."""

    def again(tensor: Tensor) -> Tensor:
        return tensor.expand(rows, *tensor.shape[1:]).contiguous()

    def side(tokens: Tokens | None) -> Tokens | None:
        if tokens is None:
            return None
        ids, words, segments = (
            None if one is None else again(one)
            for one in (tokens.ids, tokens.words, tokens.segments)
        )
        return Tokens(again(tokens.real), ids, words, segments, tokens.marks)

    layout = Layout(
        side(batch.layout.encoder), side(batch.layout.decoder), side(batch.layout.targets)
    )
    return Batch({name: again(tensor) for name, tensor in batch.inputs.items()}, layout)


def stacks_of(model: AttentionModel, batch: Batch) -> list[str]:
    """The stacks that attend when the model is called with this one input."""
    if len(batch) != 1 or not all(
        bool(side.real.all())
        for side in (batch.layout.encoder, batch.layout.decoder)
        if side is not None
    ):
        raise HeadscopeError(
            "tries are made with one input at a time, without padding", expected="a batch of one"
        )
    there = dict.fromkeys(site.stack for site in model.sites if site.numbers)
    return [stack for stack in there if stack in STACKS and batch.layout.sides(stack) is not None]


def lengths_of(batch: Batch) -> list[int]:
    return [
        side.length for side in (batch.layout.encoder, batch.layout.decoder) if side is not None
    ]
