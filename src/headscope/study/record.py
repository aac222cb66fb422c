"""What made a study: enough to make it again, and to see whether it is the same."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from headscope.data.bundled import named
from headscope.data.lines import can_be_read_again
from headscope.model.attention_model import AttentionModel
from headscope.model.zoo.wheels import sha256_of


def versions() -> dict[str, str]:
    import torch
    import transformers

    import headscope

    return {
        "headscope": headscope.__version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
    }


def describe_model(model: AttentionModel) -> dict[str, Any]:
    stacks = dict.fromkeys(site.stack for site in model.sites)
    layers = {stack: sum(site.stack == stack for site in model.sites) for stack in stacks}
    heads = {stack: max(head.head + 1 for head in model.heads if head.stack == stack) for stack in stacks}
    return {
        "name": model.name,
        "revision": model.revision,
        "class": type(model.model).__name__,
        "family": model.model.config.model_type,
        "sha256": weights_sha256(model),
        "dtype": str(model.model.dtype).removeprefix("torch."),
        "device": str(model.device),
        "layers": layers,
        "heads": heads,
        "notes": list(model.notes),
        "edits": [repr(edit) for edit in model.edits],
    }


def weights_sha256(model: AttentionModel) -> str:
    """Of the weight files (several: of their digests in order of name), or of a live model's tensors."""
    digest = hashlib.sha256()
    files = sorted(p for p in model.path.iterdir() if p.suffix in (".safetensors", ".bin")) if model.path else []
    safe = [p for p in files if p.suffix == ".safetensors"] or files
    if len(safe) == 1:
        return sha256_of(safe[0])
    for path in safe:
        digest.update(sha256_of(path).encode())
    if not safe:
        for name, tensor in sorted(model.model.state_dict().items()):
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().float().numpy().tobytes())
    return digest.hexdigest()


def describe_files(paths: Iterable[str | Path]) -> list[dict[str, str]]:
    """Path and digest of each; of a stream (stdin, a pipe) only its name, since its text is gone."""
    return [
        {"path": str(path)} | ({"sha256": sha256_of(Path(named(path)))} if can_be_read_again(named(path)) else {})
        for path in paths
    ]
