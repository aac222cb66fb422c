"""Everything that a study knows about one head: its roles, its rank by every statistic, its importance, examples."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from headscope.errors import HeadscopeError
from headscope.heads import Head, Heads, HeadSet
from headscope.report.head_cards import cards_of
from headscope.report.scale import UNITS, definition_of, title_of
from headscope.report.study_access import entry_of, model_name, shape_of, stacks_of
from headscope.report.text import plain, with_noun
from headscope.study.result import Result
from headscope.tables import to_frame

if TYPE_CHECKING:
    import pandas as pd

    from headscope.study.schema.record import RunRecord
    from headscope.study.study import Study

ADDRESS = ("stack", "layer", "head")
EXAMPLES = 3  # of each role, in print
TITLE_WIDTH = 52


class HeadSummary(Result):
    """One head of a study.

    head    the head
    study   the study with all heads
    tables  "statistics": value, interval and rank of the head among all heads; and the rows of the head in
            the other tables of the study
    record  the run record of the study
    """

    def __init__(self, study: Study, head: Head) -> None:
        self.study, self.head = study, head

    @property
    def record(self) -> RunRecord:
        return self.study.record

    @cached_property
    def tables(self) -> dict[str, pd.DataFrame]:
        tables = {"statistics": rank_statistics(self.study, self.head)}
        for name, table in self.study.tables.items():
            if set(ADDRESS) <= set(table.columns) and len(rows := _rows_of(table, self.head)):
                tables[name] = rows.reset_index(drop=True)
        return tables

    @property
    def _card(self) -> dict[str, Any]:
        """What the page shows of the head: roles, importance, nearest head and pattern, relations, examples."""
        cards = cards_of(self.study)
        if not cards["heads"]:
            return {}
        stack = self.head.stack
        width = shape_of(self.study, stack)[1]
        card = cards["heads"][stacks_of(self.study).index(stack)][
            self.head.layer * width + self.head.head
        ]
        return {} if card is None else {**card, "sentences": cards["sentences"]}

    def lines(self) -> list[str]:
        """The summary as text for a terminal."""
        card = self._card
        lines = [_title(self)]
        for heading, print_part in PARTS.items():
            part = list(print_part(self, card))
            if part:
                lines += ["", heading, *(f"  {line}" for line in part)]
        return lines

    def to_json(self) -> str:
        """The tables as one JSON object, with the head and the model."""
        tables = {n: json.loads(t.to_json(orient="records")) for n, t in self.tables.items()}
        name = model_name(self.study)
        return json.dumps({"model": name, "head": str(self.head), **tables}, ensure_ascii=False)

    def __repr__(self) -> str:
        return "\n".join(self.lines())


def summarise_head(study: Study, name: Heads) -> HeadSummary:
    """The summary of one head; an error if the study does not have it.

    name  "3.2", "cross.3.2", (3, 2) or a `Head`
    """
    rows = study.heads[list(ADDRESS)].drop_duplicates().to_dict("records")
    return HeadSummary(study, one_head(name, [Head.of_row(row) for row in rows]))


def one_head(name: Heads, heads: Sequence[Head]) -> Head:
    """The head with this name among those of a model."""
    selected = list(HeadSet(name, among=heads))
    if len(selected) != 1:
        raise HeadscopeError(
            f'"{name}" names {with_noun(len(selected), "head")}',
            where="HEAD",
            expected=f"one head, such as {selected[0] if selected else heads[0]}",
        )
    return selected[0]


def rank_statistics(study: Study, head: Head) -> pd.DataFrame:
    """The statistics of a head, each with its rank among the heads of all stacks; rank 1 has the highest value."""
    heads = study.heads.dropna(subset="value")
    heads = heads.assign(
        rank=heads.groupby("statistic")["value"].rank(ascending=False, method="min").astype(int),
        heads=heads.groupby("statistic")["value"].transform("size"),
    )
    own = _rows_of(heads, head)
    columns = ["statistic", "value", "low", "high", "count", "rank", "heads"]
    if own.empty:
        return to_frame([])[["statistic", "value", "low", "high", "count"]].assign(
            rank=[], heads=[]
        )
    return own[columns].reset_index(drop=True)


def _rows_of(table: pd.DataFrame, head: Head) -> pd.DataFrame:
    layer, number = table["layer"] == head.layer, table["head"] == head.head
    return table.loc[(table["stack"] == head.stack) & layer & number]


def _title(summary: HeadSummary) -> str:
    study, head = summary.study, summary.head
    layers, heads = shape_of(study, head.stack)
    stack = "" if len(stacks_of(study)) == 1 else f" of {head.stack}"
    texts = entry_of(study.record, "data", "used")
    read = f"; {with_noun(texts, 'text')} read" if isinstance(texts, int) else ""
    return (
        f"{model_name(study)}, layer {head.layer}{stack} (0 to {layers - 1}), "
        f"head {head.head} (0 to {heads - 1}){read}"
    )


def _roles(summary: HeadSummary, card: dict[str, Any]) -> Iterator[str]:
    for role in card.get("roles", ()):
        unsure = "" if role["sure"] else "; the interval extends below the threshold"
        value = _interval(role["value"], role["low"], role["high"])
        baseline = "" if role["baseline"] is None else f", baseline {_number(role['baseline'])}"
        yield f"{role['role']:24} {value}{baseline}{unsure}"
    if not card.get("roles"):
        yield "none above its threshold"


def _relations(summary: HeadSummary, card: dict[str, Any]) -> Iterator[str]:
    for row in card.get("relations", ()):
        value = _interval(row["accuracy"], row["low"], row["high"])
        yield f"{row['relation']}, {row['direction']:12} {value}, best fixed offset {_number(row['baseline'])}"


def _importance(summary: HeadSummary, card: dict[str, Any]) -> Iterator[str]:
    for line in card.get("importance", ()):
        yield f"{line['what']}: {line['text']}{line['after']}"


def _similar(summary: HeadSummary, card: dict[str, Any]) -> Iterator[str]:
    if nearest := card.get("twin"):
        layer, head, distance = nearest
        yield f"most similar head: {layer}.{head} (Jensen-Shannon divergence {_number(distance)})"
    if pattern := card.get("substitute"):
        yield f"nearest fixed pattern: {pattern[0]} (Jensen-Shannon divergence {_number(pattern[1])})"


def _statistics(summary: HeadSummary, card: dict[str, Any]) -> Iterator[str]:
    yield f"{'':{TITLE_WIDTH}} {'value':>9}  {'95 % interval':20} rank, 1 is highest"
    for row in summary.tables["statistics"].to_dict("records"):
        title = plain(title_of(row["statistic"]), TITLE_WIDTH)
        interval = f"[{_number(row['low'])}, {_number(row['high'])}]"
        interval = "" if math.isnan(row["low"]) else interval
        definition = definition_of(row["statistic"])
        unit = UNITS.get(definition.unit, "") if definition else ""
        unit = unit if unit in ("nats", "tokens") else ""
        yield (
            f"{title:{TITLE_WIDTH}} {_number(row['value']):>9}  {interval:20} "
            f"{row['rank']:3} of {row['heads']}{f'  {unit}' if unit else ''}"
        )


def _examples(summary: HeadSummary, card: dict[str, Any]) -> Iterator[str]:
    roles: dict[tuple[int, int, int, float], list[str]] = {}  # of each example
    for role, kind, _, sentence, query, key, weight, _ in card.get("examples", ()):
        label = f"not {role}" if kind == "counter" else role
        roles.setdefault((sentence, query, key, weight), []).append(label)
    shown: Counter[str] = Counter()
    for (sentence, query, key, weight), names in roles.items():
        if shown[names[0]] == EXAMPLES:
            continue
        shown[names[0]] += 1
        words = card["sentences"][sentence]
        around = " ".join(words[max(0, min(query, key) - 3) : max(query, key) + 4])
        pair = f"{words[query]} → {words[key]}"
        yield f"{pair} ({_number(weight)}) in “{around}”: {', '.join(names)}"


PARTS: dict[str, Callable[[HeadSummary, dict[str, Any]], Iterator[str]]] = {
    "Roles": _roles,
    "Relations it follows better than a fixed offset": _relations,
    "Importance": _importance,
    "Similar": _similar,
    "Examples and counterexamples (query → key, weight)": _examples,
    "Statistics": _statistics,
}


def _interval(value: float | None, low: float | None, high: float | None) -> str:
    return f"{_number(value)} [{_number(low)}, {_number(high)}]"


def _number(value: float | None) -> str:
    """Three significant digits, and no more than three decimals unless the value is small."""
    if value is None or math.isnan(value):
        return "–"
    text = f"{value:.3f}" if abs(value) >= 0.001 or value == 0 else f"{value:.1e}"
    return text.replace("-", "−")
