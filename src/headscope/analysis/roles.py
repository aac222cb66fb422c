"""What is each head's job? Roles read off a study's tables by stated rules, each with its evidence.

A head may have several roles, or none. The rules are those of the papers where these state one (Clark: mass above
0.5 at the next or previous token, above 0.6 on one kind of token, entropy above 3.8 nats of the 4.85 that 128 tokens
allow, here 0.78 of what the lengths allow; Voita: 90 % of maxima at one offset, of the rows that have a token there,
10 points over the best offset for a relation, most maxima at a rare word; Gu: mean weight above 0.3 on one token).
Every threshold is an argument.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from headscope.config.thresholds import Thresholds
from headscope.statistics.relations import ALL, ALL_BUT_PUNCTUATION
from headscope.study.schema.names import POSITIONAL, RoleName
from headscope.study.schema.tables import TABLES
from headscope.tables import Row, TableRow

if TYPE_CHECKING:
    import pandas as pd

    from headscope.study.study import Study

ROUNDING = 1e-12  # of a difference of two shares


@dataclass(frozen=True)
class RoleRule:
    """A head has the role if its statistic is above the threshold."""

    role: str
    statistic: str
    threshold: str
    sentence: str
    also: tuple[str, str] | None = None  # another statistic, and the threshold that it must reach


RULES = (
    RoleRule(
        "previous token", "previous", "neighbour", "mass on the previous token above {threshold}"
    ),
    RoleRule("next token", "next", "neighbour", "mass on the next token above {threshold}"),
    RoleRule("itself", "self", "neighbour", "mass on the token itself above {threshold}"),
    RoleRule(
        "positional",
        "positional-share",
        "positional",
        "{threshold} of the maxima at one offset, of the tokens that have another there",
    ),
    RoleRule(
        "classification token", "cls", "token", "mass on the classification token above {threshold}"
    ),
    RoleRule("separators", "sep", "token", "mass on separators above {threshold}"),
    RoleRule(
        "special tokens",
        "special",
        "token",
        "mass on all special tokens above {threshold}: much of it a no-op",
    ),
    RoleRule("punctuation", "punctuation", "token", 'mass on "." and "," above {threshold}'),
    RoleRule("sink", "sink", "sink", "mean weight on one token above {threshold}"),
    RoleRule(
        "broad", "entropy-share", "broad", "entropy above {threshold} of what the lengths allow"
    ),
    RoleRule(
        "block",
        "block-score",
        "block",
        "mass within one's own text {threshold} above what chance gives, and {also} above what nearness gives",
        also=("block-beyond-offset", "beyond"),
    ),
    RoleRule(
        "confident",
        "confidence-content",
        "confident",
        "largest weight on content above {threshold}",
    ),
)


def roles_of(study: Study, thresholds: Thresholds | None = None) -> pd.DataFrame:
    """One row for each head and role; a head without any has the role "undetermined"."""
    limits = thresholds or Thresholds()
    rows = [
        *_by_rules(study, limits),
        *_related(study, limits.relation),
        *_coreferential(study),
        *_rare(study, limits),
    ]
    heads = study.heads[["stack", "layer", "head"]].drop_duplicates()
    with_role = {(row["stack"], row["layer"], row["head"]) for row in rows}
    names = TABLES["roles"].names
    undetermined = ("undetermined", *[np.nan] * 5, False, "no rule applies", 0)
    for head in heads.itertuples(index=False, name=None):
        if head not in with_role:
            rows.append(dict(zip(names, (*head, *undetermined), strict=True)))
    found = TABLES["roles"].frame(rows)[names]
    return found.sort_values(["stack", "layer", "head"], kind="stable").reset_index(drop=True)


def _by_rules(study: Study, limits: Thresholds) -> Iterator[TableRow]:
    offsets = {(row.stack, row.layer, row.head): row.value for row in _of(study, "argmax-offset")}
    sinks, named_elsewhere = _sink_tokens(study), _sinks_with_a_role(study)
    is_no_language = study.record.get("model", {}).get("natural_language") is False
    for rule in RULES:
        if rule.role == "punctuation" and is_no_language:
            continue  # "." separates molecules in SMILES
        threshold = getattr(limits, rule.threshold)
        also = getattr(limits, rule.also[1]) if rule.also else 0.0
        sentence = rule.sentence.format(threshold=threshold, also=also)
        for row in _of(study, rule.statistic):
            place = (row.stack, row.layer, row.head)
            reached = row.value >= threshold if rule.role == POSITIONAL else row.value > threshold
            if not reached or (rule.also and not _reaches(study, place, rule.also[0], also)):
                continue
            role = rule.role
            if role == "sink" and place in named_elsewhere:
                continue
            if role == POSITIONAL:
                if place not in offsets:  # not asked for: then it is not known which position
                    continue
                role = str(RoleName.positional(int(offsets[place])))
            here = sinks.get(place, "") if role == "sink" else ""
            yield _row(row, role, threshold, f"{sentence}{here}")


def _sink_tokens(study: Study) -> dict[tuple[str, int, int], str]:
    """Which token is each head's sink, as the end of a sentence."""
    table = study.tables.get("sinks")
    found = {}
    for row in [] if table is None else table.to_dict("records"):
        if row["first_share"] >= row["token_share"]:
            named = f"the first token in {100 * row['first_share']:.0f} % of the texts"
        else:
            named = f'mostly "{row["token"]}" ({100 * row["token_share"]:.0f} % of the texts)'
        found[row["stack"], row["layer"], row["head"]] = f"; here {named}"
    return found


