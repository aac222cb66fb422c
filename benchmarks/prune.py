"""Speed of pruned models, and comparison of searches at equal numbers of evaluations. Prints JSON lines.

    python benchmarks/prune.py [--only speed|search] [--model minilm] [--task NAME=DATA …] [--heads 12] [--widths 3]

speed   Models with 25, 50 and 75 % of the heads of every layer removed, on 32 sequences of 128 tokens. The bound on the
        speed-up is computed from single blocks: the time of the model outside its blocks, plus the times of its blocks
        with the remaining heads, each measured separately on its own input. Models and blocks are measured in turns.
        Times are means of the fastest quarter; intervals are of the ratios within a turn.
search  The objective that greedy, beam and iterative search reach on the selection examples, by number of removed
        heads. Greedy search runs first; the number of evaluations that it takes is the budget of the others. A beam
        that exceeds the budget is stopped; --widths 3,6 tries several widths. Iterative search stays below the budget.
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
    blocks = [_block_calls(pruned, batch) for pruned in models]
    runs = [timed_forward(pruned, batch) for pruned in models] + [
        call for calls in blocks for call in calls
    ]
    times = time_interleaved(runs, options.repeats, lambda done, total: None)  # [turn, run]
    of_models, of_blocks = _split_times(fastest_quarter(times)[None], len(blocks[0]))
    measured, bound = _speed_ups(of_models, of_blocks)
    each, bound_of_each = _speed_ups(*_split_times(times, len(blocks[0])))
    return {
        "benchmark": "prune speed",
        "batch": [options.batch_size, options.length],
        "threads": torch.get_num_threads(),
        "heads_left": SHARES,
        "blocks": len(blocks[0]),
        "milliseconds": np.round(1e3 * of_models[0], 1).tolist(),
        "milliseconds_of_all_blocks": np.round(1e3 * of_blocks[0], 1).tolist(),
        "speed_up": np.round(measured[0], 3).tolist(),
        "bound": np.round(bound[0], 3).tolist(),
        "of_the_bound": np.round((measured / bound)[0], 3).tolist(),
        "interval": [
            np.round(median_interval(ratio)[1:], 3).tolist() for ratio in (each / bound_of_each).T
        ],
        "goal": 0.9,
    }


def _split_times(times: np.ndarray, blocks: int) -> tuple[np.ndarray, np.ndarray]:
    """Times [turn, run] as times of models [turn, share] and summed times of their blocks [turn, share]."""
    of_models, single = times[:, : len(SHARES)], times[:, len(SHARES) :]
    return of_models, single.reshape(len(times), len(SHARES), blocks).sum(axis=2)


def _speed_ups(of_models: np.ndarray, of_blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[turn, share]: the measured speed-up, and the speed-up if only the time of the blocks had changed."""
    unpruned = of_models[:, :1]
    return unpruned / of_models, unpruned / (unpruned - of_blocks[:, :1] + of_blocks)


def _block_calls(model: AttentionModel, batch: dict[str, torch.Tensor]) -> list[Callable[[], None]]:
    """Functions that repeat every call of a block in one forward pass."""
    calls: list[tuple[torch.nn.Module, Any, Any]] = []
    names = dict.fromkeys(part.block for part in anatomy(model).values())
    handles = [
        model.model.get_submodule(name).register_forward_pre_hook(
            lambda module, args, kwargs: calls.append((module, args, kwargs)), with_kwargs=True
        )
        for name in names
    ]
    timed_forward(model, batch)()
    for handle in handles:
        handle.remove()

    def repeat(block: torch.nn.Module, args: Any, kwargs: Any) -> Callable[[], None]:
        def run() -> None:
            with torch.inference_mode():
                block(*args, **kwargs)

        return run

    return [repeat(*call) for call in calls]


# Search


def search(options: argparse.Namespace, name: str, data: str) -> Iterator[Row]:
    """A line for every search of one task, greedy first, and a line that compares them."""
    task = get_task(name)
    model = headscope.load(options.model, model_class=task.model_class)
    prepared = task.prepare(model, task.items(data, options.split, limit=options.examples))
    searches: dict[str, Callable[[SubsetEvaluator], Iterator[SubsetState]]] = {
        "greedy": greedy,
        **{f"beam {width}": _beam(width) for width in options.widths},
        "iterative": lambda selection: iterative(selection, scores_by(selection, BY), STEP),
    }
    results: dict[str, Row] = {}
    for method, make_path in searches.items():
        evaluation = EvaluationOptions(task.objective)  # type: ignore[arg-type]
        selection = SubsetEvaluator(model, task, prepared, evaluation)
        start = time.perf_counter()
        budget = results["greedy"]["spent"][-1] if results else np.inf
        path = _follow(selection, make_path(selection), options.heads, budget)
        seconds = round(time.perf_counter() - start, 1)
        results[method] = {"search": method, **path, "seconds": seconds}
        described = {"task": name, "objective": task.objective}
        yield {"benchmark": "prune search", **described, **results[method]}
    yield {
        "benchmark": "prune search at equal budgets",
        "task": name,
        "examples": len(prepared.items),
        "metric": task.metrics[0],
        **{
            method: _compare(results["greedy"], results[method])
            for method in searches
            if method != "greedy"
        },
    }


def _beam(width: int) -> Callable[[SubsetEvaluator], Iterator[SubsetState]]:
    """A beam search of this width, with the default number of candidates for each set of the beam."""
    expansion = round(width * EXPANSION / WIDTH)
    return lambda selection: beam(selection, width, expansion)


def _follow(
    selection: SubsetEvaluator, path: Iterator[SubsetState], heads: int, budget: float
) -> Row:
    """By number of removed heads: objective (lower is better), metric, and evaluations so far, within the budget."""
    result: Row = {"heads": [], "reached": [], "metric": [], "spent": []}
    for state in path:
        if selection.spent > budget:
            break
        result["heads"].append(selection.size(state.removed))
        result["reached"].append(selection.cost(state.outcome))
        result["metric"].append(state.outcome.metric)
        result["spent"].append(round(selection.spent, 1))
        if result["heads"][-1] >= heads:
            break
    return result


def _compare(greedy: Row, other: Row) -> Row:
    """Differences to greedy search at every number of heads that both reached, and whether the budget was kept."""
    both = [
        (greedy["heads"].index(size), index)
        for index, size in enumerate(other["heads"])
        if size in greedy["heads"]
    ]
    return {
        "heads": [other["heads"][j] for _, j in both],
        "better_by": [round(greedy["reached"][i] - other["reached"][j], 6) for i, j in both],
        "never_worse": all(other["reached"][j] <= greedy["reached"][i] + 1e-9 for i, j in both),
        "within_budget": all(other["spent"][j] <= greedy["spent"][i] for i, j in both),
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
        type=lambda text: [int(width) for width in text.split(",")],
        default=[WIDTH],
    )
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=12)
    options = parser.parse_args()
    if options.only != "speed" and not options.task:
        parser.error("search requires --task, such as --task similarity=stsb_dev.tsv")
    if any("=" not in named for named in options.task):
        parser.error("--task must be NAME=DATA, such as similarity=stsb_dev.tsv")
    return options


if __name__ == "__main__":
    main()
