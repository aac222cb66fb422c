"""Columns of all tables for docs/reference/tables.md: `python -m headscope.study.schema.reference`."""

from __future__ import annotations

from collections.abc import Iterator

from headscope.study.schema.table import Column, Table
from headscope.study.schema.tables import COMPARISON_TABLES, HEADS, TABLES

KINDS = {"text": "text", "whole number": "integer", "number": "float", "flag": "boolean"}


def reference() -> str:
    """Markdown: a row for each table of a study, then for each table of a comparison."""
    of_study = _rows("file", [HEADS, *TABLES.values()])
    of_comparison = _rows("file of a comparison", list(COMPARISON_TABLES.values()))
    return "\n".join([*of_study, "", *of_comparison])


def _rows(heading: str, tables: list[Table]) -> Iterator[str]:
    yield f"| {heading} | contents | columns |"
    yield "|---|---|---|"
    for table in tables:
        yield f"| `{table.name}.csv` | {table.sentence} | {_columns(table)} |"


def _columns(table: Table) -> str:
    """Columns of one type together: `layer`, `head` (integer)."""
    groups: list[tuple[str, list[str]]] = []
    for name, column in table.columns.items():
        if not groups or groups[-1][0] != _type(column):
            groups.append((_type(column), []))
        groups[-1][1].append(f"`{name}`")
    return ", ".join(f"{', '.join(names)} ({kind})" for kind, names in groups)


def _type(column: Column) -> str:
    empty = ", may be empty" if column.may_be_empty else ""
    return f"{KINDS[column.kind]}{empty}{', optional' if column.is_optional else ''}"


if __name__ == "__main__":
    print(reference())
