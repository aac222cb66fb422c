"""Latency of models on this machine: how much faster pruned models are, and how much faster they could be.

All numbers are measured; none are derived from counts of operations. `measure_layers` times the model with fewer and
fewer heads in every layer. The time with (almost) no heads is that of everything except attention, which is a bound for
head pruning.

Models are timed in turns, each model once per turn, so that other load on the machine affects all of them alike. The
ratio of two models is the median of their ratios within turns, with an interval from ranks. Times are means of the
fastest quarter of the turns.
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

WARM = 2  # number of first turns that are not timed
TIMED = (8, 64)  # sequences and tokens of the small batch that `prune` times a model with
SHARES = (1.0, 0.75, 0.5, 0.25, 0.0)  # shares of heads to keep in every layer, for measure_layers


@dataclass(frozen=True)
class Speed:
    """The measurements of one model.

    seconds     time per batch
    throughput  sequences per second
    megabytes   size of the weights
    working     peak memory for computing a batch, in megabytes, in addition to the weights
    ratio       time relative to that of the first model measured with it; below 1 is faster
    low, high   95 % interval of the ratio
    """

    name: str
    heads: int
    seconds: float
    throughput: float
    parameters: int
    megabytes: float
    working: float
    ratio: float
    low: float
    high: float


@dataclass(frozen=True)
class LayerTimes:
    """The time of a model with fewer heads in every layer, relative to the unpruned model.

    share   shares of heads that are left, descending. They may differ from SHARES: heads that share weights are pruned
            together, and one head stays in the model
    time    relative times; the last one, with (almost) no heads, is the bound for head pruning
    """

    share: tuple[float, ...]
    time: tuple[float, ...]

    @property
    def bound(self) -> float:
        """How many times as fast the model could become by pruning heads."""
        return 1 / self.time[-1]

    def at(self, share: float) -> float:
        """The relative time with this share of heads, interpolated between the measurements."""
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
    inputs = {}
    for name, value in sample_inputs(model, batch=1).items():
        if value.dim() == 2:
            repeats = -(-length // value.shape[1])  # rounded up
            tokens = value.repeat(batch_size, repeats)[:, :length]
            inputs[name] = torch.ones_like(tokens) if "mask" in name else tokens
    return inputs


def longest_input(model: AttentionModel, length: int) -> int:
    """`length`, or the maximum number of tokens of the model if that is less."""
    config = model.model.config
    positions = getattr(config, "max_position_embeddings", None)
    if not model.family.takes_text or positions is None or positions < 1:
        return length
    return min(length, int(positions) - model.family.positions_lost(config))


def measure(
    models: Sequence[AttentionModel],
    *,
    batch_size: int = 32,
    length: int = 128,
    repeats: int = REPEATS,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Speed]:
    """Measure all models on the same batch, in turns; ratios are relative to the first model."""
    check_count(repeats, "`repeats`")
    batch = sample_batch(models[0], batch_size, length)
    runs = [timed_forward(model, batch) for model in models]
    by_turn = time_interleaved(runs, repeats, progress)  # [turn, model]
    times = fastest_quarter(by_turn)
    ratios = [median_interval(seconds / by_turn[:, 0]) for seconds in by_turn.T]
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
    """Measure the model with fewer and fewer heads in every layer (`SHARES`)."""
    by_share = (prune_share(model, share) for share in SHARES)
    models = {len(pruned.heads): pruned for pruned in by_share}
    speeds = measure(
        list(models.values()),
        batch_size=batch_size,
        length=length,
        repeats=repeats,
        progress=progress,
    )
    shares = tuple(count / len(model.heads) for count in models)
    return LayerTimes(shares, tuple(speed.ratio for speed in speeds))


def prune_share(model: AttentionModel, share: float) -> AttentionModel:
    """A model in which every site keeps this share of its heads (the first ones). At least one head stays in all."""
    if share == 1.0:
        return model
    remove: list[Head] = []
    counts: dict[Site, int] = {}  # number of heads of each site in the units so far
    widths = {site: len(site.numbers or ()) for site in model.sites}
    for unit in units(model):
        site = unit[0].site
        counts[site] = counts.get(site, 0) + sum(head.site == site for head in unit)
        if counts[site] > round(share * widths[site]):
            remove += unit
    if len(remove) == len(model.heads):
        last = units(model)[-1]
        remove = [head for head in remove if head not in last]
    return prune(model, remove) if remove else model


def timed_forward(model: AttentionModel, batch: dict[str, Tensor]) -> Callable[[], Any]:
    """A function that runs one forward pass of the model on the batch."""
    inputs = {name: value.to(model.device) for name, value in batch.items()}
    return timed_call(lambda: model(inputs), model.device)


def timed_call(work: Callable[[], Any], device: torch.device) -> Callable[[], Any]:
    """A function that calls `work` without gradients, and waits until the device has finished."""

    def run() -> None:
        with torch.inference_mode():
            work()
        if device.type == "cuda":
            torch.cuda.synchronize()

    return run


def peak_bytes(run: Callable[[], Any], device: torch.device) -> int:
    """The peak memory of one run in bytes, in addition to what was allocated before."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        run()
        return torch.cuda.max_memory_allocated(device) - before
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # otherwise the profiler prints messages
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        run()
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    events.sort(key=lambda event: event.start_ns())
    # nbytes is negative if memory is freed
    allocated = np.cumsum([event.nbytes() for event in events])
    return int(allocated.max(initial=0))


def fastest_quarter(by_turn: NDArray[np.float64]) -> NDArray[np.float64]:
    """[run]: the mean of the fastest quarter of the turns [turn, run], which other processes disturbed least."""
    ranked = np.sort(by_turn, axis=0)
    means: NDArray[np.float64] = ranked[: max(1, len(by_turn) // 4)].mean(axis=0)
    return means


def median_interval(values: NDArray[np.float64]) -> tuple[float, float, float]:
    """(median, low, high) with a 95 % interval from ranks, which makes no assumption about the distribution."""
    ranked, count = np.sort(values), len(values)
    rank = max(int(binom.ppf(0.025, count, 0.5)) - 1, 0)
    return float(np.median(ranked)), float(ranked[rank]), float(ranked[count - 1 - rank])


def time_interleaved(
    runs: Sequence[Callable[[], Any]],
    repeats: int,
    progress: Callable[[int, int], None],
    clock: Callable[[], float] | None = None,
) -> NDArray[np.float64]:
    """[turn, run]: seconds of each run in each turn.

    The order of runs is reversed in every other turn, so that no run always comes after the same one.

    clock  wall-clock time by default; `time.process_time` measures processor time
    """
    clock = clock or time.perf_counter
    seconds = np.zeros((repeats + WARM, len(runs)))
    for turn in range(repeats + WARM):
        for i in range(len(runs)) if turn % 2 else reversed(range(len(runs))):
            start = clock()
            runs[i]()
            seconds[turn, i] = clock() - start
        progress(turn + 1, repeats + WARM)
    timed: NDArray[np.float64] = seconds[WARM:]
    return timed
