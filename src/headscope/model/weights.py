"""Operations on all weights of a model: change their precision, and compute a hash that identifies them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from headscope.model.zoo.wheels import sha256_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from headscope.model.attention_model import AttentionModel


def cast(model: PreTrainedModel, dtype: torch.dtype) -> None:
    """Convert parameters and saved buffers to `dtype`, as `from_pretrained(dtype=…)` does.

    Tensors that the model class keeps in float32 stay so, such as some of T5 in float16. Unlike `model.to(dtype)`, it
    does not convert buffers that are not saved in checkpoints, such as the frequencies of rotary positions.
    """
    plan = model._get_dtype_plan(dtype)  # {part of a parameter's name: its dtype}
    patterns = [(re.compile(rf"(^|\.){re.escape(part)}(\.|$)"), own) for part, own in plan.items()]
    for name, value in model.state_dict(keep_vars=True).items():
        if value.is_floating_point():
            target = next((own for pattern, own in patterns if pattern.search(name)), dtype)
            value.data = value.data.to(target)


@contextmanager
def in_float32(model: nn.Module) -> Iterator[None]:
    """While open, the model computes in float32, because rounding in half precision would hide real differences.

    At the end, the model gets its original tensors back, not copies that were converted twice.
    """
    originals = [(tensor, tensor.data) for tensor in (*model.parameters(), *model.buffers())]
    try:
        for tensor, data in originals:
            if data.is_floating_point() and data.element_size() < 4:
                tensor.data = data.float()
        yield
    finally:
        for tensor, data in originals:
            tensor.data = data


def weights_sha256(model: AttentionModel) -> str:
    """SHA-256 of the weights and, if the model has fixed heads, of their patterns."""
    digest = _tensors_sha256(model)
    if not model.fixed:
        return digest
    patterns = " ".join(f"{head}={name}" for head, name in model.fixed.items())
    return hashlib.sha256(f"{digest} {patterns}".encode()).hexdigest()


def _tensors_sha256(model: AttentionModel) -> str:
    """Hash of the weight file; with several files, of their hashes in order of name; without files, of the tensors."""
    files = sorted(model.path.iterdir()) if model.path else []
    files = [file for file in files if file.suffix in (".safetensors", ".bin")]
    files = [file for file in files if file.suffix == ".safetensors"] or files
    if len(files) == 1:
        return _file_sha256(files[0])
    digest = hashlib.sha256()
    for file in files:
        digest.update(_file_sha256(file).encode())
    if not files:
        for name, tensor in sorted(model.model.state_dict().items()):
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().float().numpy().tobytes())
    return digest.hexdigest()


def _file_sha256(path: Path) -> str:
    """Hash of a file, cached until the file changes, because a search needs it for every candidate."""
    status = path.stat()
    return _cached_sha256(path, status.st_mtime_ns, status.st_size, status.st_ino)


@lru_cache(maxsize=64)
def _cached_sha256(path: Path, modified: int, size: int, inode: int) -> str:
    return sha256_of(path)
