"""The page of a study: one self-contained index.html that opens from disk; same study, same bytes.

Everything that comes from a model, a file or a run record is text: escaped by the template, or JSON in a
script element that no sign can end. The one script is allowed by its hash, nothing else may run or load.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headscope.report.findings import findings_of
from headscope.report.grids import model_name, plain, recorded, shape_of, stacks_of, statistics_of
from headscope.report.pack import payload, to_json
from headscope.report.parts import parts_of
from headscope.report.scale import scale_of, sentence_of, title_of

if TYPE_CHECKING:
    from headscope.report.plates import Plate
    from headscope.study.study import Study

TEMPLATES = Path(__file__).parent / "templates"
MOST_SVG_BYTES = 1_500_000
BYTES_OF_CELL = 60  # about; of a table, with its tags
ENOUGH_TEXTS = 30  # below, mean ± 1.96 standard errors is too narrow
Facts = list[tuple[str, str]]


def render(study: Study) -> str:
    """The whole page as text."""
    from headscope.report.plates import plates_of

    return render_with(study, plates_of(study))


def render_with(study: Study, plates: list[Plate]) -> str:
    """The page with figures that are drawn already."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    script = (TEMPLATES / "study.js").read_text("utf-8")
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    is_cut = set(study.heads["statistic"]) == {"cut"}
    is_heavy = sum(len(plate.inline()) for plate in plates if not plate.is_raster) > MOST_SVG_BYTES
    figures = [_figure(plate, is_heavy) for plate in plates]
    parts = [
        (part, [figure for figure in figures if figure["name"].startswith(part.figures)]) for part in parts_of(study)
    ]
    placed = {figure["name"] for _, of_part in parts for figure in of_part}
    style = (TEMPLATES / "study.css").read_text("utf-8")
    taken = len(script) + len(style) + sum(len(str(item)) for figure in figures for item in figure.values())
    taken += sum(BYTES_OF_CELL * len(part.columns) * len(part.rows) for part, _ in parts)
    return environment.get_template("study.html").render(
        has_attention=bool(study.maps),
        is_cut=is_cut,
        model=model_name(study),
        summary=summary(study),
        model_facts=model_facts(study),
        corpus_facts=corpus_facts(study),
        findings=findings_of(study),
        heads=sum(1 for _ in _heads(study)),
        few=_few(study),
        one_stack=len(stacks_of(study)) == 1,
        parts=parts,
        stories=[figure for figure in figures if figure["name"] not in placed and not _is_heat_map(figure)],
        heat_maps=[] if is_cut else [figure for figure in figures if _is_heat_map(figure)],  # the explorer shows it
        glossary=_glossary(study),
        reproduction=reproduction(study),
        pages=_pages(study),
        policy=_policy(script),
        style=Markup(style),  # ours: no data in it
        script=Markup(script),
        data=Markup(to_json(payload(study, taken))),  # to_json leaves no sign that HTML reads
    )


def summary(study: Study) -> str:
    """`72 heads: encoder 6 layers x 12 heads`."""
    sizes = []
    for stack in stacks_of(study):
        layers, heads = shape_of(study, stack)
        sizes.append(f"{plain(stack)} {_counted(layers, 'layer')} × {_counted(heads, 'head')}")
    if not sizes:
        return "nothing about single heads"
    return f"{_counted(sum(1 for _ in _heads(study)), 'head')}: {', '.join(sizes)}"


def model_facts(study: Study) -> Facts:
    """What is known of the model, in the order a reader asks."""
    record = study.record
    facts = [
        (key, plain(recorded(record, "model", key))) for key in ("class", "revision") if recorded(record, "model", key)
    ]
    notes = recorded(record, "model", "notes")
    facts += [("note", plain(note, 300)) for note in (notes if isinstance(notes, list) else [])]
    return [("model", summary(study)), *facts]


def corpus_facts(study: Study) -> Facts:
    """Files and counts: read, used, truncated, skipped and why. What was not recorded is not mentioned."""
    record = study.record
    facts: Facts = []
    files = [plain(recorded(file, "path"), 120) for file in _files(record) if recorded(file, "path")]
    if files:
        facts.append(("files" if len(files) > 1 else "file", ", ".join(files[:5]) + _and_more(len(files) - 5)))
    for key in ("read", "used", "truncated"):
        if recorded(record, "data", key) is not None:
            facts.append((f"texts {key}", _grouped(recorded(record, "data", key))))
    for kind, what in (("treebank", "sentences"), ("coreference", "documents")):
        known = recorded(record, kind, "documents" if kind == "coreference" else "used")
        if known is not None:
            facts.append((f"{kind} {what}", _grouped(known)))
    facts += _task_facts(record)
    if recorded(record, "frequency", "list") is not None:
        facts.append(("word frequencies", plain(recorded(record, "frequency", "list"), 60)))
    skipped = recorded(record, "data", "skipped")
    if isinstance(skipped, Mapping):
        reasons = [f"{_grouped(count)} {plain(reason, 60)}" for reason, count in skipped.items() if count]
        facts.append(("texts skipped", ", ".join(reasons) or "0"))
    if recorded(record, "data", "tokens") is not None:
        facts.append(("tokens", _grouped(recorded(record, "data", "tokens"))))
    if recorded(record, "data", "max_length") is not None:
        facts.append(("texts cut at", f"{_grouped(recorded(record, 'data', 'max_length'))} tokens"))
    if recorded(record, "data", "pairs") is not None:
        facts.append(("input", "pairs of texts" if recorded(record, "data", "pairs") else "single texts"))
    return facts