def _sinks_with_a_role(study: Study) -> set[tuple[str, int, int]]:
    """Heads whose sink is the classification token or a separator: attention to these has a role of its own.

    In a decoder the mark at the end of a text is often put first, where it is a sink like any first token.
    """
    table = study.tables.get("sinks")
    if table is None or "token_class" not in table:
        return set()
    special = table[(table["token_class"] != "other") & (table["stack"] != "decoder")]
    return set(special[["stack", "layer", "head"]].itertuples(index=False, name=None))


def _reaches(study: Study, place: tuple[str, int, int], statistic: str, threshold: float) -> bool:
    rows = _of(study, statistic)
    return any((row.stack, row.layer, row.head) == place and row.value >= threshold for row in rows)


def _related(study: Study, margin: float) -> Iterator[TableRow]:
    """Heads that show a relation on both halves, so far above the best offset, in the direction that gains most."""
    table = study.tables.get("relation_heads")
    if table is None:
        return
    control = {
        (row["stack"], row["relation"], row["direction"]): row["control"]
        for row in study.tables["relations"].to_dict("records")
        if np.isfinite(row["control"])
    }
    own = set(study.record.get("relations", ()))
    gained = f"{margin * 100:g} points above the best offset, on both halves"
    table = table.assign(gain=table["accuracy"] - table["baseline"])
    above = table[
        (table[["gain", "chosen_gain"]].min(axis=1) >= margin - ROUNDING)
        & (table["least_gain"] > 0)
        & ~table["relation"].isin([ALL, ALL_BUT_PUNCTUATION])
    ]
    asked = above[["stack", "relation", "direction"]].itertuples(index=False, name=None)
    rival = [control.get(key, 0.0) for key in asked]
    # A twin that knows nothing must not do nearly as well. Of several directions, that of the half to choose on.
    above = above.assign(baseline=np.fmax(above["baseline"], rival))
    above = above[above["accuracy"] >= above["baseline"] + margin - ROUNDING]
    above = above.sort_values("chosen_gain", ascending=False, kind="stable")
    for one in above.drop_duplicates(["stack", "layer", "head", "relation"]).to_dict("records"):
        relation = one["relation"]
        baseline = one["baseline"]
        role = relation if relation in own else str(RoleName.syntactic(relation))
        place = (one["stack"], one["layer"], one["head"])
        row = Row(*place, relation, one["accuracy"], one["low"], one["high"], one["count"])
        yield _row(row, role, baseline + margin, f"{one['direction']}: {gained}") | {
            "baseline": baseline
        }


def _coreferential(study: Study) -> Iterator[TableRow]:
    """Heads that find more antecedents than the best simple guess on both halves of the documents."""
    table = study.tables.get("coreference_heads")
    if table is None:
        return
    above = table[(table["chosen_gain"] > 0) & (table["least_gain"] > 0)]
    for one in above.to_dict("records"):
        place = (one["stack"], one["layer"], one["head"])
        row = Row(*place, "antecedent", one["accuracy"], one["low"], one["high"], one["count"])
        rule = "more antecedents than the same head word, the nearest mention or chance find, on both halves"
        yield _row(row, "coreferential", one["baseline"], rule) | {"baseline": one["baseline"]}


def _rare(study: Study, limits: Thresholds) -> Iterator[TableRow]:
    table = study.tables.get("rare_words")
    rows = _of(study, "two-rarest")
    if table is None or not rows:
        return
    best = table.groupby("kind")["value"].max()
    baseline = float(best["two-rarest"])
    surely = {
        (row.stack, row.layer, row.head) for row in _of(study, "rarest") if row.low > best["rarest"]
    }
    for row in rows:
        if (
            row.value > limits.rare
            and row.low > baseline
            and (row.stack, row.layer, row.head) in surely
        ):
            rule = f"one of the two rarest words in {limits.rare} of the sentences; above every simple guess, "
            rule += "and so for the rarest alone"
            yield _row(row, "rare words", limits.rare, rule) | {"baseline": baseline}


def _of(study: Study, statistic: str) -> list[Row]:
    rows = study.heads[study.heads["statistic"] == statistic]
    return [Row(*row) for row in rows.itertuples(index=False, name=None)]


def _row(row: Row, role: str, threshold: float, rule: str) -> TableRow:
    return {
        "stack": row.stack,
        "layer": row.layer,
        "head": row.head,
        "role": role,
        "value": row.value,
        "low": row.low,
        "high": row.high,
        "baseline": np.nan,
        "threshold": threshold,
        "is_sure": bool(row.low >= threshold),
        "rule": rule,
        "count": row.count,
    }
