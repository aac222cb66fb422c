"""Speed of attention under a mask: times dense and sparse attention at several lengths.

Attention is computed on random states of the shape that the model's first self-attention has.

The sparsity of a mask does not determine the speed: the usual kernel computes all scores and then discards those that
are masked. Methods that skip masked blocks are timed in alternation with dense attention, and their output is compared
with that of the usual kernel. Preparation that is done once for all layers (grouping the queries, finding the blocks,
compiling) is not timed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention as sdpa

from headscope.config.masks import check_sizes
from headscope.config.speed import LENGTHS, REPEATS
from headscope.errors import HeadscopeError, reason
from headscope.heads import Site
from headscope.masks.block_sparse import (
    Attend,
    attend_by_blocks,
    compile_flex,
    share_of_blocks,
    strips_of,
)
from headscope.masks.mask_spec import read_mask, resolve_mask, sparsity
from headscope.masks.patterns import Mask
from headscope.model.attention_model import AttentionModel
from headscope.model.edits import Edit
from headscope.model.latency import (
    fastest_quarter,
    longest_input,
    median_interval,
    sample_batch,
    time_interleaved,
    timed_call,
    timed_forward,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

DENSE, MASKED, BY_BLOCKS, FLEX = "dense", "masked", "by blocks", "flex"
SPARSE = (BY_BLOCKS, FLEX)  # the methods that skip work

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class MethodTime:
    """Time of one method.

    way    name of the method: DENSE, MASKED, BY_BLOCKS or FLEX
    ratio  time of the method divided by that of dense attention, with an interval from `low` to `high`
    """

    way: str
    milliseconds: float
    ratio: float
    low: float
    high: float


@dataclass(frozen=True)
class SpeedAtLength:
    """All methods at one length.

    sparsity   share of pairs of positions that the mask forbids
    blocks     share of blocks of 128 x 128 positions in which any pair is allowed
    attention  share of the model's time that dense attention takes; None for a model with several stacks. The entire
               model is timed at one length only. For other lengths, the time of everything except attention is taken
               as proportional to the length
    ways       the time of each method
    """

    length: int
    sparsity: float
    blocks: float
    attention: float | None
    ways: tuple[MethodTime, ...]


@dataclass(frozen=True)
class MaskSpeed:
    """Speed at all lengths.

    width         width of a head
    run_length    length at which the entire model was timed; None for a model with several stacks
    without_flex  why compiled block-sparse attention was not measured; empty if it was
    """

    mask: str
    site: str
    batch_size: int
    heads: int
    width: int
    run_length: int | None
    without_flex: str
    lengths: tuple[SpeedAtLength, ...]

    @property
    def ways(self) -> tuple[str, ...]:
        """Names of the methods that were measured at one length or more."""
        return tuple(dict.fromkeys(timed.way for row in self.lengths for timed in row.ways))

    def pays_from(self, way: str) -> int | None:
        """The length from which on a method is faster than dense attention; None if there is none.

        It is faster if the entire interval of its ratio is below 1, at this length and at all longer ones.
        """
        length = None
        for row in reversed(self.lengths):
            if not any(timed.way == way and timed.high < 1 for timed in row.ways):
                break
            length = row.length
        return length


def measure_mask_speed(
    model: AttentionModel,
    mask: str | Mask,
    *,
    lengths: Sequence[int] = LENGTHS,
    batch_size: int = 1,
    repeats: int = REPEATS,
    progress: Progress = lambda done, total: None,
) -> MaskSpeed:
    """Dense, masked and block-sparse attention at the shape of a model's first self-attention, under its mask."""
    check_sizes(lengths, batch_size, repeats)
    if isinstance(mask, str):
        mask = read_mask(mask)
    # The entire model is timed at the shortest of the lengths, or at the model's limit if that is shorter.
    batch = sample_batch(model, batch_size, longest_input(model, min(lengths)))
    shape = _attention_shape(model, batch)
    masks = [
        resolve_mask(mask.at(length, shape.site), is_causal=shape.is_causal)
        for length in sorted(lengths)
    ]
    other_time = _time_besides_attention(model, shape, batch, repeats)
    rows: list[SpeedAtLength] = []
    without_flex = ""
    for number, allowed in enumerate(masks):
        states = shape.random_states(model, batch_size, allowed.shape[-1])
        methods, without_flex = _methods(allowed.to(model.device), states, shape, without_flex)
        times = time_interleaved(
            [_runner(attend, states) for attend in methods.values()],
            repeats,
            lambda done, total, before=number: progress(before * total + done, len(masks) * total),  # type: ignore[misc]
        )
        rows.append(_row(allowed, list(methods), times, shape, other_time))
    attention = (mask.name, str(shape.site), batch_size, shape.heads, shape.width)
    run_length = None if other_time is None else shape.length
    return MaskSpeed(*attention, run_length, without_flex, tuple(rows))


