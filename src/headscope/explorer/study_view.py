"""What of a study stands beside the live model: numbers and roles of each head, its card, its examples.

Everything is read off the study's tables, each of which may be missing; text from them is made harmless in
`report/head_cards.py` and by `plain`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, astuple
from functools import cached_property
from typing import Any

import pandas as pd

from headscope.ablation.glossary import DEFINITIONS
from headscope.errors import HeadscopeError, reason
from headscope.explorer.cheap_heads import cheap_heads
from headscope.explorer.corpus_examples import CorpusExamples
from headscope.explorer.responses import Answer
from headscope.heads import Head, HeadSet
from headscope.model.attention_model import AttentionModel
from headscope.model.weights_hash import weights_sha256
from headscope.report.head_cards import cards_of, json_number, roles_by_head
from headscope.report.page.payload import described
from headscope.report.study_access import model_name, recorded, shape_of, stacks_of, statistics_of
from headscope.report.text import plain
from headscope.study.schema.names import CUT, StatisticName
from headscope.study.study import Study


class StudyView:
    """A study, as far as it is about heads of this model.

    told        what there is: names of statistics and importances, which tables, sets of unimportant heads
    told_heads  every head of the model with its numbers, roles and cluster
    """

    def __init__(self, study: Study, model: AttentionModel) -> None:
        self.study, self.model = study, model
        self._there = set(model.heads)
        try:
            self.told, self.told_heads = self._about(), self._told_heads()
            self._cards = cards_of(study)
            self._examples = CorpusExamples(study, model)
        except (KeyError, TypeError, ValueError) as cause:
            what = f"a table of the study of {model_name(study)} cannot be read ({reason(cause)})"
            raise HeadscopeError(what, where="`study`", fix="Make it again") from cause
        if not self._there & set(self._rows):
            raise HeadscopeError(
                f"the study of {model_name(study)} has none of the heads of {model.name}",
                where="`study`",
                expected="a study of this model",
            )

    def _about(self) -> Answer:
        names = statistics_of(self.study)
        importances = [name for name in names if name in DEFINITIONS.keys() - {"cut", "random"}]
        tables, sha256 = self.study.tables, recorded(self.study.record, "model", "sha256")
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

    def _told_heads(self) -> Answer:
        """Every head of the model with its numbers [value, low, high] by statistic, its roles and its cluster."""
        roles, clusters = roles_by_head(self.study), self._clusters()
        values = self.study.heads.groupby("statistic", sort=False)["value"]
        statistics = [described(str(name), rows.to_numpy(dtype=float)) for name, rows in values]
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

    def head(self, named: str) -> Head:
        """One head of the model by its address."""
        found = list(HeadSet(named, among=self.model.heads))
        if len(found) != 1:
            raise HeadscopeError(f'"{named}" are {len(found)} heads', expected="one, such as 3.2")
        return found[0]

    def card(self, head: Head) -> Answer:
        """What is known of one head; its lists are empty where the study does not tell."""
        card = self._card(head)
        return {
            **asdict(head),
            "roles": card.get("roles", []),
            "relations": card.get("relations", []),
            "twin": _named(("layer", "head", "distance"), card.get("twin")),
            "substitute": _named(("pattern", "distance"), card.get("substitute")),
            "cluster": self._clusters().get(head),
            "tests": self._tests(head),
            "importance": card.get("importance", []),
            "values": self._rows.get(head, {}),
        }

    def examples(self, head: Head, max_length: int | None = None) -> list[Answer]:
        """Sentences in which the head does, or does not do, what its roles say; places count words."""
        return self._examples.of(head, max_length)

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
        found: dict[Head, dict[str, list[float | None]]] = {}
        for row in self.study.heads.to_dict("records"):
            numbers = [json_number(row[name], 6) for name in ("value", "low", "high")]
            found.setdefault(Head.of_row(row), {})[plain(row["statistic"])] = numbers
        return found

    def _clusters(self) -> dict[Head, int]:
        table = self.study.tables.get("clusters")
        known = [] if table is None else table.dropna(subset=["cluster"]).to_dict("records")
        return {Head.of_row(row): int(row["cluster"]) for row in known}

    def _tests(self, head: Head) -> list[Answer]:
        """What removing the head does to the task, and whether that is more than chance."""
        table = self.study.tables.get("significance")
        rows = [] if table is None else table.to_dict("records")
        numbers = ("value", "low", "high", "p", "p_adjusted")
        return [
            {
                "statistic": plain(row["statistic"]),
                **{name: json_number(row.get(name)) for name in numbers},
                "is_significant": row["is_significant"] is True,
            }
            for row in rows
            if Head.of_row(row) == head
        ]

    def _unimportant(self) -> list[Answer]:
        """Sets of heads that the study would do without: `what` they are, in a few words, and the reason `why`."""
        heads = self.study.heads
        removed = heads[(heads["statistic"] == CUT) & (heads["value"] == 1)]
        sets = [("that the plan removes", "the study's plan removes them", _heads(removed))]
        names = [StatisticName.parse(name) for name in statistics_of(self.study)]
        for name in [name for name in names if name.is_gate]:
            closed = heads[(heads["statistic"] == str(name)) & (heads["value"] == 0)]
            gates = f"gates closed ({plain(name.aim)})"
            sets.append((f"whose {gates}", f"their {gates}", _heads(closed)))
        if (cheap := cheap_heads(self.study, self._there)) is not None:
            sets.append(cheap)
        told = []
        for what, why, some in sets:
            if chosen := HeadSet(some & self._there, among=self.model.heads):
                told.append({"what": what, "why": why, "heads": str(chosen), "count": len(chosen)})
        return told


def _named(names: Sequence[str], values: Sequence[object] | None) -> Answer | None:
    return None if values is None else dict(zip(names, values, strict=True))


def _heads(rows: pd.DataFrame) -> set[Head]:
    return {Head.of_row(row) for row in rows.to_dict("records")}
