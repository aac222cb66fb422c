"""join, the verb: studies of any commands as one, a chapter a model, and the models compared.

Studies of the same weights, under the same edits, tell of one model. What two of them have under one name is kept once
where it says the same; where it does not, the first keeps the name and the other stands beside it with its study's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from headscope.analysis.compare import Comparison, compare
from headscope.analysis.pattern_substitutes import TABLE as SUBSTITUTES
from headscope.analysis.pattern_substitutes import fixed_pattern_effects
from headscope.analysis.read_study import read_study_or_comparison
from headscope.config.compare import CompareConfig
from headscope.config.edit_record import EditRecord
from headscope.config.shared import Run
from headscope.config.texts import TextData
from headscope.errors import HeadscopeError
from headscope.pruning.compare_fronts import one_table, survivors, unlike
from headscope.statistics import glossary
from headscope.study.lengths import length_note
from headscope.study.lens_agreement import lens_agreement
from headscope.study.local_paths import local_name
from headscope.study.result import Result
from headscope.study.schema.names import StatisticName
from headscope.study.schema.record import ModelRecord
from headscope.study.schema.tables import TABLES
from headscope.study.study import Study

if TYPE_CHECKING:
    import pandas as pd

KEYS = ["stack", "layer", "head"]
SAME = 1e-6  # relative: a csv keeps ten digits, and merging promises 1e-6


class Member(NamedTuple):
    """A study by the name it goes under on the page."""

    name: str
    study: Study


@dataclass(frozen=True)
class Chapter:
    """All that is known of one model.

    study    its studies as one
    members  these studies as they were given
    others   what has the same name in an earlier study and says something else: tables with their records
    notes    how they were joined
    name     the model's, with that of a study behind it where two models have the same
    lengths  a note where the members' texts differ in length
    """

    study: Study
    members: tuple[Member, ...]
    others: tuple[Member, ...] = ()
    notes: tuple[str, ...] = ()
    name: str = ""
    lengths: str = ""


@dataclass
class Joined(Result):
    """Studies as one: `write("index.html")` makes the report."""

    chapters: list[Chapter]
    comparisons: list[Comparison] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    command: str = ""

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """The tables of the studies: by name, or as "MODEL: NAME" if there are several models."""
        several = len(self.chapters) > 1
        return {
            f"{chapter.name}: {name}" if several else name: table
            for chapter in self.chapters
            for name, table in chapter.study.tables.items()
        }

    @property
    def record(self) -> dict[str, Any]:
        """The command, and the record of each model's study."""
        studies = [{"name": c.name, "record": c.study.record} for c in self.chapters]
        return {"command": self.command, "studies": studies, "notes": self.notes}

    def __repr__(self) -> str:
        told = ", ".join(f"{chapter.study!r}" for chapter in self.chapters)
        return f"Joined({told})"


def join(studies: Sequence[str | Path | Study], *, command: str = "", seed: int = 0) -> Joined:
    """Studies of any commands as one: those of the same model joined, models compared.

    studies  directories that any command wrote (a comparison too), or studies
    seed     of the comparison's shuffles
    """
    if isinstance(studies, str | Path | Study):
        studies = [studies]
    if not studies:
        raise HeadscopeError(
            "no study was given", where="STUDY", expected="one or more directories of studies"
        )
    _check_different(studies)
    read = [
        (one, one if isinstance(one, Study) else read_study_or_comparison(one)) for one in studies
    ]
    names = _names([one for one, _ in read])
    members = [
        Member(name, found)
        for name, (_, found) in zip(names, read, strict=True)
        if isinstance(found, Study)
    ]
    comparisons = [found for _, found in read if isinstance(found, Comparison)]
    by_model: dict[object, list[Member]] = {}  # by weights and edits, in the order of the studies
    for member in members:
        by_model.setdefault(_identity(member.study), []).append(member)
    for of_model in by_model.values():
        _check_one_shape(of_model)
    chapters = _named([_chapter(of_model) for of_model in by_model.values()])
    notes: list[str] = []
    if len(chapters) > 1 and not any(_covers(one, chapters) for one in comparisons):
        try:
            comparisons.insert(0, _compared(chapters, seed))
        except HeadscopeError as cause:
            notes.append(f"The models are not compared: {cause.what}.")
    return Joined(chapters, [_with_studies(one, chapters) for one in comparisons], notes, command)


