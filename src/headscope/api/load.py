"""headscope.load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headscope.config.load import LoadConfig
from headscope.config.option import fill
from headscope.config.shared import Reading, Run
from headscope.masks.open_model import load_model
from headscope.model.attention_model import AttentionModel


def load(
    model: str | Path,
    config: LoadConfig | None = None,
    *,
    reading: Reading | None = None,
    run: Run | None = None,
    **options: Any,
) -> AttentionModel:
    """Load a model to observe and edit.

    Parameters
    ----------
    model
        A name (`minilm`), a directory, or a hub id (`org/name`, `org/name@revision`).
    config, reading, run
        Options; see `LoadConfig`, `Reading` and `Run`.
    **options
        Fields of these configs: `model_class`, `labels`, `device`, `dtype`, `revision`, `pooling`, `prompt`, `mask`,
        `log` …

    Returns
    -------
    AttentionModel

    Raises
    ------
    HeadscopeError
        If the model is not found, is of an unknown family, or cannot be trusted (missing tensors, NaN, remote code).

    Examples
    --------
    >>> model = headscope.load("minilm", dtype="float64")
    >>> len(model.heads)
    72
    """
    config, reading, run = fill(
        "load", options, (LoadConfig, config), (Reading, reading), (Run, run)
    )
    return load_model(model, config, reading, run)
