"""Cost of relevance propagation compared with a plain forward pass of the same batches, and peak memory.

Prints one JSON line: for each set of rules the ratio of processor times (median over batches of 32, for 256 pairs of
exactly 128 tokens on minilm); the peak memory over 32, 128 and 256 sequences, each in a process of its own, which must
not grow; and the processor time of this benchmark, in seconds.

    python benchmarks/relevance.py [--pairs 256] [--repeats 2]
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys

import torch
from lenses import seconds_so_far, summarise, timed
from stream import BATCH, LENGTH, plain_pass, texts

import headscope
from headscope.model.relevance.rules import RULES, Rules, linearise
from headscope.model.relevance.sums import RelevanceSums
from headscope.model.relevance.targets import component_along


def relevance_pass(
    model: headscope.AttentionModel, batches: list[headscope.Batch], rules: Rules
) -> None:
    """Relevance of heads, layers, tokens and biases for the length of the pooled vector."""
    for batch in batches:
        accounts = RelevanceSums(model, len(batch.indices))
        with linearise(model, rules, accounts), accounts.follow():
            accounts.backward(component_along(model(batch)[0], batch.inputs["attention_mask"]))


def ratios(
    model: headscope.AttentionModel, pairs: list[tuple[str, str]], repeats: int
) -> dict[str, dict[str, float]]:
    """Ratios by rules. For each batch all rules run in turn, so that a change of the machine's speed affects all."""
    batches = list(headscope.encode(model, pairs, batch_size=BATCH, max_length=LENGTH))
    plain_pass(model, batches[:1])
    by_rules: dict[str, list[float]] = {rules: [] for rules in RULES}
    for rules in RULES:
        relevance_pass(model, batches[:1], rules)
    for batch in batches * repeats:
        before = timed(plain_pass, model, [batch])
        spent = {rules: timed(relevance_pass, model, [batch], rules) for rules in RULES}
        plain = (before + timed(plain_pass, model, [batch])) / 2
        for rules, seconds in spent.items():
            by_rules[rules].append(seconds / plain)
    return {rules: summarise(values) for rules, values in by_rules.items()}


def peak_memory_mb(count: int) -> int:
    """Peak memory of a new process that computes the relevance of `count` sequences."""
    code = f"import sys; sys.path.insert(0, 'benchmarks'); import relevance; relevance.measure_memory({count})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return int(done.stdout)


def measure_memory(count: int) -> None:
    model = headscope.load("minilm")
    for batch in headscope.encode(
        model, texts(count, full=True), batch_size=BATCH, max_length=LENGTH
    ):
        relevance_pass(model, [batch], "voita")
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--memory", type=int, nargs="*", default=[32, 128, 256])
    arguments = parser.parse_args()
    result = {
        "benchmark": "relevance",
        "threads": torch.get_num_threads(),
        "pairs": arguments.pairs,
        "pairs_of_128_tokens": ratios(
            headscope.load("minilm"), texts(arguments.pairs, full=True), arguments.repeats
        ),
        "peak_memory_mb": {str(count): peak_memory_mb(count) for count in arguments.memory},
        "goal_ratio": 4.0,
        "seconds": seconds_so_far(),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
