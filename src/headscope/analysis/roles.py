"""Roles of heads: short descriptions of heads whose statistics pass a threshold, computed from a study's tables.

A head may have several roles, or none. Rules and thresholds are those of the papers, if these state one:

Clark et al. 2019  more than 0.5 of the attention to the next or previous token; more than 0.6 to one kind of token;
                   entropy above 3.8 nats. 128 tokens allow at most 4.85 nats, so here it is 0.78 of the maximum
Voita et al. 2019  90 % of the largest weights at one offset, among positions that have a token there; accuracy for a
                   relation 10 points above the best offset; most of the largest weights at a rare word
Gu et al. 2024     mean weight above 0.3 on one token

The thresholds are options (`config/thresholds.py`). To add a role, add a `RoleRule` to RULES. To show examples of it in
texts, add a file to `analysis/examples/`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from headscope.config.thresholds import Thresholds
from headscope.heads import Head
from headscope.statistics.relations import ALL, ALL_BUT_PUNCTUATION
from headscope.study.schema.names import POSITIONAL, SYNTACTIC, RoleName
from headscope.study.schema.tables import TABLES
from headscope.tables import Row, TableRow

if TYPE_CHECKING:
    import pandas as pd

    from headscope.study.study import Study

ROUNDING = 1e-12  # tolerance for rounding errors in a difference of two shares
UNDETERMINED = "undetermined"


@dataclass(frozen=True)
class RoleRule(ABC):
    """The rule that finds the heads with a role, and how pages show the role.

    role       name of the role; `positional` and `syntactic` are followed by the offset or relation (`RoleName`)
    family     roles of one family have the same colour (`report/role_groups`)
    short      label in a cell of a map; empty if the label is the offset or the relation
    vagueness  a head's main role is the one with the lowest value; it is 0 for roles that rest on annotated data
    """

    role: str
    family: str
    short: str
    vagueness: int

    @abstractmethod
    def find(self, study: Study, thresholds: Thresholds) -> Iterator[TableRow]:
        """Rows of roles.csv for the heads that have the role."""


@dataclass(frozen=True)
class StatisticRule(RoleRule):
    """A head has the role if a statistic is above a threshold.

    threshold  name of the threshold: a field of `Thresholds`
    sentence   text for the column `rule`, with {threshold} and {also} for the numbers
    also       another statistic, and the name of the threshold that it must reach, too
    """

    statistic: str
    threshold: str
    sentence: str
    also: tuple[str, str] | None = None

    def find(self, study: Study, thresholds: Thresholds) -> Iterator[TableRow]:
        threshold = getattr(thresholds, self.threshold)
        other, also = (self.also[0], getattr(thresholds, self.also[1])) if self.also else ("", 0.0)
        others = _rows(study, other)
        sentence = self.sentence.format(threshold=threshold, also=also)
        for head, row in _rows(study, self.statistic).items():
            has_other = not self.also or (head in others and others[head].value >= also)
            if self.is_reached(row.value, threshold) and has_other:
                yield _role(row, self.role, threshold, sentence)

    def is_reached(self, value: float, threshold: float) -> bool:
        return value > threshold


class PositionalRule(StatisticRule):
    """The role is named after the most frequent offset of the largest weights (argmax-offset)."""

    def find(self, study: Study, thresholds: Thresholds) -> Iterator[TableRow]:
        offsets = _rows(study, "argmax-offset")
        for row in super().find(study, thresholds):
            if (offset := offsets.get(Head.of_row(row))) is not None:
                yield row | {"role": str(RoleName.positional(int(offset.value)))}

    def is_reached(self, value: float, threshold: float) -> bool:
        return value >= threshold


class PunctuationRule(StatisticRule):
    """Applies only to models of natural language: in SMILES, "." separates molecules."""

    def find(self, study: Study, thresholds: Thresholds) -> Iterator[TableRow]:
        if study.record.get("model", {}).get("natural_language") is not False:
            yield from super().find(study, thresholds)


class SinkRule(StatisticRule):
    """The column `rule` also names the token that is the sink.

    Heads whose sink is the classification token or a separator are left out, since there are other roles for these.
    Not so in a decoder: there the end-of-text token is often put first, and is a sink because it is the first token.
    """

    def find(self, study: Study, thresholds: Thresholds) -> Iterator[TableRow]:
        table = study.tables.get("sinks")
        sinks = {Head.of_row(row): row for row in _records(table)}
        for row in super().find(study, thresholds):
            head = Head.of_row(row)
            sink = sinks.get(head)
            if sink is None:
                yield row
            elif sink.get("token_class", "other") == "other" or head.stack == "decoder":
                if sink["first_share"] >= sink["token_share"]:
                    token = f"the first token in {100 * sink['first_share']:.0f} % of the texts"
                else:
                    share = f"{100 * sink['token_share']:.0f} % of the texts"
                    token = f'mostly "{sink["token"]}" ({share})'
                yield row | {"rule": f"{row['rule']}; here {token}"}


class SyntacticRule(RoleRule):
    """A head finds the words of a relation better than the best offset does, on both halves of the sentences.

    If this holds for several directions, the one with the largest gain on the selection half is used.
    """

    def find(self, study: Study, thresholds: Thresholds) -> Iterator[TableRow]:
        table, margin = study.tables.get("relation_heads"), thresholds.relation
        if table is None:
            return
        control = {
            (row["stack"], row["relation"], row["direction"]): row["control"]
            for row in study.tables["relations"].to_dict("records")
            if np.isfinite(row["control"])
        }
        table = table.assign(gain=table["accuracy"] - table["baseline"])
        above = table[
            (table[["gain", "chosen_gain"]].min(axis=1) >= margin - ROUNDING)
            & (table["least_gain"] > 0)
            & ~table["relation"].isin([ALL, ALL_BUT_PUNCTUATION])
        ]
        # The head must be as far above the random-weight control as above the best offset.
        keys = above[["stack", "relation", "direction"]].itertuples(index=False, name=None)
        of_control = [control.get(key, 0.0) for key in keys]
        above = above.assign(baseline=np.fmax(above["baseline"], of_control))
        above = above[above["accuracy"] >= above["baseline"] + margin - ROUNDING]
        # If several directions remain, the best one on the selection half comes first and is kept below.
        above = above.sort_values("chosen_gain", ascending=False, kind="stable")
        own = set(study.record.get("relations", ()))
        gain = f"accuracy {margin * 100:g} points above the best fixed offset, on both halves of the sentences"
        for record in _records(above.drop_duplicates(["stack", "layer", "head", "relation"])):
            relation, baseline = record["relation"], record["baseline"]
            role = relation if relation in own else str(RoleName.syntactic(relation))
            sentence = f"{record['direction']}: {gain}"
            yield _role(_accuracy(record), role, baseline + margin, sentence, baseline)


class CoreferentialRule(RoleRule):
    """A head finds more antecedents than the best baseline, on both halves of the documents."""

    def find(self, study: Study, thresholds: Thresholds) -> Iterator[TableRow]:
        rule = "more antecedents than the same head word, the nearest mention or chance find, on both halves"
        for record in _records(study.tables.get("coreference_heads")):
            if record["chosen_gain"] > 0 and record["least_gain"] > 0:
                baseline = record["baseline"]
                yield _role(_accuracy(record), self.role, baseline, rule, baseline)


class RareWordsRule(RoleRule):
    """The largest weight is at one of the two rarest words in enough sentences, and more often than in any baseline.

    For the rarest word alone, it must also be more often than in any baseline.
    """

    def find(self, study: Study, thresholds: Thresholds) -> Iterator[TableRow]:
        table, rows = study.tables.get("rare_words"), _rows(study, "two-rarest")
        if table is None or not rows:
            return
        best = table.groupby("kind")["value"].max()
        baseline, rarest = float(best["two-rarest"]), _rows(study, "rarest")
        rule = (
            f"one of the two rarest words in {thresholds.rare} of the sentences; above every simple guess, "
            "and so for the rarest alone"
        )
        for head, row in rows.items():
            is_above = row.value > thresholds.rare and row.low > baseline
            if is_above and head in rarest and rarest[head].low > best["rarest"]:
                yield _role(row, self.role, thresholds.rare, rule, baseline)


# fmt: off
RULES: tuple[RoleRule, ...] = (
    StatisticRule("previous token", "position", "−1", 1, "previous", "neighbour",
                  "attention to the previous token above {threshold}"),
    StatisticRule("next token", "position", "+1", 1, "next", "neighbour",
                  "attention to the next token above {threshold}"),
    StatisticRule("itself", "position", "self", 1, "self", "neighbour",
                  "attention to the token itself above {threshold}"),
    PositionalRule(POSITIONAL, "position", "", 1, "positional-share", "positional",
                   "the largest weight is at one fixed offset in at least {threshold} of the positions that "
                   "have a token there"),
    StatisticRule("classification token", "special tokens", "cls", 2, "cls", "token",
                  "attention to the classification token above {threshold}"),
    StatisticRule("separators", "special tokens", "sep", 2, "sep", "token",
                  "attention to separators above {threshold}"),
    StatisticRule("special tokens", "special tokens", "spec", 4, "special", "token",
                  "attention to all special tokens above {threshold} (often a no-op)"),
    PunctuationRule("punctuation", "punctuation", "., ", 2, "punctuation", "token",
                    'attention to "." and "," above {threshold}'),
    SinkRule("sink", "sink", "sink", 3, "sink", "sink", "mean weight on one token above {threshold}"),
    StatisticRule("broad", "broad", "broad", 5, "entropy-share", "broad",
                  "entropy above {threshold} of its maximum for the length of the text"),
    StatisticRule("block", "block", "block", 2, "block-score", "block",
                  "attention within the own text {threshold} above uniform attention, "
                  "and {also} above what distance alone would give",
                  also=("block-beyond-offset", "beyond")),
    StatisticRule("confident", "confident", "conf", 4, "confidence-content", "confident",
                  "mean largest weight on content tokens above {threshold}"),
    SyntacticRule(SYNTACTIC, "relation", "", 0),
    CoreferentialRule("coreferential", "coreference", "coref", 0),
    RareWordsRule("rare words", "rare words", "rare", 0),
)
# fmt: on


def roles_of(study: Study, thresholds: Thresholds | None = None) -> pd.DataFrame:
    """The table roles.csv: a row for each head and role. A head without a role has the row "undetermined"."""
    thresholds = thresholds or Thresholds()
    rows = [row for rule in RULES for row in rule.find(study, thresholds)]
    with_role = {Head.of_row(row) for row in rows}
    for record in _records(study.heads[["stack", "layer", "head"]].drop_duplicates()):
        if (head := Head.of_row(record)) not in with_role:
            nothing = Row.without_interval(head, "", np.nan, 0)
            rows.append(_role(nothing, UNDETERMINED, np.nan, "no rule applies"))
    table = TABLES["roles"].frame(rows)[TABLES["roles"].names]
    return table.sort_values(["stack", "layer", "head"], kind="stable").reset_index(drop=True)


def _records(table: pd.DataFrame | None) -> list[dict[Any, Any]]:
    return [] if table is None else table.to_dict("records")


def _rows(study: Study, statistic: str) -> dict[Head, Row]:
    """The rows of a statistic by head."""
    table = study.heads[study.heads["statistic"] == statistic]
    rows = [Row(*values) for values in table.itertuples(index=False, name=None)]
    return {Head(row.stack, row.layer, row.head): row for row in rows}


def _accuracy(record: dict[Any, Any]) -> Row:
    """The accuracy of a head with its interval, from a row of a table with accuracies."""
    numbers = record["accuracy"], record["low"], record["high"], record["count"]
    return Row.of(Head.of_row(record), "accuracy", *numbers)


def _role(row: Row, role: str, threshold: float, rule: str, baseline: float = np.nan) -> TableRow:
    """A row of roles.csv. row: the statistic that the role rests on, with its interval."""
    return asdict(row) | {
        "role": role,
        "baseline": baseline,
        "threshold": threshold,
        "is_sure": bool(row.low >= threshold),
        "rule": rule,
    }
