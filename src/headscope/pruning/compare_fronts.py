"""Compare the fronts of searches and gates of one model and task, and the roles of the heads they keep."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headscope.config.names import SEARCHES_BY
from headscope.errors import HeadscopeError
from headscope.heads import Head, HeadSet
from headscope.study.schema.names import RoleName
from headscope.study.schema.record import RunRecord, Section
from headscope.study.schema.tables import TABLES
from headscope.study.study import Study

if TYPE_CHECKING:
    import pandas as pd

# Groups of Voita et al. (2019); other roles keep their names.
GROUPS = {
    "previous token": "positional",
    "next token": "positional",
    "itself": "positional",
    "classification token": "special tokens",
    "separators": "special tokens",
}


def survivors(fronts: pd.DataFrame, roles: pd.DataFrame) -> pd.DataFrame:
    """Rows of survivors.csv: for each set and each role, the number of remaining heads with the role.

    expected  that number if the remaining heads were chosen at random
    p         probability of at least that number if they were chosen at random (hypergeometric)
    """
    from scipy.stats import hypergeom

    with_role: dict[str, set[Head]] = {}
    for row in roles.to_dict("records"):
        group = GROUPS.get(str(row["role"]), RoleName.parse(str(row["role"])).kind)
        head = Head(row["stack"], int(row["layer"]), int(row["head"]))
        with_role.setdefault(group, set()).add(head)
    heads = tuple(sorted({head for members in with_role.values() for head in members}))
    rows = []
    for row in fronts.to_dict("records"):
        removed = HeadSet(row["heads"], among=heads) if row["heads"] else ()
        remaining = set(heads).difference(removed)
        for role, members in with_role.items():
            count = len(members & remaining)
            rows.append(
                {
                    **{name: row[name] for name in ("search", "draw", "removed")},
                    "left": len(remaining),
                    "role": role,
                    "with_role": len(members),
                    "kept": count,
                    "expected": len(members) * len(remaining) / len(heads),
                    "p": float(hypergeom.sf(count - 1, len(heads), len(members), len(remaining))),
                }
            )
    return TABLES["survivors"].frame(rows)


def roles_in(folder: Path, sha256: str) -> pd.DataFrame:
    """The table of roles in a study of `headscope analyze`; a study of another model is refused.

    sha256  digest of the model's weights
    """
    study = Study(folder)
    if "roles" not in study.tables:
        raise HeadscopeError(
            "a study without roles", where=folder, expected="one of headscope analyze"
        )
    if study.record.get("model", {}).get("sha256") != sha256:
        raise HeadscopeError("a study of another model", where=folder, expected="the same weights")
    return study.tables["roles"]


def find_difference(first: RunRecord, second: RunRecord) -> str | None:
    """The name of what differs between two studies, if their fronts cannot be compared; else None."""
    compared: dict[str, Callable[[RunRecord], Any]] = {
        "model": lambda record: record["model"]["sha256"],
        "task": lambda record: record["pruning"]["task"],
        "split that is reported on": lambda record: record["pruning"].get("reported_on"),
        "data": lambda record: (
            {file["sha256"] for file in record["pruning"].get("data", [])} or None
        ),
    }
    for name, value_of in compared.items():
        value, other = value_of(first), value_of(second)
        are_sets = isinstance(value, set) and isinstance(other, set)
        # One data file in common is enough: studies may select on different files.
        if not (value & other if are_sets else value == other):
            return name
    return None


def join_fronts(studies: Sequence[tuple[str, Study]]) -> pd.DataFrame:
    """One table of the fronts of named studies; the column `search` names each of them."""
    import pandas as pd

    names = [_search_name(study.record["pruning"]) for _, study in studies]
    tables = []
    for name, (folder, study) in zip(names, studies, strict=True):
        full_name = f"{name} ({folder})" if names.count(name) > 1 else name
        table = study.tables["front"]
        labels = [f"{full_name}, {repair}" if repair else full_name for repair in table["repair"]]
        tables.append(table.assign(search=labels))
    return TABLES["fronts"].convert(pd.concat(tables, ignore_index=True))


def _search_name(pruning: Section) -> str:
    """The name of the search, with its importance if it uses one: "rank by gradient"."""
    by = pruning.get("by") if pruning["search"] in SEARCHES_BY else None
    return f"{pruning['search']}{f' by {by}' if by else ''}"


def lines(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """(name, rows) of each search, for a line of a figure: sizes in order, mean over random draws."""
    for name, rows in table.groupby("search", sort=False):
        columns = ["metric", "metric_low", "metric_high", "metric_change"]
        mean = rows.groupby("removed", as_index=False)[columns].mean()
        yield str(name), mean.sort_values("removed")
