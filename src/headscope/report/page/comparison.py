"""The page of a comparison: findings, figures with their numbers, roles, matched heads, changes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from headscope.report.finding import Finding
from headscope.report.head_cards import role_label
from headscope.report.page.templates import TEMPLATES, environment
from headscope.report.run_facts import Facts, summary
from headscope.report.shared_heads import HeadKey, count_heads, count_text, is_shared, keys_of
from headscope.report.text import plain
from headscope.study.local_paths import without_paths

if TYPE_CHECKING:
    from headscope.analysis.compare import Comparison
    from headscope.report.rendered_figures import RenderedFigure
    from headscope.study.study import Study

MOST_MATCHES = 24
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
SMOOTHNESS = {  # what is correlated, and what is shuffled
    "heads": ("heads with the same number in neighbouring layers", "heads in random order"),
    "sorted": (
        "the heads of neighbouring layers, with the heads of each layer sorted by this value",
        "layers in random order",
    ),
}
Table = tuple[list[str], list[list[str]]]  # headings, rows


def comparison_view(
    comparison: Comparison, figures: list[RenderedFigure], prefix: str = ""
) -> dict[str, Any]:
    """The variables of the template; ids begin with `prefix`."""
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
            findings=findings_of(comparison),
            files=[f"{name}.csv" for name in comparison.tables],
            reproduction=comparison_reproduction(comparison),
            policy=POLICY,
            style=Markup((TEMPLATES / "study.css").read_text("utf-8")),  # ours: no data in it
        )
    )


def comparison_reproduction(comparison: Comparison) -> Facts:
    """Command, versions, hashes of the weights and seed."""
    record: dict[str, Any] = without_paths(comparison.record)
    facts = [("command", plain(record["command"], 2000))] if record.get("command") else []
    for name, version in record.get("versions", {}).items():
        facts.append((f"{plain(name, 60)} version", plain(version)))
    for study in record.get("studies", []):
        if study["model"].get("sha256"):
            facts.append((f"{plain(study['name'], 60)} sha256", plain(study["model"]["sha256"])))
    return [*facts, ("seed", plain(record.get("seed")))]


def findings_of(comparison: Comparison) -> list[Finding]:
    """Key findings, derived from the tables. Changes on the same texts come first."""
    makers = (_change_findings, _matching_findings, _smoothness_findings)
    return [
        Finding("", sentence, (), kind="models", is_clear=is_clear, after=after)
        for make in makers
        for sentence, after, is_clear in make(comparison)
    ]


Sentences = Iterator[tuple[str, str, bool]]  # sentence, evidence, and whether the finding is clear


def _change_findings(comparison: Comparison) -> Sentences:
    table = comparison.layer_changes
    for stack in dict.fromkeys(table["stack"]) if len(table) else ():
        some = table[table["stack"] == stack].sort_values("js", ascending=False).to_dict("records")
        most, least = some[0], some[-1]
        shown = {row["layer"]: row for row in (*some[:2], least)}
        after = "; ".join(
            f"layer {layer}: divergence {_short(row['js'])} nats, cosine {_short(row['cosine'])}"
            for layer, row in shown.items()
        )
        sentence = (
            f"{_where(comparison, stack)}On the same {most['count']} texts, layer {most['layer']} changed most and "
            f"layer {least['layer']} least"
        )
        yield sentence, after, True


def _matching_findings(comparison: Comparison) -> Sentences:
    by_name = dict(zip(comparison.names, comparison.studies, strict=True))
    for row in comparison.matching.to_dict("records"):
        if row["within"] != "stack":
            continue
        name, other = plain(row["study"], 80), plain(row["other"], 80)
        is_site = any(is_shared(by_name[row[of]], row["stack"]) for of in ("study", "other"))
        noun = "heads (counted once per layer)" if is_site else "heads"
        if row["unmatched"]:
            rest = f"; {row['unmatched']} {noun} of the larger model have no match"
        else:
            rest = _same_numbers(comparison, row)
        sentence = (
            f"{_where(comparison, row['stack'])}{row['matched']} {noun} of {name} are matched to {noun} of {other} "
            f"at a mean distance of {_short(row['distance'])} (between their statistics, in standard deviations)"
        )
        after = f"shuffled heads: {_short(row['null'])} (p = {row['probability']:.2g}){rest}"
        yield sentence, after, row["probability"] < 0.05


def _same_numbers(comparison: Comparison, row: dict[Any, Any]) -> str:
    """The number of heads matched to the head with the same address: nearly all after fine-tuning."""
    some = comparison.matches
    for key in ("study", "other", "stack", "within"):
        some = some[some[key] == row[key]]
    own = int(((some["layer"] == some["other_layer"]) & (some["head"] == some["other_head"])).sum())
    return f"; {own} of them are matched to the head of the same layer and number"


def _smoothness_findings(comparison: Comparison) -> Sentences:
    """The correlation of confidence between neighbouring layers; of another statistic if confidence is missing."""
    table = comparison.smoothness
    for stack in dict.fromkeys(table["stack"]) if len(table) else ():
        for form, (words, shuffled) in SMOOTHNESS.items():
            some = table[(table["stack"] == stack) & (table["form"] == form)]
            names = list(some["statistic"])
            statistic = "confidence" if "confidence" in names else next(iter(names), None)
            for row in some[some["statistic"] == statistic].to_dict("records"):
                is_clear = row["probability"] < 0.05
                sentence = (
                    f"{_where(comparison, stack)}In {plain(row['study'], 80)}, the correlation of {plain(statistic)} "
                    f"between {words} is {_short(row['value'])}"
                )
                after = (
                    f"95 % interval [{_short(row['low'])}, {_short(row['high'])}], "
                    f"{'above' if is_clear else 'not above'} the values for {shuffled} ({_short(row['null_low'])} to "
                    f"{_short(row['null_high'])}; p = {row['probability']:.2g})"
                )
                yield sentence, after, is_clear


def _where(comparison: Comparison, stack: str) -> str:
    """The stack in front of a sentence, if there are several; else empty."""
    return f"{plain(stack).capitalize()}: " if comparison.layers["stack"].nunique() > 1 else ""


def _roles(comparison: Comparison) -> Table:
    """The number of heads with each role and of all heads, a column per model. A head of shared layers counts once."""
    if not len(comparison.roles):
        return [], []
    columns = [(study, _heads_by_role(study), keys_of(study.heads)) for study in comparison.studies]
    shares: dict[str, float] = {}  # by role, summed over the models
    for study, by_role, every in columns:
        for role, heads in by_role.items():
            share = count_heads(study, heads) / count_heads(study, every)
            shares[role] = shares.get(role, 0.0) + share

    def cells(role: str) -> Iterator[str]:
        for study, by_role, every in columns:
            yield count_text(study, by_role.get(role, ()), every, noun="") if by_role else "–"

    roles = sorted(shares, key=lambda role: (-shares[role], role))
    rows = [[role_label(role), *cells(role)] for role in roles]
    return ["role", *(plain(name, 60) for name in comparison.names)], rows


def _heads_by_role(study: Study) -> dict[str, list[HeadKey]]:
    roles = study.tables.get("roles")
    if roles is None or not {"stack", "layer", "head", "role"} <= set(roles):
        return {}
    return {str(role): keys_of(some) for role, some in roles.groupby("role")}


def _matching(comparison: Comparison) -> Table:
    headings = [
        "models",
        "stack",
        "matched within",
        "pairs",
        "mean distance",
        "distance if both were one head",
    ]
    rows = [
        [
            f"{plain(row['study'], 60)}, {plain(row['other'], 60)}",
            plain(row["stack"]),
            "the same depth" if row["within"] == "depth" else "the stack",
            str(row["matched"]),
            _short(row["distance"]),
            _short(row["noise"]),
            _interval(row, "null"),
            f"{row['probability']:.2g}",
            _short(row["depth_correlation"]),
        ]
        for row in comparison.matching.to_dict("records")
    ]
    return [*headings, "shuffled", "p", "correlation of depths"], rows


def _matches(comparison: Comparison) -> Table:
    """The nearest pairs over the whole stack."""
    table = comparison.matches
    if not len(table):
        return [], []
    nearest = table[table["within"] == "stack"].sort_values("distance", kind="stable")
    several = comparison.layers["stack"].nunique() > 1
    rows = []
    for row in nearest.head(MOST_MATCHES).to_dict("records"):
        stack = f"{plain(row['stack'])}." if several else ""
        head = f"{plain(row['study'], 60)} {stack}{row['layer']}.{row['head']}"
        other = f"{plain(row['other'], 60)} {stack}{row['other_layer']}.{row['other_head']}"
        rows.append([head, other, *(_short(row[name]) for name in ("distance", "noise", "chance"))])
    headings = [
        "head",
        "matched to",
        "distance",
        "distance if both were one head",
    ]
    return [*headings, "share of shuffled pairs that are as near"], rows


def _layer_changes(comparison: Comparison) -> Table:
    headings = [
        "layer",
        "divergence, nats",
        "divergence between two texts",
        "cosine",
        "cosine between two texts",
        "texts",
    ]
    rows = [
        [
            f"{plain(row['stack'])} {row['layer']}",
            _interval(row, "js"),
            _short(row["floor_js"]),
            _interval(row, "cosine"),
            _short(row["floor_cosine"]),
            str(row["count"]),
        ]
        for row in comparison.layer_changes.to_dict("records")
    ]
    return headings, rows


def _interval(row: dict[Any, Any], name: str) -> str:
    """value [low, high] of a column."""
    return f"{_short(row[name])} [{_short(row[f'{name}_low'])}, {_short(row[f'{name}_high'])}]"


def _short(value: float) -> str:
    return f"{value:.3f}".replace("-", "−") if math.isfinite(value) else "–"
