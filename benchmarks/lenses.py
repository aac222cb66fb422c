"""Cost of each lens compared with a plain SDPA forward pass of the same batches, and peak memory.

Prints one JSON line:
- for each lens, the ratio of processor times: the median over batches of 32, for 256 pairs of exactly 128 tokens on
  minilm, with the statistics of special tokens, which every lens has; `norm-all` and `gradient-all` are with every
  statistic and the tables by layer
- the peak memory of all lenses together, over 64 and over 256 sequences, each in a process of its own: it must not grow
- the processor time of this benchmark, in seconds

    python benchmarks/lenses.py [--repeats 1] [--pairs 256]
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median

import torch
from stream import BATCH, LENGTH, plain_pass, texts

import headscope
from headscope.analysis.lens_statistics import LensStatistics
from headscope.model.lenses import LENSES
from headscope.statistics import select_statistics, stream

STATISTICS = ["cls", "sep", "punctuation", "special"]
GOALS = {"norm": 1.4, "effective": 2.0, "gradient": 3.5}


def timed(run: Callable[..., object], *arguments: object) -> float:
    """Processor time of one call, in seconds."""
    start = time.process_time()
    run(*arguments)
    return time.process_time() - start


def measure_batch(
    model: headscope.AttentionModel,
    batch: headscope.Batch,
    looking: LensStatistics,
    *,
    raw: bool = True,
) -> None:
    """One pass over a batch, with the statistics of the lenses in `looking` and of raw attention."""
    statistics = select_statistics(STATISTICS) if raw else []
    list(stream(model, [batch], statistics, through=looking.through, losses=looking.losses))


def ratios(
    model: headscope.AttentionModel, pairs: int, repeats: int
) -> dict[str, dict[str, float]]:
    """Ratios by lens. For each batch all lenses run in turn, so that a change of the machine's speed affects all."""
    batches = list(
        headscope.encode(model, texts(pairs, full=True), batch_size=BATCH, max_length=LENGTH)
    )
    statistics = {
        name: LensStatistics(
            model, ("raw", name) if name != "raw" else ("raw",), STATISTICS, pairs=True, seed=0
        )
        for name in LENSES
    }
    for name in ("norm", "gradient"):
        statistics[f"{name}-all"] = LensStatistics(model, ("raw", name), None, pairs=True, seed=0)
    for looking in statistics.values():
        measure_batch(model, batches[0], looking)
    by_lens: dict[str, list[float]] = {name: [] for name in statistics}
    for batch in batches * repeats:
        before = timed(plain_pass, model, [batch])
        spent = {
            name: timed(measure_batch, model, batch, looking)
            for name, looking in statistics.items()
        }
        plain = (before + timed(plain_pass, model, [batch])) / 2
        for name, seconds in spent.items():
            by_lens[name].append(seconds / plain)
    return {name: summarise(values) for name, values in by_lens.items()}


def summarise(ratios: list[float]) -> dict[str, float]:
    return {
        "ratio": round(median(ratios), 3),
        "lowest": round(min(ratios), 3),
        "highest": round(max(ratios), 3),
    }


def seconds_so_far() -> float:
    """Processor time of this process and of its child processes that have ended."""
    times = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return round(sum(usage.ru_utime + usage.ru_stime for usage in times), 1)


def peak_memory_mb(count: int) -> int:
    """Peak memory of a new process that measures `count` sequences with all lenses."""
    code = f"import sys; sys.path.insert(0, 'benchmarks'); import lenses; lenses.measure_memory({count})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return int(done.stdout)


def measure_memory(count: int) -> None:
    model = headscope.load("minilm")
    looking = LensStatistics(model, tuple(LENSES), STATISTICS, pairs=True, seed=0)
    for batch in headscope.encode(
        model, texts(count, full=True), batch_size=BATCH, max_length=LENGTH
    ):
        measure_batch(model, batch, looking)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=256)
    parser.add_argument("--memory", type=int, nargs="*", default=[64, 256])
    arguments = parser.parse_args()
    model = headscope.load("minilm")
    result = {
        "benchmark": "lenses",
        "threads": torch.get_num_threads(),
        "pairs": arguments.pairs,
        **ratios(model, arguments.pairs, arguments.repeats),
        "peak_memory_mb": {str(count): peak_memory_mb(count) for count in arguments.memory},
        "goals": GOALS,
        "seconds": seconds_so_far(),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