@dataclass(frozen=True)
class _AttentionShape:
    """Shape of a model's first self-attention in a forward pass. sites: number of sites; 0 for several stacks."""

    site: Site
    heads: int
    width: int
    length: int
    sites: int

    @property
    def is_causal(self) -> bool:
        return self.site.stack == "decoder"

    def random_states(
        self, model: AttentionModel, batch_size: int, length: int
    ) -> tuple[Tensor, ...]:
        """Random query, key and value states; the time of attention does not depend on their values."""
        rng = torch.Generator().manual_seed(length)
        size = (3, batch_size, self.heads, length, self.width)
        return torch.randn(size, generator=rng).to(model.device, model.model.dtype).unbind(dim=0)


class _Shapes(Edit):
    """Records the shape of every site's output."""

    def __init__(self) -> None:
        self.shapes: dict[Site, tuple[int, ...]] = {}

    def changes_output(self, site: Site) -> bool:
        return True  # so that `output` is called; it changes nothing

    def output(self, site: Site, output: Tensor) -> Tensor:
        self.shapes[site] = tuple(output.shape)
        return output


def _attention_shape(model: AttentionModel, batch: dict[str, Tensor]) -> _AttentionShape:
    recorder = _Shapes()
    with model.edited(recorder):
        timed_forward(model, batch)()
    shapes = recorder.shapes
    site = next(site for site in shapes if site.stack in ("encoder", "decoder"))
    _, length, heads, width = shapes[site]
    is_one_stack = len({site.stack for site in shapes}) == 1
    return _AttentionShape(site, heads, width, length, len(shapes) if is_one_stack else 0)


def _time_besides_attention(
    model: AttentionModel, shape: _AttentionShape, batch: dict[str, Tensor], repeats: int
) -> float | None:
    """Seconds per token of the model without its attention; None for a model with several stacks."""
    if not shape.sites:
        return None
    states = shape.random_states(model, len(next(iter(batch.values()))), shape.length)
    runs = [timed_forward(model, batch), _runner(_dense(shape), states)]
    model_time, attention = fastest_quarter(
        time_interleaved(runs, repeats, lambda done, total: None)
    )
    return max(float(model_time) - shape.sites * float(attention), 0.0) / shape.length


def _dense(shape: _AttentionShape) -> Attend:
    return lambda query, key, value: sdpa(query, key, value, is_causal=shape.is_causal)


def _methods(
    allowed: Tensor, states: tuple[Tensor, ...], shape: _AttentionShape, without_flex: str
) -> tuple[dict[str, Attend], str]:
    """The methods by name, and why the compiled one is missing. After a failure, it is not tried again."""
    strips, mask = strips_of(allowed), allowed[None]
    methods: dict[str, Attend] = {
        DENSE: _dense(shape),
        MASKED: lambda query, key, value: sdpa(query, key, value, attn_mask=mask),
        BY_BLOCKS: lambda query, key, value: attend_by_blocks(query, key, value, strips),
    }
    with torch.inference_mode():
        expected = methods[MASKED](*states)
        _check_same(methods[BY_BLOCKS](*states), expected)
        if not without_flex:
            try:
                flex = compile_flex(allowed)
                _check_same(flex(*states), expected)
                methods[FLEX] = flex
            # There is no compiler, or it fails: torch raises errors of many types.
            except Exception as cause:
                without_flex = reason(cause)
    return methods, without_flex


def _check_same(output: Tensor, expected: Tensor) -> None:
    largest = float((output - expected).abs().max())
    if not largest <= torch.finfo(expected.dtype).eps ** 0.5:
        what = f"block-sparse attention differs from masked attention by {largest:.1e}"
        raise HeadscopeError(what)


def _row(
    allowed: Tensor,
    names: list[str],
    times: NDArray[np.float64],
    shape: _AttentionShape,
    other_time: float | None,
) -> SpeedAtLength:
    """The speed at one length. times: [turn, method] in seconds."""
    seconds, length = fastest_quarter(times), allowed.shape[-1]
    ratios = [median_interval(times[:, number] / times[:, 0]) for number in range(len(names))]
    dense = shape.sites * float(seconds[0])
    return SpeedAtLength(
        length=length,
        sparsity=sparsity(allowed),
        blocks=share_of_blocks(allowed),
        attention=None if other_time is None else dense / (dense + other_time * length),
        ways=tuple(
            MethodTime(name, 1e3 * float(spent), *ratio)
            for name, spent, ratio in zip(names, seconds, ratios, strict=True)
        ),
    )


def _runner(attend: Attend, states: tuple[Tensor, ...]) -> Callable[[], Any]:
    return timed_call(lambda: attend(*states), states[0].device)
