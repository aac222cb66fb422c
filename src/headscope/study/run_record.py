"""What made a study: enough to make it again, and to see whether it is the same."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headscope.data.bundled import named
from headscope.data.text_lines import can_be_read_again
from headscope.errors import HeadscopeError
from headscope.model.attention_model import AttentionModel
from headscope.model.natural_language import is_natural_language
from headscope.model.surgery import removed_heads
from headscope.model.weights_hash import weights_sha256
from headscope.model.zoo.wheels import sha256_of

if TYPE_CHECKING:
    from headscope.study.study import Study


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
    heads = {
        stack: max((h.head + 1 for h in model.heads if h.stack == stack), default=0)
        for stack in stacks
    }
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
        **({"shared_layers": shared} if (shared := model.shared_layers) else {}),
        **_vocabulary(model),
        **(
            {}
            if model.cut is None
            else {"cut": str(removed_heads(model)), "cut_from": model.cut.origin.sha256}
        ),
        **(
            {"fixed": {str(head): name for head, name in model.fixed.items()}}
            if model.fixed
            else {}
        ),
        "reading": model.reading.record(),
        "notes": list(model.notes),
        "edits": [repr(edit) for edit in model.edits],
    }


def _vocabulary(model: AttentionModel) -> dict[str, bool]:
    """Whether its tokens are words of a natural language, where it has a tokenizer."""
    tokenizer = model.tokenizer
    if tokenizer is None:
        return {}
    tokens = [
        token
        for token, token_id in tokenizer.get_vocab().items()
        if token_id not in model.marks.special
    ]
    return {"natural_language": is_natural_language(tokens)}


def describe_files(paths: Iterable[str | Path]) -> list[dict[str, str]]:
    """Path and digest of each; of a stream (stdin, a pipe) only its name, since its text is gone."""
    return [
        {"path": str(path)}
        | ({"sha256": sha256_of(Path(named(path)))} if can_be_read_again(named(path)) else {})
        for path in paths
    ]


@cache
def code_of(*rooms: str) -> str:
    """Of the source that the numbers follow from."""
    digest = hashlib.sha256()
    package = Path(__file__).parents[1]
    for room in rooms:
        for file in sorted((package / room).rglob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()


def check_same_model(model: AttentionModel, study: Study, where: str | Path) -> None:
    """Refuse to add to the study of another model."""
    there, here = str(study.record.get("model", {}).get("sha256", "none")), weights_sha256(model)
    if there != here:
        raise HeadscopeError(
            f"this is the study of another model (sha256 {there[:8]}… there, {here[:8]}… here)",
            where=where,
            expected="a study of the same weights",
            mend="Choose another `out`",
        )
