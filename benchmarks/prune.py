"""Head pruning by the clock, and searches at equal numbers of evaluations: JSON lines.

    python benchmarks/prune.py [--only speed|search] [--model minilm] [--task NAME=DATA …] [--heads 12] [--widths 3]

speed   25, 50 and 75 % of the heads of every layer removed, 32 sequences of 128 tokens. The bound comes from single
        blocks: what the model does beside its blocks, and the times of all its blocks with so many heads, each measured
        by itself on what comes into it. Models and blocks are measured in turns; times are those of the fastest
        quarter, the interval is that of the ratios within a turn.
search  what greedy, beam and iterative reach on the examples that they choose on, number of heads by number of heads.
        Greedy comes first: what it has spent is the budget, in evaluations of all examples, of the others. A beam
        that has spent more than that is stopped; --widths 3,6 tries wider ones. Iterative cannot spend it.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

import headscope
from headscope.config.search import BY, EXPANSION, STEP, WIDTH
from headscope.model.anatomy import anatomy
from headscope.model.attention_model import AttentionModel
from headscope.model.latency import (
    fastest_quarter,
    median_interval,
    prune_share,
    sample_batch,
    time_interleaved,
    timed_forward,
)
from headscope.pruning.scores import scores_by
from headscope.pruning.searches.beam import beam
from headscope.pruning.searches.greedy import greedy
from headscope.pruning.searches.iterative import iterative
from headscope.pruning.subset_evaluator import EvaluationOptions, SubsetEvaluator, SubsetState
from headscope.tasks import get_task

SHARES = (1.0, 0.75, 0.5, 0.25)
Row = dict[str, Any]


def main() -> None:
    options = _options()
    if options.only in (None, "speed"):
        print(json.dumps(speed(options)), flush=True)
    if options.only in (None, "search"):
        for named in options.task:
            for row in search(options, *named.split("=", 1)):
                print(json.dumps(row), flush=True)


# Speed


def speed(options: argparse.Namespace) -> Row:
    model = headscope.load(options.model)
    models = [prune_share(model, share) for share in SHARES]
    batch = sample_batch(model, options.batch_size, options.length)
    blocks = [_block_calls(one, batch) for one in models]
    runs = [timed_forward(one, batch) for one in models] + [
        call for calls in blocks for call in calls
    ]
    times = time_interleaved(runs, options.repeats, lambda done, total: None)  # [turn, run]
    whole, of_blocks = _parted(fastest_quarter(times)[None], len(blocks[0]))
    measured, bound = _gained(whole, of_blocks)
    each, bound_of_each = _gained(*_parted(times, len(blocks[0])))
    return {
        "benchmark": "prune speed",
        "batch": [options.batch_size, options.length],
        "threads": torch.get_num_threads(),
        "heads_left": SHARES,
        "blocks": len(blocks[0]),
        "milliseconds": np.round(1e3 * whole[0], 1).tolist(),
        "milliseconds_of_all_blocks": np.round(1e3 * of_blocks[0], 1).tolist(),
        "speed_up": np.round(measured[0], 3).tolist(),
        "bound": np.round(bound[0], 3).tolist(),
        "of_the_bound": np.round((measured / bound)[0], 3).tolist(),
        "interval": [
            np.round(median_interval(ratio)[1:], 3).tolist() for ratio in (each / bound_of_each).T
        ],
        "goal": 0.9,
    }


def _parted(times: np.ndarray, blocks: int) -> tuple[np.ndarray, np.ndarray]:
    """[turn, share] of whole models and [turn, share] of all their blocks, of [turn, run]."""
    whole, single = times[:, : len(SHARES)], times[:, len(SHARES) :]
    return whole, single.reshape(len(times), len(SHARES), blocks).sum(axis=2)


def _gained(whole: np.ndarray, of_blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[turn, share]: how many times as fast a model is, and would be if only its blocks had changed."""
    return whole[:, :1] / whole, whole[:, :1] / (whole[:, :1] - of_blocks[:, :1] + of_blocks)


