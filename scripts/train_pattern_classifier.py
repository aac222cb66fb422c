"""Train the classifier of attention patterns, and print its accuracy on held-out maps.

    python scripts/train_pattern_classifier.py            # a few minutes on one core; overwrites the shipped weights

The same seed gives the same maps, and the same weights on machines of the same type.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.functional import cross_entropy

from headscope.model.row_sums import picture
from headscope.statistics.pattern_classifier import PATTERNS, WEIGHTS, PatternClassifier, inputs_of

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from planted_maps import planted_maps

BATCH = 128


def make_maps(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Pictures of planted maps [map, 2, 64, 64] in half precision, and their labels [map]."""
    pictures, labels = [], []
    for planted in planted_maps(count, seed):
        special = torch.from_numpy(planted.special)
        of_map = picture(torch.from_numpy(planted.weights))[None]
        pictures.append(inputs_of(of_map, len(special), special).half())
        labels.append(PATTERNS.index(planted.label))
    return torch.cat(pictures), torch.tensor(labels)


def train(
    classifier: PatternClassifier, pictures: Tensor, labels: Tensor, epochs: int, seed: int
) -> None:
    order = torch.Generator().manual_seed(seed)
    steps = epochs * -(-len(pictures) // BATCH)
    optimizer = torch.optim.AdamW(classifier.parameters(), lr=2e-3, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=4e-3, total_steps=steps)
    for epoch in range(epochs):
        total = 0.0
        for chosen in torch.randperm(len(pictures), generator=order).split(BATCH):
            loss = cross_entropy(
                classifier(pictures[chosen].float()), labels[chosen], label_smoothing=0.02
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += float(loss.detach()) * len(chosen)
        print(f"epoch {epoch + 1} of {epochs}: loss {total / len(pictures):.4f}", flush=True)


@torch.no_grad()
def confusion(classifier: PatternClassifier, pictures: Tensor, labels: Tensor) -> Tensor:
    """[planted, predicted]: the number of maps."""
    predicted = torch.cat(
        [classifier(part.float()).argmax(dim=-1) for part in pictures.split(BATCH)]
    )
    return torch.bincount(labels * len(PATTERNS) + predicted, minlength=len(PATTERNS) ** 2).view(
        len(PATTERNS), -1
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--count", type=int, default=10_000, help="number of planted maps to train on"
    )
    parser.add_argument(
        "--held-out", type=int, default=2_500, help="number of other planted maps to evaluate on"
    )
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=WEIGHTS)
    options = parser.parse_args()
    torch.set_num_threads(1)  # fixes the order of sums, and so the result
    torch.manual_seed(options.seed)
    classifier = PatternClassifier()
    train(classifier, *make_maps(options.count, options.seed), options.epochs, options.seed)
    classifier.eval()
    table = confusion(classifier, *make_maps(options.held_out, options.seed + 1))
    print("planted \\ predicted".ljust(20), *(name.rjust(18) for name in PATTERNS))
    for name, counts in zip(PATTERNS, table.tolist(), strict=True):
        print(name.ljust(20), *(str(count).rjust(18) for count in counts))
    print(f"correct: {int(table.diagonal().sum())} of {int(table.sum())}")
    save_file(
        {name: tensor.contiguous() for name, tensor in classifier.state_dict().items()}, options.out
    )


if __name__ == "__main__":
    main()
