"""What made a study: enough to make it again, and to see whether it is the same."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from headscope.data.bundled import named
from headscope.data.text_lines import can_be_read_again
from headscope.errors import HeadscopeError
from headscope.model.attention_model import AttentionModel
from headscope.model.natural_language import is_natural_language
from headscope.model.surgery import removed_heads
from headscope.model.weights_hash import weights_sha256
from headscope.model.zoo.wheels import sha256_of
from headscope.study.schema.record import SCHEMA, FileRecord, ModelRecord, RunRecord

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

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


def build_record(
    model: AttentionModel | ModelRecord,
    sections: RunRecord,
    *,
    command: str | None = None,
    seed: int | None = None,
    lens: str | None = "raw",
) -> RunRecord:
    """The run record of a study of this model.

    sections  what the command adds
    """
    described = describe_model(model) if isinstance(model, AttentionModel) else model
    record: RunRecord = {"schema": SCHEMA, "versions": versions(), "model": described}
    if command is not None:
        record["command"] = command
    if seed is not None:
        record["seed"] = seed
    if lens is not None:
        record["lens"] = lens
    record.update(sections)
    return record


def describe_model(model: AttentionModel) -> ModelRecord:
    stacks = dict.fromkeys(site.stack for site in model.sites)
    layers = {stack: sum(site.stack == stack for site in model.sites) for stack in stacks}
    heads = {
        stack: max((h.head + 1 for h in model.heads if h.stack == stack), default=0)
        for stack in stacks
    }
    record: ModelRecord = {
        "name": model.name,
        "revision": model.revision,
        "class": type(model.model).__name__,
        "family": model.model.config.model_type,
        "sha256": weights_sha256(model),
        "dtype": str(model.model.dtype).removeprefix("torch."),
        "device": str(model.device),
        "layers": layers,
        "heads": heads,
        "reading": model.reading.record(),
        "notes": list(model.notes),
        "edits": [edit.record().as_json() for edit in model.edits],
    }
    if shared := model.shared_layers:
        record["shared_layers"] = shared
    if model.tokenizer is not None:
        record["natural_language"] = _has_natural_language(model, model.tokenizer)
    if model.cut is not None:
        record["cut"] = str(removed_heads(model))
        record["cut_from"] = model.cut.origin.sha256
    if model.fixed:
        record["fixed"] = {str(head): name for head, name in model.fixed.items()}
    return record


def _has_natural_language(model: AttentionModel, tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether the tokens are words of a natural language."""
    tokens = [
        token
        for token, token_id in tokenizer.get_vocab().items()
        if token_id not in model.marks.special
    ]
    return is_natural_language(tokens)


def describe_files(paths: Iterable[str | Path]) -> list[FileRecord]:
    """Path and digest of each; of a stream (stdin, a pipe) only its name, since its text is gone."""
    return [_describe_file(path) for path in paths]


def _describe_file(path: str | Path) -> FileRecord:
    if not can_be_read_again(named(path)):
        return {"path": str(path)}
    return {"path": str(path), "sha256": sha256_of(Path(named(path)))}


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