def _block_calls(model: AttentionModel, batch: dict[str, torch.Tensor]) -> list[Callable[[], None]]:
    """Every call of a block in one forward pass, to be made again by itself."""
    seen: list[tuple[torch.nn.Module, Any, Any]] = []
    names = dict.fromkeys(part.block for part in anatomy(model).values())
    handles = [
        model.model.get_submodule(name).register_forward_pre_hook(
            lambda module, args, kwargs: seen.append((module, args, kwargs)), with_kwargs=True
        )
        for name in names
    ]
    timed_forward(model, batch)()
    for handle in handles:
        handle.remove()

    def again(block: torch.nn.Module, args: Any, kwargs: Any) -> Callable[[], None]:
        def call() -> None:
            with torch.inference_mode():
                block(*args, **kwargs)

        return call

    return [again(*one) for one in seen]


# Search


def search(options: argparse.Namespace, name: str, data: str) -> Iterator[Row]:
    """A line for every search of one task, greedy first, and a line that compares them."""
    task = get_task(name)
    model = headscope.load(options.model, model_class=task.model_class)
    prepared = task.prepare(model, task.items(data, options.split, limit=options.examples))
    ways: dict[str, Callable[[SubsetEvaluator], Iterator[SubsetState]]] = {
        "greedy": greedy,
        **{f"beam {width}": _beam(width) for width in options.widths},
        "iterative": lambda one: iterative(one, scores_by(one, BY), STEP),
    }
    found: dict[str, Row] = {}
    for how, way in ways.items():
        chosen = EvaluationOptions(task.objective)  # type: ignore[arg-type]
        selection = SubsetEvaluator(model, task, prepared, chosen)
        begun = time.perf_counter()
        budget = found["greedy"]["spent"][-1] if found else np.inf
        path = _followed(selection, way(selection), options.heads, budget)
        found[how] = {"search": how, **path, "seconds": round(time.perf_counter() - begun, 1)}
        yield {"benchmark": "prune search", "task": name, "objective": task.objective, **found[how]}
    yield {
        "benchmark": "prune search at equal budgets",
        "task": name,
        "examples": len(prepared.items),
        "metric": task.metrics[0],
        **{how: _against(found["greedy"], found[how]) for how in ways if how != "greedy"},
    }


def _beam(width: int) -> Callable[[SubsetEvaluator], Iterator[SubsetState]]:
    """As wide as asked for, with as many candidates for each place as by default."""
    expansion = round(width * EXPANSION / WIDTH)
    return lambda selection: beam(selection, width, expansion)


def _followed(
    selection: SubsetEvaluator, path: Iterator[SubsetState], heads: int, budget: float
) -> Row:
    """Size by size: the objective (lower is better), the metric, and the evaluations so far; within the budget."""
    found: Row = {"heads": [], "reached": [], "metric": [], "spent": []}
    for state in path:
        if selection.spent > budget:
            break
        found["heads"].append(selection.size(state.removed))
        found["reached"].append(selection.cost(state.outcome))
        found["metric"].append(state.outcome.metric)
        found["spent"].append(round(selection.spent, 1))
        if found["heads"][-1] >= heads:
            break
    return found


def _against(greedy: Row, other: Row) -> Row:
    """At every number of heads that both came to: is it as good as greedy, and for no more evaluations?"""
    both = [
        (greedy["heads"].index(size), place)
        for place, size in enumerate(other["heads"])
        if size in greedy["heads"]
    ]
    return {
        "heads": [other["heads"][there] for _, there in both],
        "better_by": [
            round(greedy["reached"][here] - other["reached"][there], 6) for here, there in both
        ],
        "never_worse": all(
            other["reached"][there] <= greedy["reached"][here] + 1e-9 for here, there in both
        ),
        "within_budget": all(
            other["spent"][there] <= greedy["spent"][here] for here, there in both
        ),
        "spent": [other["spent"][-1], greedy["spent"][-1]],
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=("speed", "search"))
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--task", action="append", default=[], metavar="NAME=DATA")
    parser.add_argument("--split", default="dev:half-a")
    parser.add_argument("--examples", type=int, default=128)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument(
        "--widths",
        type=lambda said: [int(one) for one in said.split(",")],
        default=[WIDTH],
    )
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=12)
    options = parser.parse_args()
    if options.only != "speed" and not options.task:
        parser.error("the searches need a task: --task similarity=stsb_dev.tsv")
    if any("=" not in named for named in options.task):
        parser.error("--task wants NAME=DATA, as similarity=stsb_dev.tsv")
    return options


if __name__ == "__main__":
    main()
