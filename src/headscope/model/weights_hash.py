"""Which weights are these?"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from headscope.model.zoo.wheels import sha256_of

if TYPE_CHECKING:
    from headscope.model.attention_model import AttentionModel


def weights_sha256(model: AttentionModel) -> str:
    """Which model this is: its tensors and, where heads attend by fixed patterns, which."""
    found = _of_tensors(model)
    if not model.fixed:
        return found
    told = " ".join(f"{head}={name}" for head, name in model.fixed.items())
    return hashlib.sha256(f"{found} {told}".encode()).hexdigest()


def _of_tensors(model: AttentionModel) -> str:
    """Of the weight files (several: of their digests in order of name), or of a live model's tensors."""
    digest = hashlib.sha256()
    files = (
        sorted(p for p in model.path.iterdir() if p.suffix in (".safetensors", ".bin"))
        if model.path
        else []
    )
    safe = [p for p in files if p.suffix == ".safetensors"] or files
    if len(safe) == 1:
        return _of_file(safe[0])
    for path in safe:
        digest.update(_of_file(path).encode())
    if not safe:
        for name, tensor in sorted(model.model.state_dict().items()):
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().float().numpy().tobytes())
    return digest.hexdigest()


def _of_file(path: Path) -> str:
    """Read once as long as the file is the same: a search asks for every set it tries."""
    now = path.stat()
    return _digest(path, now.st_mtime_ns, now.st_size, now.st_ino)


@lru_cache(maxsize=64)
def _digest(path: Path, changed: int, size: int, number: int) -> str:
    return sha256_of(path)
