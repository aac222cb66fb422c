"""Join studies that any commands wrote: one chapter per model, and a comparison of the models.

Studies are of the same model if weights and edits are the same. If two of them have a statistic with the same name, it
is kept once if the values are equal. Otherwise the first study keeps the name; in the second one, the name of the study
is added to it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
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
from headscope.config.value_types import describe_value
from headscope.errors import HeadscopeError
from headscope.hooks import hook
from headscope.pruning.compare_fronts import find_difference, join_fronts, survivors
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
SAME = 1e-6  # relative tolerance: statistics that were merged from parts are equal up to this


class Member(NamedTuple):
    """A study with its name on the page."""

    name: str
    study: Study


@dataclass(frozen=True)
class Chapter:
    """The studies of one model.

    study    the joined study
    members  the studies that were joined
    others   the members that have tables which differ from the table of the same name in an earlier member; each is
             reduced to these tables
    notes    notes on how the studies were joined
    name     name of the model; if two models have the same name, the name of a study is added
    lengths  a note if the texts of the members differ in length
    """

    study: Study
    members: tuple[Member, ...]
    others: tuple[Member, ...] = ()
    notes: tuple[str, ...] = ()
    name: str = ""
    lengths: str = ""


@dataclass
class Joined(Result):
    """Several studies as one result: `write("index.html")` makes the report."""

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

    def write_tables(self, out: str | Path, *, overwrite: bool = False) -> Path:
        """Write the tables as OUT/NAME.csv; those of several models as OUT/MODEL-NAME.csv. Returns `out`."""
        path: Path = hook("write_joined_tables")(self, out, overwrite=overwrite)
        return path

    def write_figures(self, out: str | Path, *, overwrite: bool = False) -> Path:
        """Write the figures as OUT/NAME.png; those of several models as OUT/MODEL-NAME.png. Returns `out`."""
        path: Path = hook("write_joined_figures")(self, out, overwrite=overwrite)
        return path

    @property
    def record(self) -> Mapping[str, object]:
        """The command, and the record of each model's study."""
        studies = [{"name": c.name, "record": c.study.record} for c in self.chapters]
        return {"command": self.command, "studies": studies, "notes": self.notes}

    def __repr__(self) -> str:
        return f"Joined({', '.join(repr(chapter.study) for chapter in self.chapters)})"


def join(studies: Sequence[str | Path | Study], *, command: str = "", seed: int = 0) -> Joined:
    """Join studies that any commands wrote. Studies of the same model become one; different models are compared.

    Parameters
    ----------
    studies
        Studies or their directories; directories of comparisons are allowed, too.
    command
        The command, for the page.
    seed
        Random seed of the comparison.

    Returns
    -------
    Joined
        `tables`; `write("page.html")`, `write_tables(out)` and `write_figures(out)`.

    Raises
    ------
    HeadscopeError
        If a directory is not a study.

    Examples
    --------
    >>> data = headscope.TextData(texts=["The cat sat.", "A dog barked."])
    >>> study = headscope.analyze("minilm", data, statistics=["entropy"])
    >>> headscope.join([study])
    Joined(Study('minilm', 72 rows, 1 statistic))
    """
    if isinstance(studies, str | Path | Study):
        studies = [studies]
    for study in studies if isinstance(studies, Iterable) else [studies]:
        if not isinstance(study, str | Path | Study):
            what = f"must be studies or their directories, got {describe_value(study)}"
            raise HeadscopeError(what, where="studies")
    if not studies:
        raise HeadscopeError(
            "no study was given", where="STUDY", expected="one or more directories of studies"
        )
    _check_different(studies)
    read = [s if isinstance(s, Study) else read_study_or_comparison(s) for s in studies]
    named = zip(_names(studies), read, strict=True)
    members = [Member(name, study) for name, study in named if isinstance(study, Study)]
    comparisons = [comparison for comparison in read if isinstance(comparison, Comparison)]
    by_model: dict[object, list[Member]] = {}  # by weights and edits, in the order of the studies
    for member in members:
        by_model.setdefault(_identity(member.study), []).append(member)
    chapters = _name_chapters([_chapter(of_model) for of_model in by_model.values()])
    notes: list[str] = []
    if len(chapters) > 1 and not any(_covers(c, chapters) for c in comparisons):
        try:
            comparisons.insert(0, _compare(chapters, seed))
        except HeadscopeError as cause:
            notes.append(f"The models are not compared: {cause.what}.")
    for comparison in comparisons:
        _add_studies(comparison, chapters)
    return Joined(chapters, comparisons, notes, command)


