"""Cost of the surface statistics compared with a plain forward pass of the same batches, and peak memory.

Prints one JSON line: the ratio of times (median over interleaved repeats) for 256 pairs of exactly 128 tokens; the same
for 256 real pairs of about 104 tokens, padded; and the peak memory over 128, 512 and 2,048 sequences, each in a process
of its own, which must not grow.

    python benchmarks/stream.py [--repeats 7]
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import cycle, islice
from statistics import median

import torch

import headscope
from headscope.data.bundled import BUNDLED
from headscope.data.examples import read_examples
from headscope.statistics import Statistic, select_statistics, stream

BATCH = 32
LENGTH = 128
SURFACE = [
    *(
        "self",
        "previous",
        "next",
        "distance",
        "cls",
        "sep",
        "punctuation",
        "special",
        "entropy",
        "cls-entropy",
    ),
    *("confidence", "confidence-content", "argmax-share", "argmax-offset"),
]


def texts(count: int, *, full: bool) -> list[tuple[str, str]]:
    """Real paragraph pairs; `full` joins two pairs so that truncation leaves exactly 128 tokens of each."""
    pairs = [
        (e.first, e.second or "") for e in read_examples([BUNDLED["wikipedia-pairs"]], pairs=True)
    ]
    if full:
        following = pairs[1:] + pairs[:1]
        pairs = [
            (a + " " + c, b + " " + d) for (a, b), (c, d) in zip(pairs, following, strict=True)
        ]
    return list(islice(cycle(pairs), count))


def plain_pass(model: headscope.AttentionModel, batches: list[headscope.Batch]) -> None:
    with torch.inference_mode():
        for batch in batches:
            model(batch)


def read_out(statistics: list[Statistic]) -> None:
    """Compute the results of all statistics from their sums."""
    for statistic in statistics:
        statistic.table()
        statistic.maps()


def timed(run: Callable[..., object], *arguments: object) -> float:
    start = time.perf_counter()
    run(*arguments)
    return time.perf_counter() - start


def ratio(
    model: headscope.AttentionModel, pairs: list[tuple[str, str]], repeats: int
) -> dict[str, float]:
    """Both passes run in turn for each batch, so that a change of the machine's speed affects both."""
    batches = list(headscope.encode(model, pairs, batch_size=BATCH, max_length=LENGTH))
    plain_pass(model, batches[:2])
    list(stream(model, batches[:2], select_statistics(SURFACE)))
    ratios, seconds = [], []
    for repeat in range(repeats):
        plain = watched = 0.0
        statistics = select_statistics(SURFACE)
        for i, batch in enumerate(batches):
            plain_first = (i + repeat) % 2 == 0
            if plain_first:
                plain += timed(plain_pass, model, [batch])
            watched += timed(list, stream(model, [batch], statistics))
            if not plain_first:
                plain += timed(plain_pass, model, [batch])
        watched += timed(read_out, statistics)
        ratios.append(watched / plain)
        seconds.append(plain)
    return {
        "ratio": round(median(ratios), 3),
        "lowest": round(min(ratios), 3),
        "highest": round(max(ratios), 3),
        "plain_seconds": round(median(seconds), 2),
    }


def peak_memory_mb(count: int) -> int:
    """Peak memory of a new process that streams `count` sequences."""
    code = f"import sys; sys.path.insert(0, 'benchmarks'); import stream; stream.measure_memory({count})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return int(done.stdout)


def measure_memory(count: int) -> None:
    model = headscope.load("minilm")
    batches = headscope.encode(model, texts(count, full=True), batch_size=BATCH, max_length=LENGTH)
    for _ in stream(model, batches, select_statistics(SURFACE)):
        pass
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    model = headscope.load("minilm")
    result = {
        "benchmark": "stream",
        "threads": torch.get_num_threads(),
        "pairs_of_128_tokens": ratio(model, texts(256, full=True), arguments.repeats),
        "pairs_as_they_are": ratio(model, texts(256, full=False), arguments.repeats),
        "peak_memory_mb": {str(count): peak_memory_mb(count) for count in (128, 512, 2048)},
        "goal_ratio": 1.15,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
