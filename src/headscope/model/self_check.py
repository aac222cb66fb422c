"""The self-check of a loaded model: observing it must not change its outputs, and ablating heads must change them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import torch

from headscope.errors import HeadscopeError
from headscope.heads import Site
from headscope.model.attention import Attention
from headscope.model.edits import Ablate
from headscope.model.sample_inputs import main_output, sample_inputs

if TYPE_CHECKING:
    from headscope.model.attention_model import AttentionModel

# The largest allowed difference, relative to the largest output. Observed calls run another kernel than SDPA. In
# float32 the two differ by about 1e-6, in half precision by a few rounding errors of the dtype.
TOLERANCE = 1e-4
ROUNDING_ERRORS = 32  # in half precision


def self_check(model: AttentionModel) -> float:
    """The largest difference between observed and plain outputs on a small padded batch, relative to the largest one.

    Raises if the difference is too large, if a site was not observed, or if ablating all heads does not change the
    outputs.
    """
    inputs = sample_inputs(model, batch=2)
    sequences: Counter[Site] = Counter()

    def count(attention: Attention) -> None:
        sequences[attention.site] += attention.weights.shape[0]

    with torch.inference_mode(), model.suspend_hooks():
        plain = main_output(model, inputs)
        with model.watched(count):
            observed = main_output(model, inputs)
        with model.edited(Ablate(model.heads)):
            ablated = main_output(model, inputs)
    difference = float((observed - plain).abs().max() / plain.abs().max().clamp_min(1e-12))
    tolerance = max(TOLERANCE, ROUNDING_ERRORS * torch.finfo(model.model.dtype).eps)
    missing = [site for site in model.sites if site.numbers and sequences[site] != 2]
    has_no_effect = torch.equal(plain, ablated)
    if missing or has_no_effect or not difference < tolerance:  # NaN must fail as well
        raise HeadscopeError(
            f"self-check failed: observing changes the outputs by {difference:.1e} of their size, "
            f"{len(missing)} sites were not observed, ablating all heads changes "
            f"{'nothing' if has_no_effect else 'something'}",
            where=model.name,
            fix="Numbers from this model would be wrong; run headscope doctor and report it",
        )
    return difference
