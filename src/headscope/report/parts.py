"""The parts of the page that are tables, in their order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headscope.report.cut_parts import fixing, front
from headscope.report.head_cards import roles_by_head
from headscope.report.head_cells import head_cell
from headscope.report.lens_parts import lens_parts
from headscope.report.mask_parts import learned_masks, mask_table
from headscope.report.matter_parts import agreement, all_but_one, significance
from headscope.report.study_access import stacks_of
from headscope.report.table_cells import Cell, Part, measured, number
from headscope.report.text import plain
from headscope.report.word_parts import coreference, rare_words, relations

if TYPE_CHECKING:
    from headscope.study.study import Study


def parts_of(study: Study) -> list[Part]:
    """Those whose tables are there and not empty."""
    makers = [
        _roles,
        front,
        fixing,
        learned_masks,
        mask_table,
        significance,
        all_but_one,
        agreement,
    ]
    makers += [relations, coreference, rare_words]
    made = [*(make(study) for make in makers), *lens_parts(study)]
    return [part for part in made if part is not None and part.rows]


def _roles(study: Study) -> Part | None:
    roles = roles_by_head(study)
    rows = [
        [
            head_cell(study, place),
            Cell(role.name, role.name),
            measured(role.value, role.low, role.high),
            number(role.baseline),
            Cell(
                plain(role.rule)
                if role.is_sure
                else f"{plain(role.rule)} (the interval reaches below)",
                role.rule,
            ),
        ]
        for place, of_head in sorted(
            roles.items(), key=lambda item: (stacks_of(study).index(item[0][0]), item[0][1:])
        )
        for role in of_head
    ]
    heads = study.heads[["stack", "layer", "head"]].drop_duplicates()
    note = f"{len(roles)} of {len(heads)} heads have a role by the rules named here, several heads more than one. "
    note += "A head's card shows it at work: choose a head."
    columns = ("head", "role", "value", "baseline", "rule")
    return Part(
        "roles",
        "What each head does",
        note,
        columns,
        rows,
        "roles.csv",
        ("roles",),
        frozenset({1, 4}),
    )