def _check_different(studies: Sequence[str | Path | Study]) -> None:
    keys: set[object] = set()
    for study in studies:
        key = id(study) if isinstance(study, Study) else Path(study).resolve()
        if key in keys:
            where = "STUDY" if isinstance(study, Study) else study
            raise HeadscopeError("given twice", where=where, expected="every study once")
        keys.add(key)


def _names(studies: Sequence[str | Path | Study]) -> list[str]:
    """Names of the studies: names of their directories, with the parent if two are equal; numbers if in memory."""

    def name_of(study: str | Path | Study, depth: int) -> str:
        if isinstance(study, Study):
            return ""
        path = Path(study).resolve()
        # The study of a pruned model is in the directory of the model, which has the more telling name.
        if path.name == "study" and (path.parent / "config.json").exists():
            path = path.parent
        return "/".join(path.parts[-depth:])

    short = [name_of(study, 1) for study in studies]
    pairs = zip(studies, short, strict=True)
    names = [name_of(study, 2) if short.count(name) > 1 else name for study, name in pairs]
    return [
        name if name and names.count(name) == 1 else f"{name or 'study'} {i}"
        for i, name in enumerate(names, 1)
    ]


def _identity(study: Study) -> tuple[str, ...]:
    """The model of a study: digest of the weights (or name), then the edits."""
    model = _model(study)
    return str(model.get("sha256") or model.get("name")), *(
        json.dumps(EditRecord.read(edit).as_json(), sort_keys=True)
        for edit in model.get("edits") or ()
    )


def _model(study: Study) -> Mapping[str, Any]:
    model = study.record.get("model")
    return model if isinstance(model, dict) else {}


def _check_one_shape(of_model: Sequence[Member]) -> None:
    """Raise an error if studies of the same weights have different numbers of layers or heads."""
    with_shape = [member for member in of_model if _model(member.study).get("layers")]
    for member in with_shape[1:]:
        for key in ("layers", "heads"):
            value, other = _model(with_shape[0].study).get(key), _model(member.study).get(key)
            if value != other:
                what = f"contradicts {with_shape[0].name}: {key} {other} instead of {value}, for the same weights"
                raise HeadscopeError(what, where=member.name, fix="Make one of them again")


def _chapter(members: Sequence[Member]) -> Chapter:
    """Join the studies of one model."""
    _check_one_shape(members)
    first = members[0].study
    joined = Study(first.heads, dict(first.maps), first.record.copy(), dict(first.tables))
    others: list[Member] = []
    notes: list[str] = []
    for member in members[1:]:
        remaining = _add(joined, member, notes)
        if remaining is not None:
            others.append(remaining)
    commands = [str(member.study.record.get("command") or "") for member in members]
    joined.record["command"] = "\n".join(dict.fromkeys(filter(None, commands)))
    if len(members) > 1 and (rows := lens_agreement(joined)):
        joined.tables["lenses"] = TABLES["lenses"].frame(rows)
    effects = [fixed_pattern_effects(member.study) for member in members]
    if effects := [table for table in effects if len(table)]:
        joined.tables[SUBSTITUTES] = effects[0]
    others += _fronts(joined, members, notes)
    lengths = length_note([(member.name, member.study.record) for member in members])
    return Chapter(joined, tuple(members), tuple(others), tuple(notes), lengths=lengths)


def _add(joined: Study, member: Member, notes: list[str]) -> Member | None:
    """Add a study's rows, tables, maps and record to `joined`; returns the tables that differ, if any."""
    joined.heads, renamed = _join_heads(joined.heads, member)
    if renamed:
        notes.append(
            f"{', '.join(renamed)}: {member.name} has other values than an earlier study (other texts or another "
            f"task); they are the rows named “({member.name})”."
        )
    tables = member.study.tables
    different = {name: t for name, t in tables.items() if _differs(t, joined.tables.get(name))}
    if different:
        files = ", ".join(f"{name}.csv" for name in different)
        notes.append(f"{files} of {member.name}: shown in a section of its own.")
    joined.tables = {**joined.tables, **{n: t for n, t in tables.items() if n not in joined.tables}}
    maps = member.study.maps
    other_maps = [
        name for name in maps if not _is_close(maps[name], joined.maps.get(name, maps[name]))
    ]
    if other_maps:
        notes.append(f"Maps ({', '.join(other_maps)}) of {member.name} differ from those shown.")
    joined.maps = {**maps, **joined.maps}
    joined.record = {**member.study.record, **joined.record}
    rest = Study(member.study.heads, {}, member.study.record, different)
    return Member(member.name, rest) if different else None


