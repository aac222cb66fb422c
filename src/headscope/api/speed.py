"""headscope.speed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headscope.config.option import fill
from headscope.config.shared import Reading, Run
from headscope.config.speed import SpeedConfig
from headscope.masks.mask_spec import read_mask
from headscope.masks.open_model import open_model
from headscope.masks.speed import MaskSpeed, mask_speed
from headscope.model.attention_model import AttentionModel
from headscope.model.latency import Layers, Speed, layers, measure


@dataclass(frozen=True)
class SpeedResult:
    """Measured times.

    name    of the model
    layers  time by the share of heads that every layer has left; None with a mask
    models  the model, after the one that it was compared with; empty with a mask
    mask    attention with and without the mask; None without one
    """

    name: str
    layers: Layers | None = None
    models: tuple[Speed, ...] = ()
    mask: MaskSpeed | None = None


def speed(
    model: AttentionModel | str | Path,
    config: SpeedConfig | None = None,
    *,
    run: Run | None = None,
    **options: Any,
) -> SpeedResult:
    """Time a model by its number of heads, and the most that pruning can gain; or attention under a mask.

    Parameters
    ----------
    model
        A loaded model, or the name, directory or hub id of one.
    config, run
        Options; see `SpeedConfig` and `Run`. With a mask, `run.out` is a figure to write.
    **options
        Fields of these configs, instead of or in addition to them.

    Returns
    -------
    SpeedResult
        `layers` and `models`; with a mask `mask`.
    """
    return _speed(model, *fill("speed", options, (SpeedConfig, config), (Run, run)))


def _speed(model: AttentionModel | str | Path, config: SpeedConfig, run: Run) -> SpeedResult:
    mask = None if config.mask is None else read_mask(config.mask)  # before the model is loaded
    loaded = open_model(model, Reading(), run)
    if mask is not None:
        result = mask_speed(
            loaded,
            mask,
            lengths=config.lengths,
            batch_size=config.sequences,
            repeats=config.repeats,
            progress=run.progress,
        )
        if run.out is not None:
            from headscope.report.drawing.mask_speed import draw_mask_speed
            from headscope.report.rendered_figures import save_figure

            save_figure(draw_mask_speed(result), run.out)
        return SpeedResult(loaded.name, mask=result)
    against = Run(device=run.device, dtype=run.dtype, log=run.log)
    other = None if config.against is None else open_model(config.against, Reading(), against)
    sizes: dict[str, Any] = {"batch_size": config.sequences, "length": config.lengths[0]}
    by_share = layers(other or loaded, **sizes, repeats=config.repeats, progress=run.progress)
    models = [loaded] if other is None else [other, loaded]
    return SpeedResult(
        loaded.name, by_share, tuple(measure(models, **sizes, repeats=config.repeats))
    )
