"""headscope probe: how much syntax there is in the attention of all heads together."""

from __future__ import annotations

import typer

from headscope.commands._from_config import command
from headscope.commands._options import Model, say, showing_progress
from headscope.config.probe import ProbeConfig
from headscope.config.shared import Run
from headscope.config.texts import TextData


@command()
def probe(model: Model, data: TextData, config: ProbeConfig, run: Run) -> None:
    """Parse with attention weights alone, and with baselines: how much syntax all heads hold together."""
    import headscope

    with showing_progress(model, run) as run:
        probes = headscope.probe(model, data, config, run=run)
    for part in ("train", "test"):
        counts = probes.record[part]
        say(
            f"{part}: {counts['used']} of {counts['read']} sentences used, "
            f"{sum(counts['skipped'].values())} skipped"
        )
    typer.echo(probes.table.to_string(index=False, float_format="{:.3f}".format))
