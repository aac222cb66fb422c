"""Latency: what head pruning can gain on this machine, and what it did. Measured, never counted in operations.

The model is run with ever fewer heads in every layer. Without (almost) any heads, the remaining time is that of
everything except attention: the bound. Measurements are interleaved, so that a busy moment affects all models alike: a
ratio is the median of the ratios within a turn, with an interval by ranks; times are those of the fastest quarter.
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

WARM = 2  # first turns, which are not timed
TIMED = (8, 64)  # sequences and tokens for timing a pruned model in passing: takes little time
SHARES = (1.0, 0.75, 0.5, 0.25, 0.0)  # of the heads of every layer


@dataclass(frozen=True)
class Speed:
    """The measurements of one model.

    seconds    per batch; throughput: sequences per second
    megabytes  of its weights; working: peak memory in addition to them while a batch is computed
    ratio      its time over that of the first model measured with it, with the interval [low, high]
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
    """The model's time relative to the whole model's, by the share of heads that every layer has left.

    share   descending, as pruned: heads that share weights are removed together, and one stays in the model
    time    measured; the last, with (almost) no heads, is the bound for head pruning alone
    """

    share: tuple[float, ...]
    time: tuple[float, ...]

    @property
    def bound(self) -> float:
        return 1 / self.time[-1]

    def at(self, share: float) -> float:
        """The time with this share of heads, interpolated between the measurements."""
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
    """This number of tokens, or the most that the model can read."""
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
    """All models on the same batch, in turns; ratios to the first."""
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
    """How the model's time falls as every layer loses the same share of its heads."""
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
    """Prune every site to the first `share` of its heads; one head of the model stays, as not all can be removed."""
    if share == 1.0:
        return model
    remove: list[Head] = []
    counts: dict[Site, int] = {}  # heads of each site in the units so far
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
    """A function that runs one forward pass, to be timed."""
    inputs = {name: value.to(model.device) for name, value in batch.items()}
    return timed_call(lambda: model(inputs), model.device)


def timed_call(work: Callable[[], Any], device: torch.device) -> Callable[[], Any]:
    """A function that does the work without gradients and returns when the device is done with it."""

    def run() -> None:
        with torch.inference_mode():
            work()
        if device.type == "cuda":
            torch.cuda.synchronize()

    return run


def peak_bytes(run: Callable[[], Any], device: torch.device) -> int:
    """The most bytes that one run allocates at a time, beyond what was allocated before it."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        run()
        return torch.cuda.max_memory_allocated(device) - before
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # or the profiler reports its own start
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        run()
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    events.sort(key=lambda event: event.start_ns())
    allocated = np.cumsum([event.nbytes() for event in events])  # negative where memory is freed
    return int(allocated.max(initial=0))


def fastest_quarter(by_turn: NDArray[np.float64]) -> NDArray[np.float64]:
    """[run]: the mean of the fastest quarter of the turns, which other processes disturbed least."""
    ranked = np.sort(by_turn, axis=0)
    means: NDArray[np.float64] = ranked[: max(1, len(by_turn) // 4)].mean(axis=0)
    return means


def median_interval(values: NDArray[np.float64]) -> tuple[float, float, float]:
    """The median and its 95 % interval by ranks, which holds whatever the distribution."""
    ranked, count = np.sort(values), len(values)
    rank = max(int(binom.ppf(0.025, count, 0.5)) - 1, 0)
    return float(np.median(ranked)), float(ranked[rank]), float(ranked[count - 1 - rank])


def time_interleaved(
    runs: Sequence[Callable[[], Any]],
    repeats: int,
    progress: Callable[[int, int], None],
    clock: Callable[[], float] | None = None,
) -> NDArray[np.float64]:
    """[turn, run]: seconds of wall-clock time, or by another clock (time.process_time: of the processor).

    Every other turn goes backwards, so that no run always comes after the same one.
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
