"""Speed and accuracy of the entropy form of the Jensen-Shannon divergence, compared with the textbook form.

All pairs of 72 heads over 256 rows of 128 keys, in float64. The statistic uses the entropy form; the textbook form is a
loop over the pairs with two Kullback-Leibler terms each. Prints one JSON line: the median ratio of times over
interleaved repeats, and the largest difference between the results.

    python benchmarks/js.py [--repeats 5] [--threads 1]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor

from headscope.statistics.head_distance import divergences

HEADS, ROWS, KEYS = 72, 256, 128


def textbook(weights: Tensor) -> Tensor:
    """[head, head]: the mean over rows of half of KL(p || m) and half of KL(q || m)."""
    result = torch.zeros(len(weights), len(weights), dtype=torch.float64)
    for i, p in enumerate(weights):
        for j in range(i + 1, len(weights)):
            q = weights[j]
            m = (p + q) / 2
            of_rows = (p * (p.log() - m.log())).sum(dim=-1) / 2 + (q * (q.log() - m.log())).sum(
                dim=-1
            ) / 2
            result[i, j] = result[j, i] = of_rows.mean()
    return result


def blocked(weights: Tensor) -> Tensor:
    """[head, head]: the same from `divergences`, which computes blocks of pairs."""
    result = torch.zeros(len(weights), len(weights), dtype=torch.float64)
    for i, later, of_rows in divergences(weights):
        result[i, later] = result[later, i] = of_rows.mean(dim=-1)
    return result


def timed(run: Callable[[Tensor], Tensor], weights: Tensor) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    run(weights)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    noise = torch.Generator().manual_seed(0)
    scores = 3 * torch.randn(HEADS, ROWS, KEYS, generator=noise, dtype=torch.float64)
    weights = torch.softmax(scores, dim=-1)
    difference = float((textbook(weights) - blocked(weights)).abs().max())  # also warms up both
    slow, fast = [], []
    for _ in range(arguments.repeats):
        slow.append(timed(textbook, weights))
        fast.append(timed(blocked, weights))
    ratios = [a / b for a, b in zip(slow, fast, strict=True)]
    result = {
        "benchmark": "js",
        "threads": arguments.threads,
        "heads": HEADS,
        "rows": ROWS,
        "keys": KEYS,
        "textbook_seconds": round(median(slow), 3),
        "blocked_seconds": round(median(fast), 3),
        "ratio": round(median(ratios), 2),
        "lowest": round(min(ratios), 2),
        "highest": round(max(ratios), 2),
        "largest_difference": difference,
        "goal_ratio": 5,
        "goal_difference": 1e-10,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