def _check_different(studies: Sequence[str | Path | Study]) -> None:
    seen: set[object] = set()
    for one in studies:
        key = id(one) if isinstance(one, Study) else Path(one).resolve()
        if key in seen:
            where = "STUDY" if isinstance(one, Study) else one
            raise HeadscopeError("given twice", where=where, expected="every study once")
        seen.add(key)


def _names(given: Sequence[str | Path | Study]) -> list[str]:
    """The directories' names, with the one above where two are the same; studies in memory by their number."""

    def named(one: str | Path | Study, depth: int) -> str:
        if isinstance(one, Study):
            return ""
        place = Path(one).resolve()
        is_beside_weights = place.name == "study" and (place.parent / "config.json").exists()
        return "/".join((place.parent if is_beside_weights else place).parts[-depth:])

    names = [named(one, 1) for one in given]
    names = [
        named(one, 2) if names.count(name) > 1 else name
        for one, name in zip(given, names, strict=True)
    ]
    return [
        name if name and names.count(name) == 1 else f"{name or 'study'} {i}"
        for i, name in enumerate(names, 1)
    ]


def _identity(study: Study) -> tuple[str, ...]:
    model = _model(study)
    return str(model.get("sha256") or model.get("name")), *(
        json.dumps(EditRecord.read(edit).as_json(), sort_keys=True)
        for edit in model.get("edits") or ()
    )


def _model(study: Study) -> Mapping[str, Any]:
    model = study.record.get("model")
    return model if isinstance(model, dict) else {}


def _check_one_shape(of_model: Sequence[Member]) -> None:
    """Studies of the same weights must agree on how many layers and heads these have."""
    told = [member for member in of_model if _model(member.study).get("layers")]
    for member in told[1:]:
        for key in ("layers", "heads"):
            mine, other = _model(told[0].study).get(key), _model(member.study).get(key)
            if mine != other:
                what = f"contradicts {told[0].name}: {key} {other} here and {mine} there, of the same weights"
                raise HeadscopeError(what, where=member.name, fix="Make one of them again")


def _chapter(members: Sequence[Member]) -> Chapter:
    first = members[0].study
    joined = Study(first.heads, dict(first.maps), first.record.copy(), dict(first.tables))
    others: list[Member] = []
    notes: list[str] = []
    for member in members[1:]:
        left = _add(joined, member, notes)
        if left is not None:
            others.append(left)
    commands = [one.study.record.get("command") for one in members]
    joined.record["command"] = "\n".join(dict.fromkeys(str(one) for one in commands if one))
    if len(members) > 1 and (rows := lens_agreement(joined)):
        joined.tables["lenses"] = TABLES["lenses"].frame(rows)
    tried = [found for one in members if len(found := fixed_pattern_effects(one.study))]
    if tried:
        joined.tables[SUBSTITUTES] = tried[0]
    others += _fronts(joined, members, notes)
    lengths = length_note([(one.name, one.study.record) for one in members])
    return Chapter(joined, tuple(members), tuple(others), tuple(notes), lengths=lengths)


def _add(joined: Study, member: Member, notes: list[str]) -> Member | None:
    """Put a study's rows, tables, maps and record to the others; what is left over, if anything, is given back."""
    heads, renamed = _beside(joined.heads, member)
    if renamed:
        notes.append(
            f"{', '.join(renamed)}: {member.name} has other values than an earlier study (other texts or another "
            f"task); they are the rows named “({member.name})”."
        )
    joined.heads = heads
    left = {
        name: table
        for name, table in member.study.tables.items()
        if _differs(table, joined.tables.get(name))
    }
    if left:
        notes.append(
            f"{', '.join(f'{name}.csv' for name in left)} of {member.name}: shown in a section of its own."
        )
    for name, table in member.study.tables.items():
        joined.tables.setdefault(name, table)
    other_maps = [
        name
        for name, one in member.study.maps.items()
        if not _is_close(one, joined.maps.get(name, one))
    ]
    if other_maps:
        notes.append(
            f"Maps ({', '.join(other_maps)}) of {member.name} are other ones than those shown."
        )
    joined.maps = {**member.study.maps, **joined.maps}
    joined.record = {**member.study.record, **joined.record}
    rest = Study(member.study.heads, {}, member.study.record, left)
    return Member(member.name, rest) if left else None


