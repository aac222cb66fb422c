"""Sections of the run record: versions, model and files, by which a run can be repeated and compared."""

from __future__ import annotations

import hashlib
import platform
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, cast

from headscope.data.bundled import source_path
from headscope.data.text_lines import can_be_read_again
from headscope.errors import HeadscopeError
from headscope.model.attention_model import AttentionModel
from headscope.model.natural_language import is_natural_language
from headscope.model.surgery import removed_heads
from headscope.model.weights import weights_sha256
from headscope.model.zoo.wheels import sha256_of
from headscope.study.schema.record import SCHEMA, FileRecord, ModelRecord, RunRecord

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


def build_record(
    model: AttentionModel | ModelRecord,
    sections: RunRecord,
    *,
    command: str | None = None,
    seed: int | None = None,
    lens: str | None = "raw",
) -> RunRecord:
    """The run record of a study of this model. sections: those of the command."""
    described = describe_model(model) if isinstance(model, AttentionModel) else model
    record: RunRecord = {"schema": SCHEMA, "versions": versions(), "model": described}
    options = {"command": command, "seed": seed, "lens": lens}
    present = {name: value for name, value in options.items() if value is not None}
    return cast("RunRecord", {**record, **present, **sections})


def describe_model(model: AttentionModel) -> ModelRecord:
    layers = dict(Counter(site.stack for site in model.sites))
    heads = dict.fromkeys(layers, 0)
    for head in model.heads:
        heads[head.stack] = max(heads[head.stack], head.head + 1)
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
        vocabulary = model.tokenizer.get_vocab().items()
        words = [token for token, number in vocabulary if number not in model.marks.special]
        record["natural_language"] = is_natural_language(words)
    if model.cut is not None:
        record["cut"] = str(removed_heads(model))
        record["cut_from"] = model.cut.origin.sha256
    if model.fixed:
        record["fixed"] = {str(head): name for head, name in model.fixed.items()}
    return record


def describe_files(paths: Iterable[str | Path]) -> list[FileRecord]:
    """Path and digest of each file; only the path of a stream (stdin, a pipe), which cannot be read again."""
    return [_describe_file(path) for path in paths]


def _describe_file(path: str | Path) -> FileRecord:
    source = source_path(path)
    if not can_be_read_again(source):
        return {"path": str(path)}
    return {"path": str(path), "sha256": sha256_of(Path(source))}


@cache
def hash_code(*packages: str) -> str:
    """Digest of the source of these packages, which determines the numbers."""
    digest = hashlib.sha256()
    root = Path(__file__).parents[1]
    for package in packages:
        for file in sorted((root / package).rglob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()


def resume_header(
    model: ModelRecord, packages: Iterable[str], **facts: object
) -> dict[str, object]:
    """What must be equal for a run to be resumed. packages: whose source determines the numbers."""
    parts = {name: model[name] for name in ("dtype", "device", "edits", "reading")}
    return {
        "model": model["sha256"],
        **parts,
        "code": hash_code(*packages),
        **facts,
        "versions": {name: version for name, version in versions().items() if name != "python"},
    }


def check_same_model(model: AttentionModel, study: Study, where: str | Path) -> None:
    """Refuse to add to the study of another model."""
    expected, sha256 = (
        str(study.record.get("model", {}).get("sha256", "none")),
        weights_sha256(model),
    )
    if sha256 != expected:
        raise HeadscopeError(
            f"the model must be that of the study (sha256 {expected[:8]}…), got another (sha256 {sha256[:8]}…)",
            where=where,
            fix="Choose another `out`",
        )
