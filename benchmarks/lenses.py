"""What does each lens cost, over a plain SDPA forward of the same batches? Does memory stay flat?

Prints one JSON line: for each lens the median over batches of 32 of its ratio, 256 pairs of exactly 128 tokens on
minilm, with the statistics of special tokens (what every lens can be asked), by processor time (`norm-all` and
`gradient-all`: with every statistic and the tables by layer); the peak memory of all lenses together over 64 and 256
sequences (a process each); and the seconds of processor time that all of it took.

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
    start = time.process_time()
    run(*arguments)
    return time.process_time() - start


def looked(
    model: headscope.AttentionModel,
    batch: headscope.Batch,
    looking: LensStatistics,
    *,
    raw: bool = True,
) -> None:
    asked = select_statistics(STATISTICS) if raw else []
    list(stream(model, [batch], asked, through=looking.through, losses=looking.losses))


def ratios(
    model: headscope.AttentionModel, pairs: int, repeats: int
) -> dict[str, dict[str, float]]:
    """Batch by batch in turns, so that a change of the machine's speed hits all alike."""
    batches = list(
        headscope.encode(model, texts(pairs, full=True), batch_size=BATCH, max_length=LENGTH)
    )
    asked = {
        name: LensStatistics(
            model, ("raw", name) if name != "raw" else ("raw",), STATISTICS, pairs=True, seed=0
        )
        for name in LENSES
    }
    for name in ("norm", "gradient"):
        asked[f"{name}-all"] = LensStatistics(model, ("raw", name), None, pairs=True, seed=0)
    for looking in asked.values():
        looked(model, batches[0], looking)
    found: dict[str, list[float]] = {name: [] for name in asked}
    for batch in batches * repeats:
        before = timed(plain_pass, model, [batch])
        spent = {name: timed(looked, model, batch, looking) for name, looking in asked.items()}
        plain = (before + timed(plain_pass, model, [batch])) / 2
        for name, seconds in spent.items():
            found[name].append(seconds / plain)
    return {name: summed_up(of) for name, of in found.items()}


def summed_up(ratios: list[float]) -> dict[str, float]:
    return {
        "ratio": round(median(ratios), 3),
        "lowest": round(min(ratios), 3),
        "highest": round(max(ratios), 3),
    }


def seconds_so_far() -> float:
    """Of processor time, those of processes that were started and have ended among them."""
    times = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return round(sum(one.ru_utime + one.ru_stime for one in times), 1)


def peak_memory_mb(count: int) -> int:
    """Of a fresh process that looks at `count` sequences through all lenses."""
    code = f"import sys; sys.path.insert(0, 'benchmarks'); import lenses; lenses.measure_memory({count})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return int(done.stdout)


def measure_memory(count: int) -> None:
    model = headscope.load("minilm")
    looking = LensStatistics(model, tuple(LENSES), STATISTICS, pairs=True, seed=0)
    for batch in headscope.encode(
        model, texts(count, full=True), batch_size=BATCH, max_length=LENGTH
    ):
        looked(model, batch, looking)
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