def _task_facts(record: Mapping[str, Any]) -> Facts:
    """The task that heads were removed from: its examples, how good the intact model is, what was done to heads."""
    if recorded(record, "importance", "task") is None:
        return []
    facts = [("task", plain(recorded(record, "importance", "task"), 40))]
    facts.append(("examples", _grouped(recorded(record, "importance", "examples"))))
    metric = plain(recorded(record, "importance", "metric"), 40)
    known = recorded(record, "importance", "intact", metric) or {}
    if all(isinstance(known.get(name), int | float) for name in ("value", "low", "high")):
        facts.append((f"{metric} intact", f"{known['value']:.4f} [{known['low']:.4f}, {known['high']:.4f}]"))
    modes = {"mean": "its mean result in the place of a head's", "uniform": "a head attends to all tokens alike"}
    modes["fixed"] = "a head attends by the fixed pattern it is nearest to"
    if recorded(record, "importance", "mode") in modes:
        facts.append(("ablation", modes[recorded(record, "importance", "mode")]))
    return facts


def _few(study: Study) -> int | None:
    """How many texts there are, where these are too few for intervals from their spread."""
    most = int(study.heads["count"].max()) if len(study.heads) else 0
    return most if 0 < most < ENOUGH_TEXTS else None


def reproduction(study: Study) -> Facts:
    """What one needs to get the same numbers again."""
    record = study.record
    facts: Facts = []
    if record.get("command"):
        facts.append(("command", plain(record["command"], 2000)))
    for name, version in _items(record.get("versions")):
        facts.append((f"{name} version", plain(version)))
    for label, key in (("model path", "path"), ("model revision", "revision"), ("model sha256", "sha256")):
        if recorded(record, "model", key):
            facts.append((label, plain(recorded(record, "model", key))))
    for file in _files(record):
        if recorded(file, "sha256"):
            facts.append((f"{plain(recorded(file, 'path') or 'data', 120)} sha256", plain(recorded(file, "sha256"))))
    if record.get("seed") is not None:
        facts.append(("seed", plain(record["seed"])))
    if record.get("options"):
        facts.append(("options", plain(json.dumps(record["options"], default=str, ensure_ascii=False), 2000)))
    spent = [f"{name} {seconds:.1f} s" for name, seconds in _items(record.get("durations")) if _is_number(seconds)]
    if spent:
        facts.append(("time spent", ", ".join(spent)))
    if record.get("schema") is not None:
        facts.append(("study schema", plain(record["schema"])))
    return facts


def _is_heat_map(figure: dict[str, Any]) -> bool:
    return str(figure["name"]).startswith("heat-")


def _figure(plate: Plate, is_heavy: bool) -> dict[str, Any]:
    """A figure for the template: vectors, or a picture where the page would grow too heavy with vectors."""
    from markupsafe import Markup

    svg, uri = plate.inline(), plate.data_uri()
    is_picture = plate.is_raster or (is_heavy and len(uri) < len(svg))
    picture = {"uri": uri} if is_picture else {"svg": Markup(svg)}  # ours: shapes and text only
    return {"name": plate.name, "title": plate.title, "caption": plate.caption, **picture}


def _glossary(study: Study) -> list[tuple[str, str, str]]:
    """(statistic, unit, definition) for what is in the study."""
    rows = []
    for name in statistics_of(study):
        rows.append((plain(name), scale_of(name, np.array([])).unit, plain(sentence_of(name) or title_of(name), 600)))
    return rows


def _pages(study: Study) -> Facts:
    """Further pages beside this one: (title, file name). Anything but a plain file name is left out."""
    pages = study.record.get("pages")
    found = [(recorded(page, "title"), recorded(page, "href")) for page in (pages if isinstance(pages, list) else [])]
    return [(plain(title), str(href)) for title, href in found if re.fullmatch(r"[\w-]+\.html", str(href), re.ASCII)]


def _policy(script: str) -> str:
    """Nothing is loaded; the one script runs because its hash is named; figures carry inline styles."""
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _heads(study: Study) -> set[tuple[object, ...]]:
    return set(study.heads[["stack", "layer", "head"]].itertuples(index=False, name=None))


def _files(record: Mapping[str, Any]) -> list[Any]:
    """The files that were read: texts, treebanks, documents, the list of words, the data of a task."""
    kinds = [recorded(record, kind, "files") for kind in ("data", "treebank", "coreference")]
    found = [file for files in kinds if isinstance(files, list) for file in files]
    if recorded(record, "frequency", "path"):
        found.append(record["frequency"])
    of_task = recorded(record, "importance", "data")
    found += of_task if isinstance(of_task, list) else []
    return list({json.dumps(file, sort_keys=True, default=str): file for file in found}.values())


def _items(value: object) -> list[tuple[str, Any]]:
    return [(plain(key, 60), item) for key, item in value.items()] if isinstance(value, Mapping) else []


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _grouped(value: object) -> str:
    """52000 as `52 000`, with a space that does not break."""
    return f"{value:,}".replace(",", "\u202f") if _is_number(value) else plain(value, 60)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _and_more(count: int) -> str:
    return f" and {count} more" if count > 0 else ""
