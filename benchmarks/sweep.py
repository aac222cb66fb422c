"""Speed of the ablation sweep compared with a plain loop of forward passes. Prints one JSON line.

    python benchmarks/sweep.py [MODEL] [--data DIR] [--examples 512] [--sequential-test 0.05]

MODEL is minilm fine-tuned on MNLI (headscope finetune minilm --task mnli ...); without MODEL, minilm with a random
classifier is used. The plain loop is one forward pass for each head and batch. Both methods run over the same batches
and take turns after the heads of each site, so that a change of the machine's speed affects both.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import headscope
from headscope.ablation.ablation_targets import variants_of
from headscope.ablation.sweep import Group, Sweep
from headscope.tasks import get_task
from headscope.tasks.items import Item
from headscope.tasks.prepared import batch_of, plan_batches, sequences_of

LABELS = ("entailment", "neutral", "contradiction")


def main() -> None:
    options = _options()
    torch.set_num_threads(options.threads)
    task = get_task("mnli")
    if options.model is None:
        torch.manual_seed(0)
        model = headscope.load("minilm", model_class=task.model_class, labels=LABELS)
        model.untrained = ()
    else:
        model = headscope.load(options.model, model_class=task.model_class)
    items = (
        _pairs(options.examples)
        if options.data is None
        else task.items(options.data, "dev", limit=options.examples)
    )
    prepared = task.prepare(model, items, max_length=options.max_length)
    fast = Sweep(model, task, prepared, batch_size=options.batch_size)
    plain = Sweep(model, task, prepared, batch_size=options.batch_size, method="plain")
    groups = fast.groups(variants_of(model, "head"))
    block = list(range(len(prepared.items)))
    seconds = {"fast": 0.0, "plain": 0.0}
    by_site: dict[str, list[float]] = {}
    largest = 0.0
    shared = time.perf_counter()
    chunks = plan_batches(prepared, options.batch_size, set(sequences_of(prepared, block)))
    batches = [batch_of(model, prepared, chunk) for chunk in chunks]
    with torch.inference_mode():
        replays = [fast._replay(batch) for batch in batches]
    seconds["fast"] += time.perf_counter() - shared
    for group in groups[1:]:
        spent = {}
        for name in ("fast", "plain", "plain", "fast")[:: 1 if len(by_site) % 2 else -1][:2]:
            start = time.perf_counter()
            with torch.inference_mode():
                sweep = fast if name == "fast" else plain
                answers = [
                    _answers(sweep, b, group, r) for b, r in zip(batches, replays, strict=True)
                ]
            spent[name] = time.perf_counter() - start
            seconds[name] += spent[name]
            if name == "fast":
                of_fast = answers
            else:
                of_plain = answers
        largest = max(
            largest, *(float((a - b).abs().max()) for a, b in zip(of_fast, of_plain, strict=True))
        )
        by_site[group.name] = [round(spent["fast"], 2), round(spent["plain"], 2)]
    result: dict[str, Any] = {
        "benchmark": "sweep",
        "model": options.model or "minilm, random classifier",
        "way": fast.method,
        "examples": len(prepared.items),
        "tokens": prepared.counts.tokens,
        "threads": options.threads,
        "ratio": round(seconds["plain"] / seconds["fast"], 2),
        "seconds": {name: round(value, 1) for name, value in seconds.items()},
        "seconds_by_site": by_site,
        "largest_logit_difference": largest,
    }
    if options.batch_sizes:
        sizes = [int(size) for size in options.batch_sizes.split(",")]
        result["seconds_by_batch_size"] = _by_batch_size(
            model, task, prepared, block, groups[-1], sizes
        )
    if options.sequential_test is not None:
        result |= _sequential(options, model, task, items, seconds)
    print(json.dumps(result))


def _answers(sweep: Sweep, batch: Any, group: Group, replay: Any) -> torch.Tensor:
    return torch.stack(list(sweep._answers(batch, group, replay)))


def _by_batch_size(
    model: Any, task: Any, prepared: Any, block: list[int], group: Group, sizes: list[int]
) -> dict[int, float]:
    """Seconds for the heads of the lowest site by batch size: the gain if several ablations shared a batch."""
    spent = dict.fromkeys(sizes, 0.0)
    sweeps = {size: Sweep(model, task, prepared, batch_size=size) for size in sizes}
    for turn in range(2):
        for size in sizes[:: 1 if turn else -1]:
            begun = time.perf_counter()
            for _ in sweeps[size].run(0, block, [group]):
                pass
            spent[size] += time.perf_counter() - begun
    return {size: round(seconds / 2, 1) for size, seconds in spent.items()}


def _sequential(
    options: argparse.Namespace, model: Any, task: Any, items: list[Item], seconds: dict[str, float]
) -> Any:
    """Time of the sequential test with its gradient pass, and agreement of its verdicts with the exact sweep."""
    from headscope.api.importance import importance

    class FixedItems(type(task)):  # type: ignore[misc]
        def items(self, data: Any, split: str = "dev", *, limit: int | None = None) -> list[Item]:
            return items

    file = Path(__file__)  # not read: the items are fixed, but the record needs the path of a file
    common = {
        "task": FixedItems("mnli"),
        "data": file,
        "max_length": options.max_length,
        "batch_size": options.batch_size,
    }
    exact = importance(model, **common)
    begun = time.perf_counter()
    tested = importance(model, sequential_test=options.sequential_test, **common)
    spent = tested.record["durations"]["sequential_test"] + tested.record["durations"]["ablation"]
    of_loss = [
        study.tables["significance"].query("statistic == 'ablation-loss'")
        for study in (exact, tested)
    ]
    same = (
        of_loss[0]["is_significant"].to_numpy() == of_loss[1]["is_significant"].to_numpy()
    ).all()
    values, guesses = (table["value"].to_numpy() for table in of_loss)
    width = (of_loss[0]["high"] - of_loss[0]["low"]).to_numpy() / 2
    bottom = np.argsort(values)[:10]
    theirs = np.argsort(guesses)[:10]
    border = values[bottom].max()
    tied = all(values[i] - border <= width[i] for i in theirs)
    ours = exact.record["durations"]["ablation"]
    return {
        "sequential_test": options.sequential_test,
        "race_seconds": round(spent, 1),
        "race_whole_seconds": round(time.perf_counter() - begun, 1),
        "race_to_exact": round(ours / spent, 2),
        "race_ratio": round(ours / spent * seconds["plain"] / seconds["fast"], 2),
        "mean_examples_a_head": round(float(of_loss[1]["count"].mean()), 1),
        "same_significant": bool(same),
        "significant": int(of_loss[0]["is_significant"].sum()),
        "same_bottom_ten": len(set(bottom.tolist()) & set(theirs.tolist())),
        "bottom_ten_within_intervals": bool(tied),
    }


def _pairs(count: int) -> list[Item]:
    """Without MNLI: pairs of the bundled corpus with alternating labels, on which the results do not depend."""
    from headscope.data.bundled import BUNDLED
    from headscope.data.examples import read_examples

    examples = list(read_examples([next(iter(BUNDLED))], pairs=True))[:count]
    return [
        Item((str(example.first), str(example.second)), LABELS[i % 3], example.where)
        for i, example in enumerate(examples)
    ]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", nargs="?")
    parser.add_argument("--data")
    parser.add_argument("--examples", type=int, default=512)
    parser.add_argument("--max-length", type=int, default=128)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch-sizes", help="also time these batch sizes, e.g. 8,32,128")
    parser.add_argument("--sequential-test", type=float)
    return parser.parse_args()


if __name__ == "__main__":
    main()
