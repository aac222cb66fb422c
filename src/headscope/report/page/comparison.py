"""Models compared, as a page shows it: findings, figures with their numbers, roles, matched heads, what changed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from headscope.report.finding import Finding
from headscope.report.head_cards import role_label
from headscope.report.page.templates import TEMPLATES, environment
from headscope.report.run_facts import Facts, summary
from headscope.report.shared_heads import HeadKey, count_heads, count_text, is_shared
from headscope.report.text import plain
from headscope.study.local_paths import without_paths

if TYPE_CHECKING:
    import pandas as pd

    from headscope.analysis.compare import Comparison
    from headscope.report.rendered_figures import RenderedFigure
    from headscope.study.study import Study

MOST_MATCHES = 24
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
SAID_OF = {
    "heads": ("heads of one number in neighbouring layers", "heads in random order"),
    "sorted": ("the sorted heads of neighbouring layers", "layers in random order"),
}
Table = tuple[list[str], list[list[str]]]  # headings, rows


def render_comparison_figures(comparison: Comparison) -> list[RenderedFigure]:
    from headscope.report.drawing.compare_figures import draw_comparison
    from headscope.report.rendered_figures import RenderedFigure, svg_of

    return [
        RenderedFigure(
            one.name,
            one.title,
            one.caption,
            svg_of(one.figure),
            one.figure,
            is_raster=False,
            data=one.data,
        )
        for one in draw_comparison(comparison)
    ]


def comparison_view(
    comparison: Comparison, figures: list[RenderedFigure], prefix: str = ""
) -> dict[str, Any]:
    """What the template needs of a comparison; ids begin with `prefix`."""
    from markupsafe import Markup

    return {
        "prefix": prefix,
        "names": [plain(name, 80) for name in comparison.names],
        "studies": [
            (plain(name, 80), summary(study))
            for name, study in zip(comparison.names, comparison.studies, strict=True)
        ],
        "notes": [plain(note, 400) for note in comparison.notes],
        "figures": [
            {
                "name": f"{prefix}{figure.name}",
                "title": figure.title,
                "caption": figure.caption,
                "svg": Markup(figure.inline(prefix)),  # ours: shapes and text
                "csv": figure.csv_uri(),
            }
            for figure in figures
        ],
        "roles": _roles(comparison),
        "matching": _matching(comparison),
        "matches": _matches(comparison),
        "layer_changes": _layer_changes(comparison),
    }


def render_comparison(comparison: Comparison, figures: list[RenderedFigure]) -> str:
    """The whole page as text."""
    from markupsafe import Markup

    return (
        environment()
        .get_template("compare.html")
        .render(
            comparison=comparison_view(comparison, figures),
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


def findings_of(comparison: Comparison) -> list[Finding]:
    """What stands out, in sentences read off the tables: what changed on the same texts first."""
    return [*_on_changes(comparison), *_on_matching(comparison), *_on_smoothness(comparison)]


def _found(sentence: str, is_clear: bool = True) -> Finding:
    return Finding("", sentence, (), kind="models", is_clear=is_clear)


def _on_smoothness(comparison: Comparison) -> list[Finding]:
    """Of confidence, as on Song's poster; of another statistic where there is no confidence."""
    table = comparison.smoothness
    found: list[Finding] = []
    for stack in dict.fromkeys(table["stack"]) if len(table) else ():
        for form, (words, shuffled) in SAID_OF.items():
            some = table[(table["stack"] == stack) & (table["form"] == form)]
            names = list(some["statistic"])
            statistic = "confidence" if "confidence" in names else next(iter(names), None)
            for row in some[some["statistic"] == statistic].to_dict("records"):
                verdict = "above" if row["probability"] < 0.05 else "not above"
                sentence = (
                    f"{_where(comparison, stack)}{plain(row['study'], 80)}, {plain(statistic)}: {words} correlate by "
                    f"{_short(row['value'])} [{_short(row['low'])}, {_short(row['high'])}], {verdict} what {shuffled} "
                    f"give ({_short(row['null_low'])} to {_short(row['null_high'])}; p = {row['probability']:.2g})"
                )
                found.append(_found(sentence, row["probability"] < 0.05))
    return found


def _on_matching(comparison: Comparison) -> list[Finding]:
    found = []
    table = comparison.matching
    for row in (table[table["within"] == "stack"] if len(table) else table).to_dict("records"):
        one, other = plain(row["study"], 80), plain(row["other"], 80)
        by_name = dict(zip(comparison.names, comparison.studies, strict=True))
        is_site = any(is_shared(by_name[row[of]], row["stack"]) for of in ("study", "other"))
        noun = "sites of heads" if is_site else "heads"
        left = (
            f"; {row['unmatched']} {noun} of the larger model are left over"
            if row["unmatched"]
            else ""
        )
        sentence = (
            f"{_where(comparison, row['stack'])}{row['matched']} {noun} of {one} are matched to {noun} of {other} at a "
            f"mean distance of {_short(row['distance'])} standard deviations; shuffled match at {_short(row['null'])} "
            f"(p = {row['probability']:.2g}){left or _same_numbers(comparison, row)}"
        )
        found.append(_found(sentence, row["probability"] < 0.05))
    return found