def _join_heads(heads: pd.DataFrame, member: Member) -> tuple[pd.DataFrame, list[str]]:
    """The rows of both studies, and the names of statistics that differ; these are renamed in the second study."""
    import pandas as pd

    parts, renamed = [heads], []
    for statistic, rows in member.study.heads.groupby("statistic", sort=False):
        of_first = heads[heads["statistic"] == statistic]
        both = rows.merge(of_first, on=KEYS, suffixes=("", "_first"), how="left")
        if _is_close(both["value"], both["value_first"].fillna(both["value"])):
            parts.append(rows[both["count_first"].isna().to_numpy()])
        else:
            qualified = replace(StatisticName.parse(str(statistic)), study=member.name)
            renamed.append(str(statistic))
            parts.append(rows.assign(statistic=str(qualified)))
    parts = [part for part in parts if len(part)]
    return (pd.concat(parts, ignore_index=True) if parts else heads), renamed


def _is_close(left: Any, right: Any) -> bool:
    """Whether two arrays have the same shape and nearly equal numbers; NaN equals NaN."""
    left, right = np.asarray(left, float), np.asarray(right, float)
    return left.shape == right.shape and np.allclose(
        left, right, rtol=SAME, atol=1e-9, equal_nan=True
    )


def _differs(table: pd.DataFrame, first: pd.DataFrame | None) -> bool:
    """Whether a table differs from the one of the same name in an earlier study."""
    if first is None:
        return False
    if list(table.columns) != list(first.columns) or len(table) != len(first):
        return True
    for name in table:
        columns = table[name], first[name]
        if all(column.dtype.kind in "fiub" for column in columns):
            if not _is_close(*columns):
                return True
        else:
            text, of_first = (column.fillna("").astype(str) for column in columns)
            if not text.equals(of_first):
                return True
    return False


def _fronts(joined: Study, members: Sequence[Member], notes: list[str]) -> list[Member]:
    """Join the fronts of searches for the same task and split.

    Those of the first task are added to `joined`; those of other tasks are returned as studies of their own.
    """
    remaining = [m for m in members if "front" in m.study.tables and "pruning" in m.study.record]
    others = []
    while remaining:
        first = remaining[0].study.record
        of_task = [
            m
            for m in remaining
            if m is remaining[0] or find_difference(first, m.study.record) is None
        ]
        remaining = [member for member in remaining if member not in of_task]
        if len(of_task) < 2:
            continue
        tables = {"fronts": join_fronts(of_task)}
        if "roles" in joined.tables:
            try:
                tables["survivors"] = survivors(tables["fronts"], joined.tables["roles"])
            except HeadscopeError as cause:
                # For example if there are roles of the encoder only, and the search removed heads of the decoder.
                notes.append(
                    f"The roles of the heads that searches keep cannot be shown: {cause.what}."
                )
        searched = {key: first["pruning"].get(key) for key in ("task", "metric", "reported_on")}
        if "fronts" not in joined.tables:
            joined.tables |= tables
            joined.record["fronts"] = searched
        else:
            study = Study(joined.heads[:0], {}, {**first, "fronts": searched}, tables)
            others.append(Member(str(searched["task"]), study))
    return others


def _name_chapters(chapters: list[Chapter]) -> list[Chapter]:
    names = [local_name(str(_model(chapter.study).get("name") or "model")) for chapter in chapters]
    return [
        replace(c, name=f"{name} ({c.members[0].name})" if names.count(name) > 1 else name)
        for c, name in zip(chapters, names, strict=True)
    ]


def _compare(chapters: Sequence[Chapter], seed: int) -> Comparison:
    """Compare the models by statistics of attention only; importances and pruned heads depend on the task."""
    definitions = glossary()
    studies = []
    for chapter in chapters:
        heads, record = chapter.study.heads, chapter.study.record.copy()
        record["model"] = cast("ModelRecord", {**_model(chapter.study), "name": chapter.name})
        names = [StatisticName.parse(str(name)) for name in heads["statistic"]]
        of_attention = heads[[not name.study and name.base in definitions for name in names]]
        if len(of_attention):
            studies.append(Study(of_attention, {}, record, chapter.study.tables))
    if len(studies) < 2:
        raise HeadscopeError("fewer than two of them have statistics of attention", where="STUDY")
    return compare(studies, CompareConfig(), TextData(), Run(seed=seed))


def _covers(comparison: Comparison, chapters: Sequence[Chapter]) -> bool:
    """Whether a comparison from disk has all these models."""
    compared = {_identity(study)[0] for study in comparison.studies}
    return {_identity(chapter.study)[0] for chapter in chapters} <= compared


def _add_studies(comparison: Comparison, chapters: Sequence[Chapter]) -> None:
    """Add the studies to a comparison that was read from disk, whose own studies have no rows."""
    by_model = {_identity(chapter.study)[0]: chapter.study for chapter in chapters}
    comparison.studies = [
        study if len(study.heads) else by_model.get(_identity(study)[0], study)
        for study in comparison.studies
    ]
