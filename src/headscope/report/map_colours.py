"""Colourings of the map of heads that are no numbers: roles, clusters, what matters, what is cut or kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from headscope.ablation.ablation_results import LOSS
from headscope.report.drawing import palette
from headscope.report.drawing.palette import SERIES
from headscope.report.head_cards import roles_by_head
from headscope.report.role_groups import FAMILIES, brief_of, family_of
from headscope.report.shared_heads import HeadKey
from headscope.report.study_access import shape_of, stacks_of, statistics_of
from headscope.report.text import plain
from headscope.study.schema.names import CUT, StatisticName

if TYPE_CHECKING:
    from headscope.study.study import Study

CLUSTERS = (*SERIES[1:], "#f0e442", "#332288", "#b8a77a", "#7f8c8d", "#dcc6e0")
WORSE, BETTER, UNCLEAR = "worse without it", "better without it", "no evidence"
MATTERS = {WORSE: palette.WORSE, BETTER: palette.BETTER, UNCLEAR: "#d4dae0"}
GONE, STAYS = "#5c6975", "#a5dcc0"
Labels = dict[HeadKey, tuple[str, str]]  # of a head: its label, and what stands in its cell


def colourings_of(study: Study) -> list[dict[str, Any]]:
    """For the page's script: title, definition, labels with colours, and [label, text] of each head by stack.

    Behind a long text stands a brief one."""
    return [*_roles(study), *_significance(study), *_sets(study), *_clusters(study)]


def _packed(
    study: Study,
    title: str,
    definition: str,
    of_head: Labels,
    colours: Callable[[str, int], str],
    order: list[str],
) -> dict[str, Any]:
    stacks = stacks_of(study)
    names = [name for name in order if any(label == name for label, _ in of_head.values())]
    numbers = {name: i for i, name in enumerate(names)}
    found: list[list[Any] | None] = []
    for stack in stacks:
        layers, heads = shape_of(study, stack)
        cells: list[Any] = [None] * (layers * heads)
        for (of, layer, head), (label, text) in of_head.items():
            if of == stack:
                brief = brief_of(text)
                cells[layer * heads + head] = [
                    numbers[label],
                    text,
                    *([brief] if brief != text else []),
                ]
        found.append(cells if any(cell is not None for cell in cells) else None)
    labels = [
        {
            "text": plain(name, 60),
            "colour": colours(name, i),
            "heads": sum(one == name for one, _ in of_head.values()),
        }
        for name, i in numbers.items()
    ]
    return {
        "title": plain(title, 80),
        "definition": plain(definition, 600),
        "labels": labels,
        "stacks": found,
    }


def _roles(study: Study) -> Iterator[dict[str, Any]]:
    of_head = {
        place: family_of(roles[0].name, study) for place, roles in roles_by_head(study).items()
    }
    if of_head:
        definition = (
            "Each head's main role: relations, antecedents and rare words before positions, these before kinds of "
            "tokens, how broad or sure attention is last; of several alike the strongest. Grey: no rule holds. "
            "The numbers count heads whose value is beyond the rule's threshold, also if its interval is not."
        )
        yield _packed(
            study, "main role", definition, of_head, lambda name, _: FAMILIES[name], list(FAMILIES)
        )


def _significance(study: Study) -> Iterator[dict[str, Any]]:
    table = study.tables.get("significance")
    rows = (
        []
        if table is None
        else table[(table["statistic"] == LOSS) & table["value"].notna()].to_dict("records")
    )
    of_head: Labels = {}
    for row in rows:
        is_sure = row["is_significant"] is True
        label = UNCLEAR if not is_sure else WORSE if row["value"] > 0 else BETTER
        of_head[_place(row)] = label, {WORSE: "★", BETTER: "☆", UNCLEAR: ""}[label]
    if of_head:
        definition = (
            "Whether the loss changes when the head is removed alone, after Holm's correction over all heads. "
            "No evidence is not evidence that a head does nothing."
        )
        yield _packed(
            study, "what matters", definition, of_head, lambda name, _: MATTERS[name], list(MATTERS)
        )


def _sets(study: Study) -> Iterator[dict[str, Any]]:
    """What a plan removes, what a gate keeps."""
    for name in statistics_of(study):
        parsed = StatisticName.parse(name)
        is_cut, is_gate = parsed.base == CUT, parsed.is_gate
        if not (is_cut or is_gate):
            continue
        gone, stays = ("cut", "stays") if is_cut else ("closed", "open")
        rows = study.heads[
            (study.heads["statistic"] == name) & study.heads["value"].notna()
        ].to_dict("records")
        is_gone = [(row["value"] >= 0.5) == is_cut for row in rows]
        of_head = {
            _place(row): (gone, "✕") if one else (stays, "")
            for row, one in zip(rows, is_gone, strict=True)
        }
        told = "What the plan removes." if is_cut else "What the learned gates leave open."
        colours = {gone: GONE, stays: STAYS}
        yield _packed(study, name, told, of_head, lambda one, _, of=colours: of[one], [stays, gone])  # type: ignore[misc]


def _clusters(study: Study) -> Iterator[dict[str, Any]]:
    table = study.tables.get("clusters")
    known = [] if table is None else table.dropna(subset=["cluster"]).to_dict("records")
    of_head = {
        _place(row): (f"cluster {int(row['cluster'])}", str(int(row["cluster"]))) for row in known
    }
    if of_head:
        order = sorted(
            {label for label, _ in of_head.values()},
            key=lambda label: int(label.rpartition(" ")[2]),
        )
        definition = "Heads that attend alike, by Jensen–Shannon divergence; colours repeat where there are many."
        yield _packed(
            study, "cluster", definition, of_head, lambda _, i: CLUSTERS[i % len(CLUSTERS)], order
        )


def _place(row: dict[Any, Any]) -> HeadKey:
    return str(row["stack"]), int(row["layer"]), int(row["head"])