def _same_numbers(comparison: Comparison, row: dict[Any, Any]) -> str:
    """How many heads are matched to the one of their own number: near all after fine-tuning, by chance otherwise."""
    some = comparison.matches
    for key in ("study", "other", "stack", "within"):
        some = some[some[key] == row[key]]
    own = int(((some["layer"] == some["other_layer"]) & (some["head"] == some["other_head"])).sum())
    return f"; {own} of them are matched to the head of the same layer and number"


def _on_changes(comparison: Comparison) -> list[Finding]:
    found = []
    table = comparison.layer_changes
    for stack in dict.fromkeys(table["stack"]) if len(table) else ():
        some = table[table["stack"] == stack].sort_values("js", ascending=False).to_dict("records")
        told = "; ".join(
            f"layer {row['layer']} (divergence {_short(row['js'])} nats, cosine {_short(row['cosine'])})"
            for row in some[:2]
        )
        least = some[-1]
        sentence = (
            f"{_where(comparison, stack)}On the same {some[0]['count']} texts these layers changed most: {told}; "
            f"layer {least['layer']} changed least ({_short(least['js'])} nats, cosine {_short(least['cosine'])})"
        )
        found.append(_found(sentence))
    return found


def _where(comparison: Comparison, stack: str) -> str:
    """The stack in front of a sentence, where there are several."""
    return f"In the {plain(stack)} stack: " if comparison.layers["stack"].nunique() > 1 else ""


def _roles(comparison: Comparison) -> Table:
    """How many heads have each role, and of how many, a column a model. A head of shared layers is counted once."""
    if not len(comparison.roles):
        return [], []
    columns = [_heads_by_role(study) for study in comparison.studies]
    every = [list(_places(study.heads)) for study in comparison.studies]
    shares: dict[str, float] = {}
    for study, by_role, heads in zip(comparison.studies, columns, every, strict=True):
        for role, places in by_role.items():
            shares[role] = shares.get(role, 0.0) + count_heads(study, places) / count_heads(
                study, heads
            )
    rows = [
        [
            role_label(role),
            *(
                count_text(study, by_role.get(role, ()), heads, noun="") if by_role else "–"
                for study, by_role, heads in zip(comparison.studies, columns, every, strict=True)
            ),
        ]
        for role in sorted(shares, key=lambda role: (-shares[role], role))
    ]
    return ["role", *(plain(name, 60) for name in comparison.names)], rows


def _heads_by_role(study: Study) -> dict[str, set[HeadKey]]:
    roles = study.tables.get("roles")
    if roles is None or not {"stack", "layer", "head", "role"} <= set(roles):
        return {}
    return {str(role): set(_places(some)) for role, some in roles.groupby("role")}


def _places(table: pd.DataFrame) -> Iterator[HeadKey]:
    return table[["stack", "layer", "head"]].drop_duplicates().itertuples(index=False, name=None)


def _matching(comparison: Comparison) -> Table:
    headings = [
        "models",
        "stack",
        "among heads of",
        "pairs",
        "mean distance",
        "noise of texts",
        "shuffled",
        "p",
    ]
    headings += ["depths correlate"]
    rows = []
    for row in comparison.matching.to_dict("records"):
        null = f"{_short(row['null'])} [{_short(row['null_low'])}, {_short(row['null_high'])}]"
        within = "the same depth" if row["within"] == "depth" else "the stack"
        rows.append(
            [
                f"{plain(row['study'], 60)}, {plain(row['other'], 60)}",
                plain(row["stack"]),
                within,
                str(row["matched"]),
                _short(row["distance"]),
                _short(row["noise"]),
                null,
                f"{row['probability']:.2g}",
                _short(row["depth_correlation"]),
            ]
        )
    return headings, rows


def _matches(comparison: Comparison) -> Table:
    """The nearest pairs over the whole stack."""
    table = comparison.matches
    if not len(table):
        return [], []
    nearest = (
        table[table["within"] == "stack"].sort_values("distance", kind="stable").head(MOST_MATCHES)
    )
    several = comparison.layers["stack"].nunique() > 1
    rows = []
    for row in nearest.to_dict("records"):
        stack = f"{plain(row['stack'])}." if several else ""
        one = f"{plain(row['study'], 60)} {stack}{row['layer']}.{row['head']}"
        other = f"{plain(row['other'], 60)} {stack}{row['other_layer']}.{row['other_head']}"
        rows.append(
            [one, other, _short(row["distance"]), _short(row["noise"]), _short(row["chance"])]
        )
    return [
        "head",
        "matched to",
        "distance",
        "noise of texts",
        "share of shuffled pairs as near",
    ], rows


def _layer_changes(comparison: Comparison) -> Table:
    table: pd.DataFrame = comparison.layer_changes
    headings = ["layer", "divergence, nats", "of other texts", "cosine", "of other texts", "texts"]
    rows = []
    for row in table.to_dict("records"):
        rows.append(
            [
                f"{plain(row['stack'])} {row['layer']}",
                f"{_short(row['js'])} [{_short(row['js_low'])}, {_short(row['js_high'])}]",
                _short(row["floor_js"]),
                f"{_short(row['cosine'])} [{_short(row['cosine_low'])}, {_short(row['cosine_high'])}]",
                _short(row["floor_cosine"]),
                str(row["count"]),
            ]
        )
    return headings, rows


def _short(value: float) -> str:
    return f"{value:.3f}".replace("-", "−") if math.isfinite(value) else "–"
