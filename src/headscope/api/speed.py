"""headscope.speed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headscope.config.option import fill
from headscope.config.shared import Reading, Run
from headscope.config.speed import SpeedConfig
from headscope.masks.mask_spec import read_mask
from headscope.masks.open_model import open_model
from headscope.masks.speed import DENSE, FLEX, SPARSE, MaskSpeed, measure_mask_speed
from headscope.model.attention_model import AttentionModel
from headscope.model.latency import LayerTimes, Speed, measure, measure_layers
from headscope.study.result import Result

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class SpeedResult(Result):
    """Measured times.

    name    the name of the model
    layers  time by the share of heads that remain in every layer; None with a mask
    models  the model that was compared with, if any, then the model itself; empty with a mask
    mask    attention with and without the mask; None without one
    sequences, length  size of the batch that models were timed with
    """

    name: str
    layers: LayerTimes | None = None
    models: tuple[Speed, ...] = ()
    mask: MaskSpeed | None = None
    sequences: int = 0
    length: int = 0

    @property
    def record(self) -> dict[str, Any]:
        """The result as plain values, as `headscope speed --json` prints it."""
        if self.mask is not None:
            pays_from = {method: self.mask.pays_from(method) for method in SPARSE}
            return {"model": self.name, **asdict(self.mask), "pays_from": pays_from}
        assert self.layers is not None
        times = {name: getattr(self.layers, name) for name in ("share", "time", "bound")}
        return {"layers": times, "models": [asdict(model) for model in self.models]}

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """`layers` (time by the share of heads) and `models`; with a mask `lengths`, a row per length and method."""
        import pandas as pd

        if self.mask is not None:
            rows = [asdict(length) for length in self.mask.lengths]
            return {"lengths": pd.DataFrame([row | way for row in rows for way in row.pop("ways")])}
        record = self.record
        layers = pd.DataFrame({name: record["layers"][name] for name in ("share", "time")})
        return {"layers": layers, "models": pd.DataFrame(record["models"])}

    def lines(self) -> Iterator[str]:
        """The result as a table for a terminal."""
        return _model_lines(self) if self.mask is None else _mask_lines(self.mask, self.name)

    def __str__(self) -> str:
        return "\n".join(self.lines())


def speed(
    model: AttentionModel | str | Path,
    config: SpeedConfig | None = None,
    *,
    run: Run | None = None,
    **options: Any,
) -> SpeedResult:
    """Time a model by its number of heads, with a bound on the gain of pruning; or time attention under a mask.

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
        `layers` and `models`; with a mask `mask`. Also as `tables` and `record`; `lines()` is the table of the shell.

    Examples
    --------
    >>> result = headscope.speed("minilm", length=(16,), batch_size=1, repeats=1)
    >>> list(result.tables)
    ['layers', 'models']
    """
    return _speed(model, *fill("speed", options, (SpeedConfig, config), (Run, run)))


def _speed(model: AttentionModel | str | Path, config: SpeedConfig, run: Run) -> SpeedResult:
    mask = None if config.mask is None else read_mask(config.mask)  # before the model is loaded
    loaded = open_model(model, Reading(), run)
    if mask is not None:
        result = measure_mask_speed(
            loaded,
            mask,
            lengths=config.lengths,
            batch_size=config.sequences,
            repeats=config.repeats,
            progress=run.progress,
        )
        if run.out is not None:
            from headscope.report.drawing.masks import draw_mask_speed
            from headscope.report.rendered_figures import save_figure

            save_figure(draw_mask_speed(result), run.out)
        return SpeedResult(loaded.name, mask=result)
    against = Run(device=run.device, dtype=run.dtype, log=run.log)
    other = None if config.against is None else open_model(config.against, Reading(), against)
    sizes: dict[str, Any] = {"batch_size": config.sequences, "length": config.lengths[0]}
    by_share = measure_layers(
        other or loaded, **sizes, repeats=config.repeats, progress=run.progress
    )
    models = [loaded] if other is None else [other, loaded]
    measured = tuple(measure(models, **sizes, repeats=config.repeats))
    return SpeedResult(
        loaded.name, by_share, measured, sequences=config.sequences, length=config.lengths[0]
    )


def _model_lines(result: SpeedResult) -> Iterator[str]:
    """A line for each share of heads, then one for each model."""
    assert result.layers is not None
    yield f"{result.sequences} sequences of {result.length} tokens"
    yield f"heads of {result.models[0].name} left"
    yield "heads left    time   times as fast"
    for share, ratio in zip(result.layers.share, result.layers.time, strict=True):
        note = "   the bound" if share == result.layers.share[-1] else ""
        yield f"{share:10.0%}  {ratio:6.3f}  {1 / ratio:14.2f}{note}"
    yield ""
    yield (
        "model               heads  million parameters  MB weights  MB working  ms a batch "
        " sequences/s  times as fast"
    )
    for model in result.models:
        yield (
            f"{model.name[-18:]:18} {model.heads:6}  {model.parameters / 1e6:18.2f}  {model.megabytes:10.1f}  "
            f"{model.working:10.1f}  {model.seconds * 1e3:10.1f}  {model.throughput:11.1f}  {1 / model.ratio:13.2f}"
            + ("" if model is result.models[0] else f" [{1 / model.high:.2f}, {1 / model.low:.2f}]")
        )


def _mask_lines(result: MaskSpeed, name: str) -> Iterator[str]:
    """A line for each length, then the lengths from which the mask is faster."""
    yield f"{name}, {result.site}: {result.heads} heads of width {result.width}, {result.batch_size} at a time"
    yield "tokens  forbidden  blocks left  of the model  attention  milliseconds  times as fast as dense"
    for row in result.lengths:
        share = "" if row.attention is None else f"{row.attention:.0%}"
        start = f"{row.length:6}  {row.sparsity:9.1%}  {row.blocks:11.1%}  {share:>12}"
        for timed in row.ways:
            gain = (
                ""
                if timed.way == DENSE
                else f"{1 / timed.ratio:8.2f} [{1 / timed.high:.2f}, {1 / timed.low:.2f}]"
            )
            yield f"{start:44}  {timed.way:9}  {timed.milliseconds:12.2f}  {gain}".rstrip()
            start = ""
    for way in SPARSE:
        if way == FLEX and result.without_flex:
            yield f"{way}: left out, as it cannot be compiled here: {result.without_flex}"
        elif (length := result.pays_from(way)) is not None:
            yield f"{way}: from length {length} on the block-sparse mask is faster on this machine"
        else:
            yield f"{way}: at none of these lengths is the block-sparse mask faster on this machine"
    yield "milliseconds: of the fastest turn; times as fast: the median of the ratios within a turn"
    if result.run_length is not None:
        yield f"of the model: dense attention's share of its time, by a run of {result.run_length} tokens"
