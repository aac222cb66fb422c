"""Does a sparse mask pay? Attention of a model's shape with and without it, timed side by side at several lengths.

Nothing follows from a mask's sparsity: a kernel that is given a mask computes all and forgets most of it. Ways that
leave work out are timed here as they run, in turns with dense attention, each checked against the kernel with the mask.
What is made of a mask once for all layers (strips, blocks, compiled code) is made before the clock starts.
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
SPARSE = (BY_BLOCKS, FLEX)  # the ways that leave work out

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class MethodTime:
    """One way to attend. ratio: its time over that of dense attention, with its interval."""

    way: str
    milliseconds: float
    ratio: float
    low: float
    high: float


@dataclass(frozen=True)
class SpeedAtLength:
    """All ways at one length.

    sparsity   share of positions that may not be attended to
    blocks     share of squares of 128 positions in which any may
    attention  dense attention's share of the model's time, None where a model has several stacks; for lengths beyond
               what was run, what is no attention is taken to grow with the length
    """

    length: int
    sparsity: float
    blocks: float
    attention: float | None
    ways: tuple[MethodTime, ...]


@dataclass(frozen=True)
class MaskSpeed:
    """What was measured. without_flex: why compiled block-sparse attention is left out, empty where it is not."""

    mask: str
    site: str
    batch_size: int
    heads: int
    width: int
    run_length: int | None  # of the whole model
    without_flex: str
    lengths: tuple[SpeedAtLength, ...]

    @property
    def ways(self) -> tuple[str, ...]:
        """All that were measured at any length."""
        return tuple(dict.fromkeys(one.way for row in self.lengths for one in row.ways))

    def pays_from(self, way: str) -> int | None:
        """The length from which on a way is faster than dense attention, its whole interval; None where at none."""
        found = None
        for row in reversed(self.lengths):
            if not any(one.way == way and one.high < 1 for one in row.ways):
                break
            found = row.length
        return found


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
    one = read_mask(mask) if isinstance(mask, str) else mask
    batch = sample_batch(model, batch_size, longest_input(model, min(lengths)))
    shape = _shape_of(model, batch)
    whole = (one.at(length, shape.site) for length in sorted(lengths))
    masks = [resolve_mask(allowed, is_causal=shape.is_causal) for allowed in whole]
    besides = _besides(model, shape, batch, repeats)
    rows: list[SpeedAtLength] = []
    without = ""
    for place, allowed in enumerate(masks):
        states = shape.states(model, batch_size, allowed.shape[-1])
        ways, without = _ways(allowed.to(model.device), states, shape, without)
        by_turn = time_interleaved(
            [_run(attend, states) for attend in ways.values()],
            repeats,
            lambda done, total, before=place: progress(before * total + done, len(masks) * total),  # type: ignore[misc]
        )
        rows.append(_row(allowed, list(ways), by_turn, shape, besides))
    told = (one.name, str(shape.site), batch_size, shape.heads, shape.width)
    return MaskSpeed(*told, None if besides is None else shape.length, without, tuple(rows))


@dataclass(frozen=True)
class _Shape:
    """Of a model's first self-attention as it ran. sites: how many the model has of its kind, 0 where of several."""

    site: Site
    heads: int
    width: int
    length: int
    sites: int

    @property
    def is_causal(self) -> bool:
        return self.site.stack == "decoder"

    def states(self, model: AttentionModel, batch_size: int, length: int) -> tuple[Tensor, ...]:
        """Query, key and value by chance: what attention costs does not depend on them."""
        chance = torch.Generator().manual_seed(length)
        size = (3, batch_size, self.heads, length, self.width)
        return torch.randn(size, generator=chance).to(model.device, model.model.dtype).unbind(dim=0)


def _shape_of(model: AttentionModel, batch: dict[str, Tensor]) -> _Shape:
    class Recorder(Edit):
        """Keeps the shape of every site's output."""

        def changes_output(self, site: Site) -> bool:
            return True

        def output(self, site: Site, output: Tensor) -> Tensor:
            seen[site] = tuple(output.shape)
            return output

    seen: dict[Site, tuple[int, ...]] = {}
    with model.edited(Recorder()):
        timed_forward(model, batch)()
    site = next(site for site in seen if site.stack in ("encoder", "decoder"))
    _, length, heads, width = seen[site]
    is_one_stack = len({site.stack for site in seen}) == 1
    return _Shape(site, heads, width, length, len(seen) if is_one_stack else 0)


def _besides(
    model: AttentionModel, shape: _Shape, batch: dict[str, Tensor], repeats: int
) -> float | None:
    """Seconds a token that the whole model takes beside its attention; None where it has attention of several kinds."""
    if not shape.sites:
        return None
    states = shape.states(model, len(next(iter(batch.values()))), shape.length)
    runs = [timed_forward(model, batch), _run(_dense(shape), states)]
    whole, attention = fastest_quarter(time_interleaved(runs, repeats, lambda done, total: None))
    return max(float(whole) - shape.sites * float(attention), 0.0) / shape.length


def _dense(shape: _Shape) -> Attend:
    return lambda query, key, value: sdpa(query, key, value, is_causal=shape.is_causal)


def _ways(
    allowed: Tensor, states: tuple[Tensor, ...], shape: _Shape, without: str
) -> tuple[dict[str, Attend], str]:
    """Every way to attend under a mask, and why there is none by the compiler; what failed once is not tried again."""
    strips, whole = strips_of(allowed), allowed[None]
    ways: dict[str, Attend] = {
        DENSE: _dense(shape),
        MASKED: lambda query, key, value: sdpa(query, key, value, attn_mask=whole),
        BY_BLOCKS: lambda query, key, value: attend_by_blocks(query, key, value, strips),
    }
    with torch.inference_mode():
        right = ways[MASKED](*states)
        _check_same(ways[BY_BLOCKS](*states), right)
        if not without:
            try:
                flex = compile_flex(allowed)
                _check_same(flex(*states), right)
                ways[FLEX] = flex
            except Exception as cause:  # no compiler, one that fails, a device it cannot: torch raises what it likes
                without = reason(cause)
    return ways, without


def _check_same(found: Tensor, right: Tensor) -> None:
    largest = float((found - right).abs().max())
    if not largest <= torch.finfo(right.dtype).eps ** 0.5:
        what = f"block-sparse attention differs from masked attention by {largest:.1e}"
        raise HeadscopeError(what)


def _row(
    allowed: Tensor,
    names: list[str],
    by_turn: NDArray[np.float64],
    shape: _Shape,
    besides: float | None,
) -> SpeedAtLength:
    seconds, length = fastest_quarter(by_turn), allowed.shape[-1]
    ratios = [median_interval(by_turn[:, place] / by_turn[:, 0]) for place in range(len(names))]
    dense = shape.sites * float(seconds[0])
    return SpeedAtLength(
        length=length,
        sparsity=sparsity(allowed),
        blocks=share_of_blocks(allowed),
        attention=None if besides is None else dense / (dense + besides * length),
        ways=tuple(
            MethodTime(name, 1e3 * float(spent), *ratio)
            for name, spent, ratio in zip(names, seconds, ratios, strict=True)
        ),
    )


def _run(attend: Attend, states: tuple[Tensor, ...]) -> Callable[[], Any]:
    return timed_call(lambda: attend(*states), states[0].device)
