"""The page of a comparison: one self-contained index.html without script; and the directory it stands in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headscope.analysis.compare import Comparison
from headscope.atomic_dir import drafted
from headscope.report.page.comparison import comparison_view, findings_of, plates_of
from headscope.report.page.render import TEMPLATES, environment
from headscope.report.rendered_figures import announce
from headscope.report.run_facts import Facts
from headscope.report.text import plain
from headscope.study.local_paths import without_paths

if TYPE_CHECKING:
    from headscope.report.rendered_figures import Plate

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


def write_comparison(comparison: Comparison, out: str | Path, overwrite: bool = False) -> Path:
    """Write the directory of a comparison. Whole or not at all."""
    with drafted(out, overwrite=overwrite) as folder:
        fill_comparison(comparison, folder)
    return Path(out)


def fill_comparison(comparison: Comparison, folder: Path) -> None:
    """Tables, run.json, figures and page into a folder that is being drafted."""
    for name, table in comparison.tables.items():
        table.to_csv(folder / f"{name}.csv", index=False, float_format="%.10g", lineterminator="\n")
    text = json.dumps(comparison.record, indent=2, ensure_ascii=False, default=str)
    (folder / "run.json").write_text(f"{text}\n", "utf-8")
    plates = plates_of(comparison)
    figures = folder / "figures"
    figures.mkdir()
    for plate in plates:
        (figures / f"{plate.name}.svg").write_text(plate.svg, "utf-8")
        (figures / f"{plate.name}.png").write_bytes(plate.png)
    announce("writing the page")
    (folder / "index.html").write_text(render(comparison, plates), "utf-8")


def render(comparison: Comparison, plates: list[Plate]) -> str:
    """The whole page as text."""
    from markupsafe import Markup

    return (
        environment()
        .get_template("compare.html")
        .render(
            comparison=comparison_view(comparison, plates),
            findings=[str(finding) for finding in findings_of(comparison)],
            files=[f"{name}.csv" for name in comparison.tables],
            reproduction=_reproduction(comparison),
            policy=POLICY,
            style=Markup((TEMPLATES / "study.css").read_text("utf-8")),  # ours: no data in it
        )
    )


def _reproduction(comparison: Comparison) -> Facts:
    record: dict[str, Any] = without_paths(comparison.record)
    facts = [("command", plain(record["command"], 2000))] if record.get("command") else []
    facts += [
        (f"{plain(name, 60)} version", plain(version))
        for name, version in record.get("versions", {}).items()
    ]
    for study in record.get("studies", []):
        if study["model"].get("sha256"):
            facts.append((f"{plain(study['name'], 60)} sha256", plain(study["model"]["sha256"])))
    return [*facts, ("seed", plain(record.get("seed")))]


Comparison.publish = staticmethod(write_comparison)
