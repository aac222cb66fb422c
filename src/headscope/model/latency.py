"""What can head pruning gain on this machine, and what did it? Measured, never counted in operations.

The model is run with ever fewer heads in every layer; without (almost) any, what is left is the time of everything that
is no attention: the bound. Measurements are interleaved, so that a busy moment hits all alike: a ratio is the median of
the ratios within a turn, with the interval of a median by ranks; times are those of the fastest quarter.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy.stats import binom
from torch import Tensor

from headscope.config.checks import check_count
from headscope.config.speed import REPEATS
from headscope.errors import HeadscopeError
from headscope.heads import Head, Site
from headscope.model.attention_model import AttentionModel
from headscope.model.sample_inputs import sample_inputs
from headscope.model.surgery import prune, units

if TYPE_CHECKING:
    from numpy.typing import NDArray

WARM = 2  # runs that are not timed
TIMED = (8, 64)  # sequences and tokens that a cut model is timed with in passing: soon done
SHARES = (1.0, 0.75, 0.5, 0.25, 0.0)  # of the heads of every layer that are left


@dataclass(frozen=True)
class Speed:
    """One model as it was measured.

    megabytes  of its weights; working: the most that is taken beside them while a batch is computed
    """

    name: str
    heads: int
    seconds: float
    throughput: float
    parameters: int
    megabytes: float
    working: float
    ratio: float  # its time over that of the first that was measured with it
    low: float
    high: float


@dataclass(frozen=True)
class LayerTimes:
    """The model's time by the share of heads that every layer has left, of the whole model's time.

    share   from 1 down, as they were cut: heads that share weights go together, and one stays in the model
    time    measured; the last, with no heads at all, is the bound for head pruning alone
    """

    share: tuple[float, ...]
    time: tuple[float, ...]

    @property
    def bound(self) -> float:
        return 1 / self.time[-1]

    def at(self, share: float) -> float:
        """The time with this share of heads, between what was measured."""
        return float(np.interp(share, self.share[::-1], self.time[::-1]))


def sample_batch(model: AttentionModel, batch_size: int, length: int) -> dict[str, Tensor]:
    """A batch of `batch_size` sequences of `length` tokens, without padding."""
    check_count(batch_size, "`batch_size`")
    check_count(length, "`length`")
    if not model.family.takes_text:
        return {
            name: value[:1].repeat(batch_size, 1, 1, 1)
            for name, value in sample_inputs(model, batch=1).items()
        }
    if length > longest_input(model, length):
        raise HeadscopeError(
            f"{length} tokens are too many",
            where="`length`",
            expected=f"at most {longest_input(model, length)}",
        )
    sample = sample_inputs(model, batch=1)
    found = {}
    for name, value in sample.items():
        if value.dim() == 2:
            wide = value.repeat(batch_size, -(-length // value.shape[1]))[:, :length]
            found[name] = torch.ones_like(wide) if "mask" in name else wide
    return found


def longest_input(model: AttentionModel, wanted: int) -> int:
    """The wanted number of tokens, or the most that the model can read."""
    config = model.model.config
    most = getattr(config, "max_position_embeddings", None)
    if not model.family.takes_text or most is None or most < 1:
        return wanted
    return min(wanted, int(most) - model.family.positions_lost(config))


def measure(
    models: Sequence[AttentionModel],
    *,
    batch_size: int = 32,
    length: int = 128,
    repeats: int = REPEATS,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Speed]:
    """All models on the same batch, in turns; ratios to the first."""
    check_count(repeats, "`repeats`")
    batch = sample_batch(models[0], batch_size, length)
    runs = [timed_forward(model, batch) for model in models]
    by_turn = time_interleaved(runs, repeats, progress)  # [turn, model]
    times = fastest_quarter(by_turn)
    ratios = [median_interval(by_turn[:, place] / by_turn[:, 0]) for place in range(len(models))]
    return [
        Speed(
            name=model.name,
            heads=len(model.heads),
            seconds=float(seconds),
            throughput=batch_size / float(seconds),
            parameters=sum(p.numel() for p in model.model.parameters()),
            megabytes=sum(p.numel() * p.element_size() for p in model.model.parameters()) / 1e6,
            working=peak_bytes(run, model.device) / 1e6,
            ratio=ratio,
            low=low,
            high=high,
        )
        for model, run, seconds, (ratio, low, high) in zip(models, runs, times, ratios, strict=True)
    ]


def measure_layers(
    model: AttentionModel,
    *,
    batch_size: int = 32,
    length: int = 128,
    repeats: int = REPEATS,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> LayerTimes:
    """How the model's time falls as every layer loses the same share of its heads."""
    models = {len(one.heads): one for one in (prune_share(model, share) for share in SHARES)}
    found = measure(
        list(models.values()),
        batch_size=batch_size,
        length=length,
        repeats=repeats,
        progress=progress,
    )
    return LayerTimes(
        tuple(count / len(model.heads) for count in models), tuple(one.ratio for one in found)
    )


