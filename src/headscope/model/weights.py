"""The weights of a model as a whole: their precision, and a hash that identifies them."""

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
    """Convert parameters and saved buffers to `dtype`, except those the family keeps in float32 (T5's in float16).

    Like `from_pretrained`, and unlike `model.to(dtype)`, it leaves buffers alone that are in no checkpoint, such as the
    frequencies of rotary positions.
    """
    plan = model._get_dtype_plan(dtype)
    patterns = [(re.compile(rf"(^|\.){re.escape(part)}(\.|$)"), own) for part, own in plan.items()]
    for name, value in model.state_dict(keep_vars=True).items():
        if value.is_floating_point():
            own = next((own for pattern, own in patterns if pattern.search(name)), dtype)
            value.data = value.data.to(own)


@contextmanager
def in_float32(model: nn.Module) -> Iterator[None]:
    """Compute in float32 while this is open: rounding in half precision would hide real differences.

    On leaving, the model has its original tensors again, not copies that were converted twice.
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
    """SHA-256 of the tensors and, if there are any, of the fixed patterns of heads."""
    digest = _tensors_sha256(model)
    if not model.fixed:
        return digest
    patterns = " ".join(f"{head}={name}" for head, name in model.fixed.items())
    return hashlib.sha256(f"{digest} {patterns}".encode()).hexdigest()


def _tensors_sha256(model: AttentionModel) -> str:
    """Hash of the weight file, of the hashes of several files in order of name, or of a live model's tensors."""
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
    """Hash a file once for as long as it does not change: a search asks for the hash of every candidate."""
    status = path.stat()
    return _cached_sha256(path, status.st_mtime_ns, status.st_size, status.st_ino)


@lru_cache(maxsize=64)
def _cached_sha256(path: Path, modified: int, size: int, inode: int) -> str:
    return sha256_of(path)