def _beside(heads: pd.DataFrame, member: Member) -> tuple[pd.DataFrame, list[str]]:
    """The rows of both; statistics that differ are renamed in the second."""
    import pandas as pd

    parts, renamed = [heads], []
    known = set(heads["statistic"])
    for statistic, rows in member.study.heads.groupby("statistic", sort=False):
        if statistic not in known:
            parts.append(rows)
            continue
        here = heads[heads["statistic"] == statistic]
        both = rows.merge(here, on=KEYS, suffixes=("", "_known"), how="left")
        if _is_close(
            both["value"], both["value_known"].where(both["value_known"].notna(), both["value"])
        ):
            parts.append(rows[both["count_known"].isna().to_numpy()])
        else:
            qualified = replace(StatisticName.parse(str(statistic)), study=member.name)
            renamed.append(str(statistic))
            parts.append(rows.assign(statistic=str(qualified)))
    parts = [part for part in parts if len(part)]
    return (pd.concat(parts, ignore_index=True) if parts else heads), renamed


def _is_close(one: Any, other: Any) -> bool:
    left, right = np.asarray(one, float), np.asarray(other, float)
    is_alike = left.shape == right.shape
    return is_alike and np.allclose(left, right, rtol=SAME, atol=1e-9, equal_nan=True)


def _differs(table: pd.DataFrame, known: pd.DataFrame | None) -> bool:
    """Whether a table of the same name says something else."""
    if known is None:
        return False
    if list(table.columns) != list(known.columns) or len(table) != len(known):
        return True
    for name in table:
        if table[name].dtype.kind in "fiub" and known[name].dtype.kind in "fiub":
            if not _is_close(table[name], known[name]):
                return True
        elif not table[name].fillna("").astype(str).equals(known[name].fillna("").astype(str)):
            return True
    return False


def _fronts(joined: Study, members: Sequence[Member], notes: list[str]) -> list[Member]:
    """Searches of one task and split on the same axes: those first found in the study, others beside it."""
    left = [one for one in members if "front" in one.study.tables and "pruning" in one.study.record]
    found = []
    while left:
        first, of_task = left[0], [left[0]]
        others: list[Member] = []
        for one in left[1:]:
            is_alike = unlike(first.study.record, one.study.record) is None
            (of_task if is_alike else others).append(one)
        left = others
        if len(of_task) < 2:
            continue
        tables = {"fronts": one_table(of_task)}
        if "roles" in joined.tables:
            try:
                tables["survivors"] = survivors(tables["fronts"], joined.tables["roles"])
            except HeadscopeError as cause:
                # Roles of the encoder alone, and a search in another stack
                notes.append(
                    f"What the heads do that searches keep is not known of all: {cause.what}."
                )
        record = of_task[0].study.record
        searched = {key: record["pruning"].get(key) for key in ("task", "metric", "reported_on")}
        if "fronts" not in joined.tables:
            joined.tables |= tables
            joined.record["fronts"] = searched
        else:
            study = Study(joined.heads[:0], {}, {**record, "fronts": searched}, tables)
            found.append(Member(str(searched["task"]), study))
    return found


def _named(chapters: list[Chapter]) -> list[Chapter]:
    names = [local_name(str(_model(one.study).get("name") or "model")) for one in chapters]
    return [
        replace(one, name=f"{name} ({one.members[0].name})" if names.count(name) > 1 else name)
        for one, name in zip(chapters, names, strict=True)
    ]


def _compared(chapters: Sequence[Chapter], seed: int) -> Comparison:
    """The models by what their heads attend to; importances and cuts are of tasks, not of heads' behaviour."""
    known = glossary()
    studies = []
    for one in chapters:
        heads, record = one.study.heads, one.study.record.copy()
        record["model"] = cast("ModelRecord", {**_model(one.study), "name": one.name})
        names = [StatisticName.parse(str(name)) for name in heads["statistic"]]
        of_attention = heads[[not name.study and name.base in known for name in names]]
        if len(of_attention):
            studies.append(Study(of_attention, {}, record, one.study.tables))
    if len(studies) < 2:
        raise HeadscopeError("fewer than two of them have statistics of attention", where="STUDY")
    return compare(studies, CompareConfig(), TextData(), Run(seed=seed))


def _covers(comparison: Comparison, chapters: Sequence[Chapter]) -> bool:
    """Whether a comparison that was given is one of all these models."""
    compared = {_identity(study)[0] for study in comparison.studies}
    return {_identity(chapter.study)[0] for chapter in chapters} <= compared


def _with_studies(comparison: Comparison, chapters: Sequence[Chapter]) -> Comparison:
    """A comparison from disk with the rows of those of its studies that were given too."""
    known = {_identity(chapter.study)[0]: chapter.study for chapter in chapters}
    comparison.studies = [
        study if len(study.heads) else known.get(_identity(study)[0], study)
        for study in comparison.studies
    ]
    return comparison
