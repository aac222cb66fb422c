"""fronts, the verb: searches and gates of one model and task on the same axes, and what the heads they keep do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headscope.errors import HeadscopeError
from headscope.heads import Head, HeadSet
from headscope.study.run_record import build_record
from headscope.study.schema.names import RoleName
from headscope.study.schema.record import RunRecord
from headscope.study.schema.tables import TABLES
from headscope.study.study import Study
from headscope.study.study_dir import place_of
from headscope.tables import to_frame

if TYPE_CHECKING:
    import pandas as pd

# What Voita asks after; every other role goes by its own name.
GROUPS = {
    "previous token": "positional",
    "next token": "positional",
    "itself": "positional",
    "classification token": "special tokens",
    "separators": "special tokens",
}


def fronts(
    studies: Sequence[str | Path], *, roles: str | Path | None = None, command: str = ""
) -> Study:
    """The fronts of several cuts or gates, which must be of one model, task and split.

    studies  directories that `headscope prune` or `headscope gate` wrote
    roles    a study of `headscope analyze`: what the heads do that each set leaves, against all heads of the model
    """
    if len(studies) < 2:
        raise HeadscopeError(
            "one front is no comparison", where="fronts", expected="two or more studies"
        )
    found = [(Path(place), _study_in(Path(place))) for place in studies]
    for place, study in found[1:]:
        if other := unlike(found[0][1].record, study.record):
            raise HeadscopeError(
                f"another {other} than {found[0][0]} has", where=place, expected="all alike"
            )
    table = one_table([(place.name, study) for place, study in found])
    first = found[0][1].record
    fronts = {key: first["pruning"].get(key) for key in ("task", "metric", "reported_on")}
    record = build_record(first["model"], {"fronts": fronts, "durations": {}}, command=command)
    tables = {"fronts": table}
    if roles is not None:
        tables["survivors"] = survivors(table, roles_in(Path(roles), first["model"]["sha256"]))
    return Study(to_frame([]), {}, record, tables)


def survivors(fronts: pd.DataFrame, roles: pd.DataFrame) -> pd.DataFrame:
    """For each set that a search leaves and each role: how many heads with it stay, and whether chance would do that.

    p  probability that as many or more would stay if as many heads were left by chance (hypergeometric)
    """
    from scipy.stats import hypergeom

    every = [
        Head(row["stack"], int(row["layer"]), int(row["head"])) for row in roles.to_dict("records")
    ]
    heads = tuple(dict.fromkeys(every))
    having: dict[str, set[Head]] = {}
    for head, role in zip(every, roles["role"], strict=True):
        having.setdefault(_group(str(role)), set()).add(head)
    rows = []
    for one in fronts.to_dict("records"):
        removed = set(HeadSet(one["heads"], among=heads)) if one["heads"] else set()
        left = set(heads) - removed
        for role, those in having.items():
            kept = len(those & left)
            chance = float(hypergeom.sf(kept - 1, len(heads), len(those), len(left)))
            rows.append(
                {
                    "search": one["search"],
                    "draw": one["draw"],
                    "removed": one["removed"],
                    "left": len(left),
                    "role": role,
                    "with_role": len(those),
                    "kept": kept,
                    "expected": len(those) * len(left) / len(heads),
                    "p": chance,
                }
            )
    return TABLES["survivors"].frame(rows)


def _group(role: str) -> str:
    return GROUPS.get(role, RoleName.parse(role).kind)


def _study_in(place: Path) -> Study:
    study = Study(place_of(place))
    if "front" not in study.tables or "pruning" not in study.record:
        raise HeadscopeError(
            "a study without a front",
            where=place,
            expected="one of headscope prune or headscope gate",
        )
    return study


def roles_in(place: Path, sha256: str) -> pd.DataFrame:
    """What the heads of the model with this digest do, from a study of `headscope analyze`."""
    study = Study(place)
    if "roles" not in study.tables:
        raise HeadscopeError(
            "a study without roles", where=place, expected="one of headscope analyze"
        )
    if study.record.get("model", {}).get("sha256") != sha256:
        raise HeadscopeError("a study of another model", where=place, expected="the same weights")
    return study.tables["roles"]


def unlike(first: RunRecord, second: RunRecord) -> str | None:
    """What keeps two fronts from being drawn on the same axes, by the records of their studies; None: nothing."""
    asked: dict[str, Callable[[RunRecord], object]] = {
        "model": lambda record: record["model"]["sha256"],
        "task": lambda record: record["pruning"]["task"],
        "split that is reported on": lambda record: record["pruning"].get("reported_on"),
        "data": lambda record: (
            {file["sha256"] for file in record["pruning"].get("data", [])} or None
        ),
    }
    for name, of in asked.items():
        mine, other = of(first), of(second)
        same = (
            bool(mine & other)
            if isinstance(mine, set) and isinstance(other, set)
            else mine == other
        )
        if not same:
            return name
    return None


def one_table(found: Sequence[tuple[str, Study]]) -> pd.DataFrame:
    """The fronts of studies by name, one under the other."""
    import pandas as pd

    parts = [_front_of(study, name) for (_, study), name in zip(found, _names(found), strict=True)]
    return TABLES["fronts"].convert(pd.concat(parts, ignore_index=True))


def _names(found: Sequence[tuple[str, Study]]) -> list[str]:
    """By the search, and by what it went; by the study too where that is not enough."""

    def named(record: RunRecord) -> str:
        told = record["pruning"]
        by = told.get("by") if told["search"] in ("rank", "iterative") else None
        return f"{told['search']}{f' by {by}' if by else ''}"

    names = [named(study.record) for _, study in found]
    return [
        f"{name} ({place})" if names.count(name) > 1 else name
        for name, (place, _) in zip(names, found, strict=True)
    ]


def _front_of(study: Study, name: str) -> pd.DataFrame:
    table = study.tables["front"]
    labels = [f"{name}, {repair}" if repair else name for repair in table["repair"]]
    return table.assign(search=labels)


def lines(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Each search with its sizes in order, random draws averaged."""
    for name, part in table.groupby("search", sort=False):
        mean = part.groupby("removed", as_index=False)[
            ["metric", "metric_low", "metric_high", "metric_change"]
        ].mean()
        yield str(name), mean.sort_values("removed")
