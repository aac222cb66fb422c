"""What does it cost to learn what to keep? JSON lines, one for each case.

    python benchmarks/learned.py [--only training|forward] [--mask longformer] [--repeats 15] [--threads 2] [--clock …]

training  a step of the loop under each case over a plain one: minilm as a classifier, 32 pairs of exactly 128 tokens,
          and of 128 at most, as they are (padded). What a step holds in memory at most, beside the weights.
forward   a mask given to torch's kernel (`Masked`) and by editing scores (`MaskScores`) over a plain forward pass, the
          same batches.

Cases run in turns, so that a machine that gets slower meanwhile slows all; a ratio is the median of the turns' ratios.
On a machine that others use too, `--clock processor --threads 1` leaves out the time that was theirs.
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


# What is put on the model before it is trained, and the most that a step may then cost. The first is what others are
# measured against; what is learned is given back, and its edit put on here.
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
    """A step under each case over a plain one."""
    steps = [_steps(case, items, options) for case, _ in CASES.values()]
    times = time_interleaved(
        steps, options.repeats, lambda done, total: None, CLOCKS[options.clock]
    )
    for place, (name, (_, goal)) in enumerate(CASES.items()):
        ratio, low, high = median_interval(times[:, place] / times[:, 0])
        yield {
            "benchmark": "learned training",
            "case": name,
            **_rounded(ratio, low, high, times[:, place]),
            "working_mb": round(peak_bytes(steps[place], torch.device("cpu")) / 1e6),
            "goal": goal,
        }


def _steps(case: Case, items: list[Item], options: argparse.Namespace) -> Callable[[], Any]:
    """Takes the next step of a training of its own; all trainings see the same batches in the same order."""
    task = get_task("mnli")
    model = _classifier()
    learned = case(model, options.mask)
    if learned is not None:
        model.edit_permanently(learned.edit())
    prepared = task.prepare(model, items, max_length=LENGTH)
    course = iter(
        Training(
            model, task, prepared, LoopSettings(epochs=1000, batch_size=BATCH), learned=learned
        )
    )
    return lambda: next(course)


def forward(options: argparse.Namespace, items: list[Item]) -> Iterator[dict[str, Any]]:
    """A mask by the kernel and by edited scores over a plain forward pass."""
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
    for place, name in enumerate(edits):
        ratio, low, high = median_interval(times[:, place] / times[:, 0])
        yield {
            "benchmark": "learned forward",
            "case": name,
            **_rounded(ratio, low, high, times[:, place]),
        }


def pairs(full: bool) -> list[Item]:
    """Real paragraph pairs; `full` joins two pairs so that truncation leaves exactly 128 tokens of each."""
    found = [
        (one.first, one.second or "")
        for one in read_examples([BUNDLED["wikipedia-pairs"]], pairs=True)
    ]
    if full:
        following = found[1:] + found[:1]
        found = [
            (a + " " + c, b + " " + d) for (a, b), (c, d) in zip(found, following, strict=True)
        ]
    labels = cycle(LABELS)  # times do not depend on what is right
    return [Item((str(a), str(b)), next(labels)) for a, b in islice(cycle(found), 4 * BATCH)]


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
