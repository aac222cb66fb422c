"""Is one model better at a task than another? The mean difference of their losses on the same examples, paired.

All other models are compared with the first. MODEL=MASK applies an attention mask to a model.

    python examples/paired_models.py small-dense small-no-diagonal=no-diagonal --task masked --data wiki-test.txt.gz
"""

from __future__ import annotations

import argparse

import numpy as np

import headscope
from headscope.ablation.evaluate import open_for
from headscope.tasks import get_task
from headscope.tasks.inference import evaluate


def losses_of(
    model_and_mask: str, task: str, data: str, split: str, limit: int | None, max_length: int | None
) -> np.ndarray:
    """[example]: the loss of a model. model_and_mask: MODEL or MODEL=MASK."""
    name, _, mask = model_and_mask.partition("=")
    chosen = get_task(task)
    reading = headscope.Reading(mask=mask or None)
    model = open_for(chosen, name, reading, headscope.Run())
    prepared = chosen.prepare(model, chosen.items(data, split, limit=limit), max_length=max_length)
    return np.asarray(evaluate(model, chosen, prepared).losses)


def difference(first: np.ndarray, other: np.ndarray) -> tuple[float, float, float]:
    """The mean of other − first over examples, and the ends of its 95 % interval."""
    changes = other - first
    mean, half = float(changes.mean()), 1.96 * float(changes.std(ddof=1)) / len(changes) ** 0.5
    return mean, mean - half, mean + half


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="+", metavar="MODEL[=MASK]")
    parser.add_argument("--task", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--split", default="dev")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--max-length", type=int)
    options = parser.parse_args()
    first, *others = (
        losses_of(
            model, options.task, options.data, options.split, options.limit, options.max_length
        )
        for model in options.models
    )
    print(f"{options.models[0]}: loss {first.mean():.4f} over {len(first)} examples")
    for model, losses in zip(options.models[1:], others, strict=True):
        mean, low, high = difference(first, losses)
        print(f"{model}: loss {losses.mean():.4f}, {mean:+.4f} [{low:+.4f}, {high:+.4f}]")


if __name__ == "__main__":
    main()
