"""Colourings of the map of heads by labels instead of numbers: roles, significance, clusters, sets of heads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from headscope.ablation.ablation_results import LOSS
from headscope.report.drawing import palette
from headscope.report.drawing.palette import SERIES
from headscope.report.head_cards import roles_by_head
from headscope.report.role_groups import FAMILIES, brief_of, family_of, tendency_family
from headscope.report.shared_heads import HeadKey, head_key
from headscope.report.study_access import (
    records_of,
    shape_of,
    stacks_of,
    statistics_of,
    values_for,
)
from headscope.report.table_cells import is_missing
from headscope.report.tendencies import RULE, tendencies
from headscope.report.text import plain
from headscope.study.schema.names import CUT, StatisticName

if TYPE_CHECKING:
    from headscope.study.study import Study

CLUSTERS = (*SERIES[1:], "#f0e442", "#332288", "#b8a77a", "#7f8c8d", "#dcc6e0")
WORSE, BETTER, UNCLEAR = "worse without it", "better without it", "no significant change"
MATTERS = {WORSE: palette.WORSE, BETTER: palette.BETTER, UNCLEAR: "#d4dae0"}
STARS = {WORSE: "★", BETTER: "☆", UNCLEAR: ""}
GONE, STAYS = "#5c6975", "#a5dcc0"
TENDS = "{}, tendency"
Labels = dict[HeadKey, tuple[str, str]]  # by head: its label, and the text in its cell


def colourings_of(study: Study) -> list[dict[str, Any]]:
    """For the page's script: title, definition, labels with colours, and [label, text] of each head by stack.

    A long text is followed by a brief one."""
    makers = (_by_role, _by_significance, _by_set, _by_cluster)
    return [colouring for make in makers for colouring in make(study)]


def _colouring(
    study: Study,
    title: str,
    definition: str,
    labels: Labels,
    colours: Mapping[str, str],
    pale: Collection[str] = (),
) -> Iterator[dict[str, Any]]:
    """One colouring, if any head has a label.

    colours  of all labels, in the order of the legend
    pale     labels that are drawn paler
    """
    if not labels:
        return
    counts = Counter(label for label, _ in labels.values())
    names = [name for name in colours if name in counts]
    stacks = []
    for stack in stacks_of(study):
        layers, heads = shape_of(study, stack)
        cells: list[Any] = [None] * (layers * heads)
        for (of_stack, layer, head), (label, text) in labels.items():
            if of_stack == stack:
                cell = [names.index(label), text, brief_of(text)]
                cells[layer * heads + head] = cell[: 2 if cell[1] == cell[2] else 3]
        stacks.append(cells if any(cells) else None)
    legend = [
        {
            "text": plain(name, 60),
            "colour": colours[name],
            "heads": counts[name],
            **({"pale": True} if name in pale else {}),
        }
        for name in names
    ]
    texts = {"title": plain(title, 80), "definition": plain(definition, 600)}
    yield {**texts, "labels": legend, "stacks": stacks}


def _by_role(study: Study) -> Iterator[dict[str, Any]]:
    roles = roles_by_head(study)
    colours: dict[str, str] = {}
    labels = {key: family_of(of_head[0].name, study) for key, of_head in roles.items()}
    for key, tendency in tendencies(study).items():
        family, text = tendency_family(tendency.name)
        labels[key] = TENDS.format(family), text
    pale = {TENDS.format(family) for family in FAMILIES}
    for family, colour in FAMILIES.items():
        colours |= {family: colour, TENDS.format(family): colour}
    definition = "Each row is a layer (0 is next to the input), each column a head. " + (
        "A cell shows the main role of the head: a role whose value is above its threshold. "
        if roles
        else ""
    )
    if any(label in pale for label, _ in labels.values()):
        definition += f"{RULE} "
    definition += "Heads without a role or tendency are grey."
    yield from _colouring(study, "main role", definition, labels, colours, pale)


def _by_significance(study: Study) -> Iterator[dict[str, Any]]:
    labels: Labels = {}
    for row in records_of(study, "significance"):
        if row["statistic"] == LOSS and not is_missing(row["value"]):
            direction = WORSE if row["value"] > 0 else BETTER
            label = direction if row["is_significant"] is True else UNCLEAR
            labels[head_key(row)] = label, STARS[label]
    definition = (
        "Whether the loss changes significantly when the head alone is ablated (p with Holm's correction for testing "
        "all heads is below 0.05). A change that is not significant may still be real: more examples might show it."
    )
    yield from _colouring(study, "effect of ablation", definition, labels, MATTERS)


def _by_set(study: Study) -> Iterator[dict[str, Any]]:
    """The heads that a plan removes, and those that a gate keeps."""
    for name in statistics_of(study):
        parsed = StatisticName.parse(name)
        is_cut = parsed.base == CUT
        if not is_cut and not parsed.is_gate:
            continue
        gone, stays = ("pruned", "kept") if is_cut else ("closed", "open")
        labels = {
            head_key(row): (gone, "✕") if (row["value"] >= 0.5) == is_cut else (stays, "")
            for row in values_for(study, name).to_dict("records")
        }
        definition = (
            "Heads that the plan prunes are marked ✕."
            if is_cut
            else "Heads whose learned gate is closed are marked ✕."
        )
        yield from _colouring(study, name, definition, labels, {stays: STAYS, gone: GONE})


def _by_cluster(study: Study) -> Iterator[dict[str, Any]]:
    rows = [row for row in records_of(study, "clusters") if not is_missing(row["cluster"])]
    numbers = {head_key(row): int(row["cluster"]) for row in rows}
    labels = {place: (f"cluster {number}", str(number)) for place, number in numbers.items()}
    definition = (
        "Heads of one cluster attend similarly (small Jensen–Shannon divergence between their attention). With many "
        "clusters, several have the same colour."
    )
    colours = {
        f"cluster {number}": CLUSTERS[i % len(CLUSTERS)]
        for i, number in enumerate(sorted(set(numbers.values())))
    }
    yield from _colouring(study, "cluster", definition, labels, colours)
