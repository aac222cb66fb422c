"""Cost of training gates and masks, and of applying a mask. Prints JSON lines, one for each case.

    python benchmarks/learned.py [--only training|forward] [--mask longformer] [--repeats 15] [--threads 2] [--clock …]

training  time of a training step in each case, divided by that of a plain step. minilm as a classifier, 32 pairs of
          exactly 128 tokens, then 32 pairs of at most 128 tokens (padded). Also the peak memory of a step without the
          weights.
forward   time of a forward pass with a mask in torch's kernel (`Masked`) and by edited scores (`MaskScores`), divided
          by that of a plain forward pass on the same batches.

The cases run in turns, so that a change of the machine's speed affects all of them. A ratio is the median over turns.
If other programs run on the machine, use `--clock processor --threads 1`, which counts the time of this process only.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from typing import Any

import torch

import headscope
from headscope.config.learn_mask import LearnMaskConfig
from headscope.data.bundled import BUNDLED
from headscope.data.examples import read_examples
from headscope.learning.gates import Gates
from headscope.learning.learned_mask import LearnedMask
from headscope.masks import Masked, read_mask
from headscope.model.attention_model import AttentionModel
from headscope.model.latency import median_interval, peak_bytes, time_interleaved
from headscope.tasks import get_task
from headscope.tasks.items import Item
from headscope.tasks.prepared import batch_of
from headscope.training.learnable_edit import LearnableEdit
from headscope.training.loop import LoopSettings, Training

BATCH, LENGTH = 32, 128
LABELS = ("entailment", "neutral", "contradiction")
CLOCKS = {"wall": time.perf_counter, "processor": time.process_time}
Case = Callable[[AttentionModel, str], LearnableEdit | None]


def plain(model: AttentionModel, mask: str) -> None:
    return None


def gates(model: AttentionModel, mask: str) -> LearnableEdit:
    return Gates(model, penalty=0.002, settle=1.0)


def masked(model: AttentionModel, mask: str) -> None:
    model.edit_permanently(Masked(mask))


def learned_mask(model: AttentionModel, mask: str) -> LearnableEdit:
    return LearnedMask(model, [LENGTH], LearnMaskConfig(sparsity=0.9, settle=1.0))


def learned_by_head(model: AttentionModel, mask: str) -> LearnableEdit:
    return LearnedMask(model, [LENGTH], LearnMaskConfig(sparsity=0.9, per="head", settle=1.0))


# Each case: a function that prepares the model, and the largest allowed ratio of its step to a plain step. A function
# returns what is trained in addition to the weights, if anything; its edit is then applied to the model.
CASES: dict[str, tuple[Case, float | None]] = {
    "plain": (plain, 1.0),
    "gates": (gates, 1.10),
    "mask": (masked, 1.25),
    "learned mask": (learned_mask, None),
    "learned mask of every head": (learned_by_head, None),
}


def main() -> None:
    options = _options()
    torch.set_num_threads(options.threads)
    for full in (True, False):
        if options.only in (None, "training"):
            _print(options, full, training(options, pairs(full)))
        if options.only in (None, "forward"):
            _print(options, full, forward(options, pairs(full)))


def training(options: argparse.Namespace, items: list[Item]) -> Iterator[dict[str, Any]]:
    """Time of a training step in each case, divided by that of a plain step."""
    steps = [_steps(case, items, options) for case, _ in CASES.values()]
    times = time_interleaved(
        steps, options.repeats, lambda done, total: None, CLOCKS[options.clock]
    )
    for column, (name, (_, goal)) in enumerate(CASES.items()):
        ratio, low, high = median_interval(times[:, column] / times[:, 0])
        yield {
            "benchmark": "learned training",
            "case": name,
            **_rounded(ratio, low, high, times[:, column]),
            "working_mb": round(peak_bytes(steps[column], torch.device("cpu")) / 1e6),
            "goal": goal,
        }


def _steps(case: Case, items: list[Item], options: argparse.Namespace) -> Callable[[], Any]:
    """A function that takes the next step of a training of its own. All trainings have the same batches."""
    task = get_task("mnli")
    model = _classifier()
    learned = case(model, options.mask)
    if learned is not None:
        model.edit_permanently(learned.edit())
    prepared = task.prepare(model, items, max_length=LENGTH)
    training_steps = iter(
        Training(
            model, task, prepared, LoopSettings(epochs=1000, batch_size=BATCH), learned=learned
        )
    )
    return lambda: next(training_steps)


def forward(options: argparse.Namespace, items: list[Item]) -> Iterator[dict[str, Any]]:
    """Time of a forward pass with a mask, in the kernel and by edited scores, divided by that of a plain pass."""
    task, model = get_task("mnli"), _classifier()
    prepared = task.prepare(model, items, max_length=LENGTH)
    batch = batch_of(model, prepared, list(range(BATCH)))
    length = next(iter(batch.inputs.values())).shape[1]
    allowed = read_mask(options.mask).at(length)[None]
    edits = {
        "plain": [],
        "Masked": [Masked(options.mask)],
        "MaskScores": [headscope.MaskScores(allowed)],
    }

    def run(name: str) -> None:
        with torch.inference_mode(), model.edited(*edits[name]):
            model(batch)

    runs = [lambda name=name: run(name) for name in edits]  # type: ignore[misc]
    times = time_interleaved(runs, options.repeats, lambda done, total: None, CLOCKS[options.clock])
    for column, name in enumerate(edits):
        ratio, low, high = median_interval(times[:, column] / times[:, 0])
        yield {
            "benchmark": "learned forward",
            "case": name,
            **_rounded(ratio, low, high, times[:, column]),
        }


def pairs(full: bool) -> list[Item]:
    """Real paragraph pairs; `full` joins two pairs so that truncation leaves exactly 128 tokens of each."""
    texts = [
        (example.first, example.second or "")
        for example in read_examples([BUNDLED["wikipedia-pairs"]], pairs=True)
    ]
    if full:
        following = texts[1:] + texts[:1]
        texts = [
            (a + " " + c, b + " " + d) for (a, b), (c, d) in zip(texts, following, strict=True)
        ]
    labels = cycle(LABELS)  # arbitrary: times do not depend on the labels
    return [Item((str(a), str(b)), next(labels)) for a, b in islice(cycle(texts), 4 * BATCH)]


def _classifier() -> AttentionModel:
    torch.manual_seed(0)
    model = headscope.load("minilm", model_class=get_task("mnli").model_class, labels=LABELS)
    model.untrained = ()
    return model


def _rounded(ratio: float, low: float, high: float, seconds: Any) -> dict[str, Any]:
    interval = [round(low, 3), round(high, 3)]
    return {
        "ratio": round(ratio, 3),
        "interval": interval,
        "milliseconds": round(1e3 * median_interval(seconds)[0], 1),
    }


def _print(options: argparse.Namespace, full: bool, lines: Iterator[dict[str, Any]]) -> None:
    tokens = f"{LENGTH}" if full else f"at most {LENGTH}"
    for line in lines:
        print(
            json.dumps(
                {
                    **line,
                    "batch": BATCH,
                    "tokens": tokens,
                    "mask": options.mask,
                    "clock": options.clock,
                }
            ),
            flush=True,
        )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=("training", "forward"))
    parser.add_argument("--mask", default="longformer")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    return parser.parse_args()


if __name__ == "__main__":
    main()
