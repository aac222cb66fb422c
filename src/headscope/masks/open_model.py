"""Opens the model of a command: by name or path, with a mask if one is given."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headscope.config.load import LoadConfig
from headscope.config.option import default_of, options_of
from headscope.config.shared import Reading, Run
from headscope.errors import HeadscopeError
from headscope.masks.mask_edit import Masked
from headscope.model.attention_model import AttentionModel
from headscope.model.load import ModelSource, as_model, load

LOAD_OPTIONS = {"revision", "device", "dtype", "pooling", "prompt", "mask", "open_special"}


def open_model(
    model: ModelSource,
    reading: Reading,
    run: Run,
    *,
    model_class: str | None = None,
    labels: Sequence[str] = (),
) -> AttentionModel:
    """A loaded model is returned unchanged. A name or path is loaded with the options of `reading` and `run`."""
    if isinstance(model, AttentionModel):
        check_loaded(reading, run)
        return model
    if not isinstance(model, str | Path):
        return as_model(model)  # raises: not a model
    loaded = load_model(model, LoadConfig(model_class, tuple(labels)), reading, run)
    for note in loaded.notes:
        run.log(f"note: {note}")
    return loaded


def load_model(model: str | Path, config: LoadConfig, reading: Reading, run: Run) -> AttentionModel:
    """Load a model from files and apply the mask, if there is one."""
    loaded = load(
        model,
        revision=run.revision,
        device=run.device,
        dtype=run.dtype,
        model_class=config.model_class,
        labels=config.labels,
        reading=reading,
        say=run.log,
    )
    if reading.mask is not None:
        loaded.edit_permanently(Masked(reading.mask, open_special=reading.open_special))
    return loaded


def check_loaded(reading: Reading, run: Run) -> None:
    """Raise an error for options that only affect loading."""
    for config in (reading, run):
        for name in sorted(LOAD_OPTIONS & set(options_of(type(config)))):
            if getattr(config, name) != default_of(type(config), name):
                raise HeadscopeError(
                    f"`{name}` has no effect on a model that is loaded already",
                    fix="Pass it to headscope.load, or pass the model's name instead of the model",
                )
