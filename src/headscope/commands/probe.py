"""headscope probe: dependency parsers on the attention of all heads together."""

from __future__ import annotations

import typer

from headscope.commands._from_config import command
from headscope.commands._options import AsJson, Model, print_json, say, showing_progress
from headscope.config.probe import ProbeConfig
from headscope.config.shared import Run
from headscope.config.texts import TextData


@command()
def probe(
    model: Model, data: TextData, config: ProbeConfig, run: Run, as_json: AsJson = False
) -> None:
    """Train dependency parsers on attention weights, with and without word vectors, and compare them with baselines."""
    import headscope

    with showing_progress(model, run) as run:
        probes = headscope.probe(model, data, config, run=run)
    for part in ("train", "test"):
        counts = probes.record[part]
        say(
            f"{part}: {counts['used']} of {counts['read']} sentences used, "
            f"{sum(counts['skipped'].values())} skipped"
        )
    if as_json:
        print_json({**probes.record, "probes": probes.table.to_dict("records")})
        return
    typer.echo(probes.table.to_string(index=False, float_format="{:.3f}".format))
