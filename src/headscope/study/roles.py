"""What is each head's job? Roles read off a study's tables by stated rules, each with its evidence.

A head may have several roles, or none. The rules are those of the papers where these state one (Clark: mass above
0.5 at the next or previous token, above 0.6 on one kind of token, entropy above 3.8 nats of the 4.85 that 128 tokens
allow, here 0.78 of what the lengths allow; Voita: 90 % of maxima at one offset, 10 points over the best offset for a
relation, most maxima at a rare word). Every threshold is an argument.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from headscope.statistics.relations import ALL, ALL_BUT_PUNCTUATION, MARGIN
from headscope.tables import Row

if TYPE_CHECKING:
    import pandas as pd

    from headscope.study.study import Study

COLUMNS = (
    "stack",
    "layer",
    "head",
    "role",
    "value",
    "low",
    "high",
    "baseline",
    "threshold",
    "is_sure",
    "rule",
    "count",
)


@dataclass(frozen=True)
class Thresholds:
    """Where a role begins, as a share. What a relation must gain is `statistics.relations.MARGIN`."""

    neighbour: float = 0.5
    positional: float = 0.9
    token: float = 0.6
    broad: float = 0.78
    block: float = 0.3
    confident: float = 0.8
    rare: float = 0.5


@dataclass(frozen=True)
class Rule:
    """A head has the role if its statistic is above the threshold."""

    role: str
    statistic: str
    threshold: str
    sentence: str
    also: tuple[str, float] | None = None  # another statistic that must reach so much


RULES = (
    Rule("previous token", "previous", "neighbour", "mass on the previous token above {threshold}"),
    Rule("next token", "next", "neighbour", "mass on the next token above {threshold}"),
    Rule("itself", "self", "neighbour", "mass on the token itself above {threshold}"),
    Rule("positional", "argmax-share", "positional", "{threshold} of the maxima at one offset"),
    Rule("classification token", "cls", "token", "mass on the classification token above {threshold}"),
    Rule("separators", "sep", "token", "mass on separators above {threshold}"),
    Rule("special tokens", "special", "token", "mass on all special tokens above {threshold}: much of it a no-op"),
    Rule("punctuation", "punctuation", "token", "mass on full stops and commas above {threshold}"),
    Rule("broad", "entropy-share", "broad", "entropy above {threshold} of what the lengths allow"),
    Rule(
        "block",
        "block-score",
        "block",
        "mass within one's own text {threshold} above what chance gives, and 0.1 above what nearness gives",
        also=("block-beyond-offset", 0.1),
    ),
    Rule("confident", "confidence-content", "confident", "largest weight on content above {threshold}"),
)


def roles_of(study: Study, thresholds: Thresholds | None = None) -> pd.DataFrame:
    """One row for each head and role; a head without any has the role "undetermined"."""
    import pandas as pd

    limits = thresholds or Thresholds()
    rows = [*_by_rules(study, limits), *_related(study), *_coreferential(study), *_rare(study, limits)]
    found = pd.DataFrame(rows, columns=list(COLUMNS))
    heads = study.heads[["stack", "layer", "head"]].drop_duplicates()
    known = set(found[["stack", "layer", "head"]].itertuples(index=False, name=None))
    rest = [
        dict(zip(COLUMNS, (*head, "undetermined", *[np.nan] * 5, False, "no rule applies", 0), strict=True))
        for head in heads.itertuples(index=False, name=None)
        if head not in known
    ]
    if rest:
        found = pd.DataFrame([*found.to_dict("records"), *rest], columns=list(COLUMNS))
    return found.sort_values(["stack", "layer", "head"], kind="stable").reset_index(drop=True)


def _by_rules(study: Study, limits: Thresholds) -> Iterator[dict[str, Any]]:
    offsets = {(row.stack, row.layer, row.head): row.value for row in _of(study, "argmax-offset")}
    for rule in RULES:
        threshold = getattr(limits, rule.threshold)
        for row in _of(study, rule.statistic):
            reached = row.value >= threshold if rule.role == "positional" else row.value > threshold
            if not reached or not _reaches(study, row, rule.also):
                continue
            role = rule.role
            if role == "positional":
                offset = int(offsets[row.stack, row.layer, row.head])
                role = f"positional {offset:+d}" if offset else "positional 0"
            yield _row(row, role, threshold, rule.sentence.format(threshold=threshold))


def _reaches(study: Study, row: Row, also: tuple[str, float] | None) -> bool:
    if also is None:
        return True
    place = (row.stack, row.layer, row.head)
    return any((r.stack, r.layer, r.head) == place and r.value >= also[1] for r in _of(study, also[0]))


def _related(study: Study) -> Iterator[dict[str, Any]]:
    """Heads that show a relation on both halves, 10 points above the best offset, in the direction that gains most."""
    table = study.tables.get("relation_heads")
    if table is None:
        return
    control = {
        (row["stack"], row["relation"], row["direction"]): row["control"]
        for row in study.tables["relations"].to_dict("records")
        if np.isfinite(row["control"])
    }
    own = set(study.record.get("relations", ()))
    above = table[table["is_above"] & ~table["relation"].isin([ALL, ALL_BUT_PUNCTUATION])]
    above = above.assign(gain=above["accuracy"] - above["baseline"]).sort_values("gain", ascending=False)
    for one in above.drop_duplicates(["stack", "layer", "head", "relation"]).to_dict("records"):
        relation = one["relation"]
        baseline = max(one["baseline"], control.get((one["stack"], relation, one["direction"]), 0.0))
        if one["accuracy"] < baseline + MARGIN:  # a twin that knows nothing does nearly as well
            continue
        role = relation if relation in own else f"syntactic: {relation}"
        place = (one["stack"], one["layer"], one["head"])
        row = Row(*place, relation, one["accuracy"], one["low"], one["high"], one["count"])
        rule = f"{one['direction']}: 10 points above the best offset, on both halves"
        yield _row(row, role, baseline + MARGIN, rule) | {"baseline": baseline}


def _coreferential(study: Study) -> Iterator[dict[str, Any]]:
    table = study.tables.get("coreference")
    if table is None:
        return
    whole = table[(table["kind"] == "all") & (table["candidates"] == "mentions")]
    baselines = whole[["head_match", "nearest", "chance"]].to_numpy(dtype=float)
    if not np.isfinite(baselines).any():
        return
    baseline = float(np.nanmax(baselines))
    for row in _of(study, "antecedent"):
        if row.low > baseline:
            found = _row(
                row,
                "coreferential",
                baseline,
                "more antecedents than the same head word, the nearest mention or chance find",
            )
            yield found | {"baseline": baseline}


def _rare(study: Study, limits: Thresholds) -> Iterator[dict[str, Any]]:
    table = study.tables.get("rare_words")
    rows = _of(study, "two-rarest")
    if table is None or not rows:
        return
    best = table.groupby("kind")["value"].max()
    baseline = float(best["two-rarest"])
    surely = {(row.stack, row.layer, row.head) for row in _of(study, "rarest") if row.low > best["rarest"]}
    for row in rows:
        if row.value > limits.rare and row.low > baseline and (row.stack, row.layer, row.head) in surely:
            rule = f"one of the two rarest words in {limits.rare} of the sentences, and above every simple guess"
            yield _row(row, "rare words", limits.rare, rule) | {"baseline": baseline}


def _of(study: Study, statistic: str) -> list[Row]:
    rows = study.heads[study.heads["statistic"] == statistic]
    return [Row(*row) for row in rows.itertuples(index=False, name=None)]


def _row(row: Row, role: str, threshold: float, rule: str) -> dict[str, Any]:
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
