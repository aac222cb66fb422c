"""Load a model: from a zoo name, a directory or a hub id to an `AttentionModel`."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from headscope.config.shared import Reading
from headscope.errors import HeadscopeError, choices
from headscope.model.attention_model import AttentionModel
from headscope.model.bfloat16 import ensure_bfloat16
from headscope.model.checkpoint import check_finite, read_config, read_weights
from headscope.model.cut_checkpoint import read_cut_weights
from headscope.model.families import family_of
from headscope.model.manifest import Cut, read_manifest
from headscope.model.module_files import transformer_folder
from headscope.model.reading import TextReading
from headscope.model.reading_files import read_reading
from headscope.model.resolve_spec import find_folder
from headscope.model.tokenizer import read_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedModel

DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


def load(
    spec: str | Path,
    *,
    revision: str | None = None,
    model_class: str | type[PreTrainedModel] | None = None,
    device: str = "auto",
    dtype: str = "float32",
    labels: Sequence[str] = (),
    reading: TextReading | Reading | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> AttentionModel:
    """Load a model to observe and edit.

    spec         a zoo name (`minilm`), a directory, or a hub id (`org/name`, `org/name@revision`)
    model_class  a transformers class or its name, instead of the class in the checkpoint's configuration
    device       auto, cpu, cuda, mps …
    dtype        float32, float64, bfloat16 or float16, independent of the dtype of the checkpoint
    labels       the classes of a new classifier; requires a `model_class` with a classifier
    reading      replaces the reading that the model's files state; from a `Reading`, only pooling and prompt are used
    say          called with lines of progress of a download
    """
    _check_arguments(spec, dtype)
    target = resolve_device(device)
    if dtype == "bfloat16" and target.type == "cpu":
        ensure_bfloat16()
    root, name, revision = find_folder(spec, revision, say)
    folder = transformer_folder(root)
    if not isinstance(reading, TextReading):
        pooling, prompt = (None, None) if reading is None else (reading.pooling, reading.prompt)
        reading = read_reading(root).override(pooling, prompt)
    config = read_config(folder)
    family = family_of(config["model_type"], where=folder / "config.json")
    manifest = read_manifest(folder)
    with silence_transformers():
        if manifest is None:
            cut = None
            weights = read_weights(folder, config, model_class, DTYPES[dtype], labels)
        else:
            cut = Cut(manifest.origin, manifest.kept, manifest.silent, manifest.history)
            weights = read_cut_weights(folder, config, manifest, model_class, DTYPES[dtype], labels)
        model, untrained, notes = weights
        tokenizer = read_tokenizer(folder, model) if family.takes_text else None
    check_finite(model, folder, dtype)
    model = model.to(target).eval()
    loaded = AttentionModel(model, tokenizer, name=name, cut=cut, reading=reading)
    loaded.path, loaded.revision = folder, revision
    loaded.untrained, loaded.notes = untrained, notes
    return loaded


def _check_arguments(spec: object, dtype: str) -> None:
    """Raise if the spec cannot name a model, or if there is no such dtype."""
    if not isinstance(spec, str | Path):
        is_loaded = isinstance(spec, AttentionModel)
        raise HeadscopeError(
            "this model is loaded already" if is_loaded else f"{spec!r} is not a model",
            where="model",
            expected="its name, directory or hub id",
        )
    if dtype not in DTYPES:
        raise HeadscopeError(
            f'"{dtype}" is not a dtype', where="`dtype`", expected=choices(dtype, DTYPES)
        )


ModelSource = AttentionModel | str | Path  # a loaded model, or the name or directory of one
Loadable = AttentionModel | str | Path | Callable[..., AttentionModel]


def as_model(model: Loadable, model_class: str | None = None) -> AttentionModel:
    """The model, loaded if necessary.

    model        a loaded model, a name, a directory, a hub id, or a function that loads a model
    model_class  the transformers class to load; a loading function is called with it
    """
    if isinstance(model, AttentionModel):
        return model
    if isinstance(model, str | Path):
        return load(model, model_class=model_class)
    if not callable(model) or isinstance(model, torch.nn.Module | type):
        fix = None
        if isinstance(model, torch.nn.Module):
            fix = "Wrap it: headscope.AttentionModel(model, tokenizer)"
        elif isinstance(getattr(model, "model", None), AttentionModel):
            fix = "Pass result.model"  # of a result such as that of `headscope.prune`
        raise HeadscopeError(
            f"{type(model).__name__} is not a model to observe",
            where="model",
            expected="a name, a directory, a hub id or headscope.load(…)",
            fix=fix,
        )
    return model() if model_class is None else model(model_class)


def resolve_device(device: str) -> torch.device:
    """The device of this name; auto is a GPU if there is one. Raises if the device cannot be used."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        resolved = torch.device(device)
        torch.empty(1, device=resolved).item()  # fails on "meta", a valid device without data
    except Exception as cause:  # every backend raises other exceptions
        available = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
        available += ["mps"] if torch.backends.mps.is_available() else []
        raise HeadscopeError(
            f'"{device}" cannot be used here{_why_no_cuda(device)}',
            where="`device`",
            expected=choices(device, ["auto", "cpu", *available]),
        ) from cause
    return resolved


def _why_no_cuda(device: str) -> str:
    """Why a CUDA device cannot be used; empty for other devices."""
    if not device.startswith("cuda"):
        return ""
    if not torch.backends.cuda.is_built():  # type: ignore[no-untyped-call]
        return ": this build of torch has no CUDA"
    return f": torch finds {torch.cuda.device_count() or 'no'} CUDA devices"


@contextmanager
def silence_transformers() -> Iterator[None]:
    """While open, transformers shows no progress bars and load reports; headscope reports the important parts."""
    from transformers.utils import logging as reports

    level, bars = reports.get_verbosity(), reports.is_progress_bar_enabled()
    reports.set_verbosity(logging.CRITICAL)
    reports.disable_progress_bar()
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        reports.set_verbosity(level)
        if bars:
            reports.enable_progress_bar()
