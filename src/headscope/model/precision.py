"""Models in other precisions, as transformers loads them: what a model computes for itself stays as it is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from transformers import PreTrainedModel


def cast(model: PreTrainedModel, dtype: torch.dtype) -> None:
    """Parameters and saved buffers in that precision, but for those the family keeps in single (T5's in float16).

    Unlike `model.to(dtype)` this leaves alone what is in no checkpoint, such as the frequencies of rotary positions.
    """
    kept = model._get_dtype_plan(dtype)
    for name, value in model.state_dict(keep_vars=True).items():
        if value.is_floating_point():
            wanted = (
                one
                for part, one in kept.items()
                if re.search(rf"(^|\.){re.escape(part)}(\.|$)", name)
            )
            value.data = value.data.to(next(wanted, dtype))


@contextmanager
def in_single(model: nn.Module) -> Iterator[None]:
    """In half precision nothing can be proven: for a while in single, then with the very tensors that were there."""
    held = [(one, one.data) for one in (*model.parameters(), *model.buffers())]
    try:
        for one, data in held:
            if data.is_floating_point() and data.element_size() < 4:
                one.data = data.float()
        yield
    finally:
        for one, data in held:
            one.data = data
