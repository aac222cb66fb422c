"""What made a study: enough to make it again, and to see whether it is the same."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from headscope.data.bundled import named
from headscope.data.lines import can_be_read_again
from headscope.model.attention_model import AttentionModel
from headscope.model.surgery import removed_heads
from headscope.model.weights import weights_sha256
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
    heads = {stack: max((h.head + 1 for h in model.heads if h.stack == stack), default=0) for stack in stacks}
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
        **({} if model.cut is None else {"cut": str(removed_heads(model)), "cut_from": model.cut.origin.sha256}),
        **({"fixed": {str(head): name for head, name in model.fixed.items()}} if model.fixed else {}),
        "notes": list(model.notes),
        "edits": [repr(edit) for edit in model.edits],
    }


def describe_files(paths: Iterable[str | Path]) -> list[dict[str, str]]:
    """Path and digest of each; of a stream (stdin, a pipe) only its name, since its text is gone."""
    return [
        {"path": str(path)} | ({"sha256": sha256_of(Path(named(path)))} if can_be_read_again(named(path)) else {})
        for path in paths
    ]
