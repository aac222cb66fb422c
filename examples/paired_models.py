"""Is one model better at a task than another? The mean difference of their losses on the same examples, paired.

The first model is what the others are compared with. MODEL=MASK puts an attention mask on a model.

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
    given: str, task: str, data: str, split: str, limit: int | None, max_length: int | None
) -> np.ndarray:
    """[example]: the loss of a model, under a mask where one is named behind its name."""
    name, _, mask = given.partition("=")
    chosen = get_task(task)
    reading = headscope.Reading(mask=mask or None)
    model = open_for(chosen, name, reading, headscope.Run())
    prepared = chosen.prepare(model, chosen.items(data, split, limit=limit), max_length=max_length)
    return np.asarray(evaluate(model, chosen, prepared).losses)


def difference(one: np.ndarray, other: np.ndarray) -> tuple[float, float, float]:
    """The mean of other - one over examples, and the ends of its 95 % interval."""
    apart = other - one
    half = 1.96 * float(apart.std(ddof=1)) / len(apart) ** 0.5
    return float(apart.mean()), float(apart.mean()) - half, float(apart.mean()) + half


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
    given = parser.parse_args()
    first, *others = (
        losses_of(model, given.task, given.data, given.split, given.limit, given.max_length)
        for model in given.models
    )
    print(f"{given.models[0]}: loss {first.mean():.4f} over {len(first)} examples")
    for model, losses in zip(given.models[1:], others, strict=True):
        mean, low, high = difference(first, losses)
        print(f"{model}: loss {losses.mean():.4f}, {mean:+.4f} [{low:+.4f}, {high:+.4f}]")


if __name__ == "__main__":
    main()
