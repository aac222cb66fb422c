"""A small convolutional network that classifies attention maps, as a second opinion in addition to the rule.

Its input is a map as a picture of 64 x 64 pixels and the columns of special tokens. Its output is one of the five
patterns. It was trained on synthetic maps only (scripts/train_pattern_classifier.py), so it does not depend on the
thresholds of the rule.
Kovaleva et al. 2019 trained theirs, of eight convolutions, on 400 maps labelled by hand, which were not released.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.functional import interpolate

from headscope.model.row_sums import SIDE

PATTERNS = ("vertical", "diagonal", "vertical-diagonal", "block", "heterogeneous")
WEIGHTS = Path(__file__).with_suffix(".safetensors")


def inputs_of(pictures: Tensor, length: int, special: Tensor) -> Tensor:
    """[map, 2, SIDE, SIDE] from pictures [map, SIDE, SIDE] of maps of one length and their special columns [key].

    Scaled so that a row of a picture sums to 1, whatever the length; the root then makes small weights visible.
    """
    area = pictures[:, None].float() * (length / SIDE)
    columns = interpolate(special[None, None].float(), size=SIDE, mode="area")[:, :, None] > 0
    return torch.cat([area.clamp_min(0.0).sqrt(), columns.expand_as(area).float()], dim=1)


class PatternClassifier(nn.Module):
    """Pictures [map, 2, 64, 64] to scores [map, pattern]; 47 thousand parameters."""

    def __init__(self) -> None:
        super().__init__()
        widths = (2, 16, 32, 48, 64)
        layers: list[nn.Module] = []
        for i, (before, after) in enumerate(pairwise(widths)):
            layers += [nn.Conv2d(before, after, 3, stride=2 if i < 3 else 1, padding=1), nn.ReLU()]
        self.see = nn.Sequential(*layers)
        self.name = nn.Linear(2 * widths[-1], len(PATTERNS))

    def forward(self, pictures: Tensor) -> Tensor:
        features = self.see(pictures)
        pooled = torch.cat([features.mean(dim=(2, 3)), features.amax(dim=(2, 3))], dim=1)
        scores: Tensor = self.name(pooled)
        return scores


@cache
def load_classifier() -> PatternClassifier:
    """The network with the weights that come with headscope."""
    # Without initialisation, which would change the state of the caller's random generator.
    with torch.device("meta"):
        classifier = PatternClassifier()
    classifier.load_state_dict(load_file(WEIGHTS), assign=True)
    return classifier.eval().requires_grad_(False)


def classify(pictures: Tensor, length: int, special: Tensor) -> Tensor:
    """[map]: index in PATTERNS of maps of one text, from their pictures [map, SIDE, SIDE] and special columns [key]."""
    with torch.no_grad():
        inputs = inputs_of(pictures.cpu(), length, special.cpu())
        return load_classifier()(inputs).argmax(dim=-1)  # type: ignore[no-any-return]
