"""headscope.show_model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headscope.config.option import fill
from headscope.config.shared import Run
from headscope.config.show_model import ShowModelConfig
from headscope.model.attention_model import AttentionModel
from headscope.model.checkpoint import read_config
from headscope.model.load import as_model
from headscope.model.module_files import transformer_folder
from headscope.model.reading import TextReading
from headscope.model.reading_files import describe_left_out, read_reading
from headscope.model.resolve_spec import find_folder
from headscope.study.result import Result

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class ModelSummary(Result):
    """The statements of a model's files: its class, and how a text becomes one vector.

    family        the model type of transformers (`bert`)
    architecture  the class of the model (`BertModel`)
    reading       pooling, prompts, length, similarity
    """

    name: str
    family: str
    architecture: str
    reading: TextReading = field(repr=False)

    @property
    def record(self) -> dict[str, Any]:
        """The summary as plain values, as `headscope models show --json` prints it."""
        values = {"model": self.name, "family": self.family, "class": self.architecture}
        return values | {
            "reading": self.reading.record(),
            "left_out": list(self.reading.left_out),
        }

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """`model`: a row for each fact."""
        import pandas as pd

        return {"model": pd.DataFrame(self.rows(), columns=["fact", "value"])}

    def rows(self) -> list[tuple[str, str]]:
        """The facts and their values."""
        rows = [("model", self.name), ("family", self.family), ("class", self.architecture)]
        rows += self.reading.lines()
        if (left_out := describe_left_out(self.reading)) is not None:
            rows.append(("saving", left_out))
        return rows

    def lines(self) -> Iterator[str]:
        """A line for each fact."""
        return (f"{label:12} {value}" for label, value in self.rows())


def show_model(
    model: AttentionModel | str | Path,
    config: ShowModelConfig | None = None,
    *,
    run: Run | None = None,
    **options: Any,
) -> ModelSummary:
    """Show how a text becomes one vector, as the model's files state. No weights are loaded.

    Parameters
    ----------
    model
        The name, directory or hub id of a model, or a loaded model.
    config, run
        Options; see `ShowModelConfig` and `Run`.
    **options
        Fields of these configs: `revision` of a hub model, `log`.

    Returns
    -------
    ModelSummary
        `family`, `architecture`, `reading`, `record`, `tables`, and `lines()` to print.

    Raises
    ------
    HeadscopeError
        If the model is not found or its files cannot be read.

    Examples
    --------
    >>> headscope.show_model("minilm").reading.pooling  # doctest: +SKIP
    'mean'
    """
    filled = fill("show_model", options, (ShowModelConfig, config), (Run, run))
    return _show(model, filled[1])


def _show(model: AttentionModel | str | Path, run: Run) -> ModelSummary:
    if not isinstance(model, str | Path):
        loaded = as_model(model)
        kind = type(loaded.model)
        family = str(getattr(loaded.model.config, "model_type", ""))
        return ModelSummary(loaded.name, family, kind.__name__, loaded.reading)
    folder, name, _ = find_folder(model, run.revision, run.log)
    config, reading = read_config(transformer_folder(folder)), read_reading(folder)
    architecture = str((config.get("architectures") or ["not stated"])[0])
    return ModelSummary(name, config["model_type"], architecture, reading)
