"""Put a study's figures and page into its directory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headscope.study.study import Study


def write_report(study: Study, folder: Path) -> None:
    """Write folder/figures/NAME.svg and NAME.png for every figure that applies, and folder/index.html."""
    from headscope.report.page.render import render_with
    from headscope.report.rendered_figures import announce, plates_of

    plates = plates_of(study)
    figures = folder / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    announce(f"saving {len(plates)} figures as svg and png")
    for plate in plates:
        (figures / f"{plate.name}.svg").write_text(plate.svg, "utf-8")
        (figures / f"{plate.name}.png").write_bytes(plate.png)
    (folder / "index.html").write_text(render_with(study, plates), "utf-8")