def prune_share(model: AttentionModel, share: float) -> AttentionModel:
    """Every site with the first `share` of its heads; of the whole model the last head stays, as one must."""
    if share == 1.0:
        return model
    gone: list[Head] = []
    seen: dict[Site, int] = {}
    widths = {site: len(site.numbers or ()) for site in model.sites}
    for unit in units(model):
        site = unit[0].site
        here = [head for head in unit if head.site == site]
        seen[site] = seen.get(site, 0) + len(here)
        if seen[site] > round(share * widths[site]):
            gone += unit
    if len(gone) == len(model.heads):
        last = units(model)[-1]
        gone = [head for head in gone if head not in last]
    return prune(model, gone) if gone else model


def timed_forward(model: AttentionModel, batch: dict[str, Tensor]) -> Callable[[], Any]:
    """One forward pass, to be timed."""
    place = {name: value.to(model.device) for name, value in batch.items()}

    return timed_call(lambda: model(place), model.device)


def timed_call(work: Callable[[], Any], device: torch.device) -> Callable[[], Any]:
    """The work without gradients, over when the device is done with it."""

    def run() -> None:
        with torch.inference_mode():
            work()
        if device.type == "cuda":
            torch.cuda.synchronize()

    return run


def peak_bytes(run: Callable[[], Any], device: torch.device) -> int:
    """The most bytes that one run holds at a time, beyond what was there before it."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        run()
        return torch.cuda.max_memory_allocated(device) - before
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # or the profiler reports its own start
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        run()
    events = [
        event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"
    ]
    held = np.cumsum(
        [event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]
    )
    return int(held.max(initial=0))


def fastest_quarter(by_turn: NDArray[np.float64]) -> NDArray[np.float64]:
    """[run]: the mean of the fastest quarter of the turns, which others on the machine held up least."""
    found: NDArray[np.float64] = np.sort(by_turn, axis=0)[: max(1, len(by_turn) // 4)].mean(axis=0)
    return found


def median_interval(values: NDArray[np.float64]) -> tuple[float, float, float]:
    """The median and its interval: the ranks that it lies between 95 times of 100, whatever the distribution."""
    ranked, count = np.sort(values), len(values)
    rank = max(int(binom.ppf(0.025, count, 0.5)) - 1, 0)
    return float(np.median(ranked)), float(ranked[rank]), float(ranked[count - 1 - rank])


def time_interleaved(
    runs: Sequence[Callable[[], Any]],
    repeats: int,
    progress: Callable[[int, int], None],
    clock: Callable[[], float] | None = None,
) -> NDArray[np.float64]:
    """[turn, run]: seconds, by the clock on the wall or another one (time.process_time: that of the processor)."""
    clock = clock or time.perf_counter
    times = np.zeros((repeats + WARM, len(runs)))
    for turn in range(repeats + WARM):
        order = range(len(runs)) if turn % 2 else reversed(range(len(runs)))
        for place in order:
            begun = clock()
            runs[place]()
            times[turn, place] = clock() - begun
        progress(turn + 1, repeats + WARM)
    found: NDArray[np.float64] = times[WARM:]
    return found
