"""The results of a study for the heads of the model in the explorer: numbers, roles, cards and examples.

Any table of the study may be missing. Text from tables is escaped, by `report/head_cards.py` and `plain`.
"""

from __future__ import annotations

from dataclasses import asdict, astuple
from functools import cached_property
from typing import Any

import pandas as pd

from headscope.ablation.glossary import DEFINITIONS
from headscope.errors import HeadscopeError, reason
from headscope.explorer.cheap_heads import cheap_heads
from headscope.explorer.corpus_examples import CorpusExamples
from headscope.explorer.responses import JsonObject
from headscope.heads import Head, HeadSet
from headscope.model.attention_model import AttentionModel
from headscope.model.weights import weights_sha256
from headscope.report.head_cards import cards_of, json_number, roles_by_head
from headscope.report.page.payload import describe_statistic
from headscope.report.study_access import (
    entry_of,
    model_name,
    records_of,
    shape_of,
    stacks_of,
    statistics_of,
)
from headscope.report.text import plain
from headscope.study.schema.names import CUT, StatisticName
from headscope.study.study import Study


class StudyView:
    """The results of a study for the heads of this model.

    about  which statistics, importances and tables the study has, and sets of unimportant heads
    heads  every head of the model with its numbers, roles and cluster
    """

    def __init__(self, study: Study, model: AttentionModel, max_length: int | None = None) -> None:
        self.study, self.model = study, model
        try:
            self.about, self.heads = self._about(), self._describe_heads()
            self._cards = cards_of(study)
            self.examples = CorpusExamples(study, model, max_length)
        except (KeyError, TypeError, ValueError) as cause:
            what = f"a table of the study of {model_name(study)} cannot be read ({reason(cause)})"
            raise HeadscopeError(
                what, where="`study`", fix="Run headscope analyze again"
            ) from cause
        if not set(self._rows).intersection(model.heads):
            what = f"the study of {model_name(study)} has none of the heads of {model.name}"
            raise HeadscopeError(what, where="`study`", expected="a study of this model")

    def _about(self) -> JsonObject:
        names = statistics_of(self.study)
        importances = [name for name in names if name in DEFINITIONS.keys() - {"cut", "random"}]
        tables, sha256 = self.study.tables, entry_of(self.study.record, "model", "sha256")
        return {
            "model": model_name(self.study),
            "is_of_this_model": sha256 == weights_sha256(self.model),
            "statistics": [plain(name) for name in names],
            "importances": [plain(name) for name in importances],
            "has_roles": "roles" in tables,
            "has_clusters": "clusters" in tables,
            "has_examples": "examples" in tables,
            "unimportant": self._unimportant(),
        }

    def _describe_heads(self) -> JsonObject:
        """Every head of the model with its numbers [value, low, high] by statistic, its roles and its cluster."""
        roles, clusters = roles_by_head(self.study), self._clusters()
        values = self.study.heads.groupby("statistic", sort=False)["value"]
        statistics = [describe_statistic(str(name), v.to_numpy(dtype=float)) for name, v in values]
        heads = [
            {
                **asdict(head),
                "roles": [role.name for role in roles.get(astuple(head), [])],
                "cluster": clusters.get(head),
                "values": self._rows.get(head, {}),
            }
            for head in self.model.heads
        ]
        return {"statistics": statistics, "heads": heads}

    def head(self, address: str) -> Head:
        """The head of the model with this address."""
        heads = list(HeadSet(address, among=self.model.heads))
        if len(heads) != 1:
            raise HeadscopeError(
                f'"{address}" names {len(heads)} heads', expected="one head, such as 3.2"
            )
        return heads[0]

    def card(self, head: Head) -> JsonObject:
        """The results for one head. Lists are empty, and other entries None, if the study lacks the table."""
        card = self._card(head)
        twin, substitute = card.get("twin"), card.get("substitute")
        return {
            **asdict(head),
            "roles": card.get("roles", []),
            "relations": card.get("relations", []),
            "twin": twin and dict(zip(("layer", "head", "distance"), twin, strict=True)),
            "substitute": substitute
            and dict(zip(("pattern", "distance"), substitute, strict=True)),
            "cluster": self._clusters().get(head),
            "tests": self._tests(head),
            "importance": card.get("importance", []),
            "values": self._rows.get(head, {}),
        }

    def _card(self, head: Head) -> dict[str, Any]:
        stacks = stacks_of(self.study)
        if head.stack not in stacks or not self._cards["heads"]:
            return {}
        layers, heads = shape_of(self.study, head.stack)
        if head.layer >= layers or head.head >= heads:
            return {}
        return self._cards["heads"][stacks.index(head.stack)][head.layer * heads + head.head] or {}

    @cached_property
    def _rows(self) -> dict[Head, dict[str, list[float | None]]]:
        by_head: dict[Head, dict[str, list[float | None]]] = {}
        for row in self.study.heads.to_dict("records"):
            numbers = [json_number(row[name], 6) for name in ("value", "low", "high")]
            by_head.setdefault(Head.of_row(row), {})[plain(row["statistic"])] = numbers
        return by_head

    def _clusters(self) -> dict[Head, int]:
        table = self.study.tables.get("clusters")
        rows = [] if table is None else table.dropna(subset=["cluster"]).to_dict("records")
        return {Head.of_row(row): int(row["cluster"]) for row in rows}

    def _tests(self, head: Head) -> list[JsonObject]:
        """The effect of ablating the head on the task, with its tests of significance."""
        numbers = ("value", "low", "high", "p", "p_adjusted")
        return [
            {
                "statistic": plain(row["statistic"]),
                **{name: json_number(row.get(name)) for name in numbers},
                "is_significant": row["is_significant"] is True,
            }
            for row in records_of(self.study, "significance")
            if Head.of_row(row) == head
        ]

    def _unimportant(self) -> list[JsonObject]:
        """Sets of heads that the study found unimportant: description (`what`), reason (`why`), heads, count."""
        table = self.study.heads
        removed = table[(table["statistic"] == CUT) & (table["value"] == 1)]
        sets = [("that the plan prunes", "the study's plan prunes them", _heads(removed))]
        names = [StatisticName.parse(name) for name in statistics_of(self.study)]
        for name in (name for name in names if name.is_gate):
            closed = table[(table["statistic"] == str(name)) & (table["value"] == 0)]
            gates = f"gates are closed ({plain(name.aim)})"
            sets.append((f"whose {gates}", f"their {gates}", _heads(closed)))
        of_model = set(self.model.heads)
        if (cheap := cheap_heads(self.study, of_model)) is not None:
            sets.append(cheap)
        result: list[JsonObject] = []
        for what, why, some in sets:
            if heads := HeadSet(some & of_model, among=self.model.heads):
                result.append({"what": what, "why": why, "heads": str(heads), "count": len(heads)})
        return result


def _heads(rows: pd.DataFrame) -> set[Head]:
    return {Head.of_row(row) for row in rows.to_dict("records")}
