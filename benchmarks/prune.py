"""Head pruning by the clock, and searches at equal numbers of evaluations: JSON lines.

    python benchmarks/prune.py [--only speed|search] [--model minilm] [--data stsb_dev.tsv] [--heads 12]

speed   25, 50 and 75 % of the heads of every layer removed, 32 sequences of 128 tokens. The bound comes from single
        layers: the time of one block with so many heads, times the number of blocks, and what the model does besides.
        Models and layers are measured in turns.
search  the objective that beam, greedy and iterative reach on the selection examples, and the evaluations each took.
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
from headscope.model.anatomy import anatomy
from headscope.model.attention_model import AttentionModel
from headscope.pruning import searches
from headscope.pruning.scores import scores_by
from headscope.pruning.selection import Selection
from headscope.pruning.speed import inputs_of, thinned
from headscope.tasks import task_named

SHARES = (1.0, 0.75, 0.5, 0.25)


def main() -> None:
    options = _options()
    if options.only in (None, "speed"):
        print(json.dumps(speed(options)))
    if options.only in (None, "search"):
        for row in search(options):
            print(json.dumps(row), flush=True)


def speed(options: argparse.Namespace) -> dict[str, Any]:
    model = headscope.load(options.model)
    models = [thinned(model, share) for share in SHARES]
    batch = inputs_of(model, options.batch_size, options.length)
    blocks = [_block_call(one, batch) for one in models]
    runs = [lambda one=one: _run(one, batch) for one in models] + blocks  # type: ignore[misc]
    times = np.zeros((options.repeats + 2, len(runs)))
    for turn in range(options.repeats + 2):
        for place in range(len(runs)) if turn % 2 else reversed(range(len(runs))):
            begun = time.perf_counter()
            runs[place]()
            times[turn, place] = time.perf_counter() - begun
    fastest = np.sort(times[2:], axis=0)[: max(1, options.repeats // 4)].mean(axis=0)
    whole, block = fastest[: len(SHARES)], fastest[len(SHARES) :]
    count = len({part.block for part in anatomy(model).values()})
    besides = max(whole[0] - count * block[0], 0.0)
    bound = whole[0] / (besides + count * block)
    measured = whole[0] / whole
    return {
        "benchmark": "prune speed",
        "batch": [options.batch_size, options.length],
        "heads_left": SHARES,
        "milliseconds": [round(1e3 * float(one), 1) for one in whole],
        "block_milliseconds": [round(1e3 * float(one), 2) for one in block],
        "speed_up": [round(float(one), 3) for one in measured],
        "bound": [round(float(one), 3) for one in bound],
        "of_the_bound": [round(float(one), 3) for one in measured / bound],
        "goal": 0.9,
    }


def _run(model: AttentionModel, batch: dict[str, torch.Tensor]) -> None:
    with torch.inference_mode():
        model(batch)


def _block_call(model: AttentionModel, batch: dict[str, torch.Tensor]) -> Any:
    """The middle block of a model on what comes into it."""
    names = list(dict.fromkeys(part.block for part in anatomy(model).values()))
    block = model.model.get_submodule(names[len(names) // 2])
    seen: list[Any] = []
    handle = block.register_forward_pre_hook(lambda module, args, kwargs: seen.append((args, kwargs)), with_kwargs=True)
    _run(model, batch)
    handle.remove()
    args, kwargs = seen[0]

    def call() -> None:
        with torch.inference_mode():
            block(*args, **kwargs)

    return call


def search(options: argparse.Namespace) -> list[dict[str, Any]]:
    task = task_named(options.task)
    model = headscope.load(options.model, model_class=task.model_class)
    items = task.items(options.data, "dev:even", limit=options.examples)
    found = []
    for how in ("beam", "greedy", "iterative"):
        prepared = task.prepare(model, items)
        selection = Selection(model, task, prepared, objective=task.objective)  # type: ignore[arg-type]
        ways = {
            "beam": lambda one=selection: searches.beam(one),
            "greedy": lambda one=selection: searches.greedy(one),
            "iterative": lambda one=selection: searches.iterative(one, scores_by(one, "gradient-second"), 0.02),
        }
        begun = time.perf_counter()
        path = []
        for state in ways[how]():
            size = selection.size(state.removed)
            path.append([size, round(selection.goodness(state.outcome), 5), round(selection.spent, 1)])
            if size >= options.heads:
                break
        found.append(
            {
                "benchmark": "prune search",
                "search": how,
                "task": task.name,
                "objective": task.objective,
                "examples": len(prepared.items),
                "path": path,
                "evaluations": round(selection.spent, 1),
                "seconds": round(time.perf_counter() - begun, 1),
            }
        )
    return found


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("speed", "search"))
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--task", default="similarity")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--examples", type=int, default=128)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=12)
    options = parser.parse_args()
    if options.only != "speed" and options.data is None:
        parser.error("--data is needed for the searches")
    return options


if __name__ == "__main__":
    main()
