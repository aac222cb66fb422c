"""The parts of the page that a study with annotated data has: roles, relations, coreference, rare words, as tables."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from headscope.report.cards import Place, roles_by_head
from headscope.report.grids import plain, stacks_of
from headscope.report.scale import signed

if TYPE_CHECKING:
    from headscope.study.study import Study

NONE = "–"


class Cell(NamedTuple):
    """What stands in a table; `key` is what it is sorted by, `head` the head that it opens."""

    text: str
    key: float | str | None = None
    head: str = ""


@dataclass(frozen=True)
class Part:
    """A section of the page: its figures are those whose name begins with one of `figures`."""

    name: str
    heading: str
    note: str
    columns: tuple[str, ...]
    rows: list[list[Cell]]
    file: str
    figures: tuple[str, ...] = ()
    words: frozenset[int] = field(default_factory=frozenset)  # columns of text; the others hold numbers


def parts_of(study: Study) -> list[Part]:
    """Those whose tables are there and not empty."""
    makers = (_roles, _relations, _coreference, _rare_words)
    return [part for part in (make(study) for make in makers) if part is not None and part.rows]


def _roles(study: Study) -> Part | None:
    roles = roles_by_head(study)
    rows = [
        [
            _head(study, place),
            Cell(role.name, role.name),
            _measured(role.value, role.low, role.high),
            _number(role.baseline),
            Cell(plain(role.rule) if role.is_sure else f"{plain(role.rule)} (the interval reaches below)", role.rule),
        ]
        for place, of_head in sorted(roles.items(), key=lambda item: (stacks_of(study).index(item[0][0]), item[0][1:]))
        for role in of_head
    ]
    heads = study.heads[["stack", "layer", "head"]].drop_duplicates()
    note = f"{len(roles)} of {len(heads)} heads have a role by the rules named here, several heads more than one. "
    note += "A head's card shows it at work: choose a head."
    columns = ("head", "role", "value", "baseline", "rule")
    return Part("roles", "What each head does", note, columns, rows, "roles.csv", ("roles",), frozenset({1, 4}))


def _relations(study: Study) -> Part | None:
    table = study.tables.get("relations")
    if table is None:
        return None
    rows = [
        [
            Cell(plain(row["relation"], 60), plain(row["relation"], 60)),
            Cell(plain(row["direction"], 20), plain(row["direction"], 20)),
            _head(study, _place(row)),
            _measured(row["accuracy"], row["low"], row["high"]),
            _number(row["accuracy"] - row["baseline"], sign=True),
            _number(row["baseline"], f" at {signed(row['baseline_offset'])}"),
            _number(row["same_data_best_accuracy"], _papers_head(row)),
            _number(row["control"]),
            _count(row["count"]),
        ]
        for row in table.to_dict("records")
    ]
    note = (
        "dependent: a dependent's largest weight is on its governor; governor: the governor's largest is on this "
        "dependent; received: of all words, the governor looks most at the dependent. Each head was chosen on one half "
        "of the sentences and measured on the other; gain is over the best fixed offset. The papers choose and measure "
        "on the same sentences: that is in a column of its own. The control is the best head of a twin with random "
        "weights. Relations with fewer than 100 pairs are listed, and no head is chosen."
    )
    columns = ("relation", "direction", "head", "accuracy", "gain", "baseline", "papers' way", "control", "pairs")
    figures = ("relations", "arcs")
    words = frozenset({0, 1})
    return Part("relations", "Relations between words", note, columns, rows, "relations.csv", figures, words)


def _papers_head(row: dict[Any, Any]) -> str:
    layer, head = row["same_data_best_layer"], row["same_data_best_head"]
    return "" if _is_missing(layer) else f" by {int(layer)}.{int(head)}"


def _coreference(study: Study) -> Part | None:
    table = study.tables.get("coreference")
    if table is None:
        return None
    rows = [
        [
            Cell(plain(row["kind"], 20), plain(row["kind"], 20)),
            Cell(plain(row["candidates"], 20), plain(row["candidates"], 20)),
            _head(study, _place(row)),
            _measured(row["accuracy"], row["low"], row["high"]),
            *(_number(row.get(name)) for name in ("chance", "nearest", "head_match", "rules")),
            _number(row.get("same_data_best_accuracy")),
            _count(row["count"]),
        ]
        for row in table.to_dict("records")
    ]
    note = (
        "How often a mention's head word looks most at the head word of an antecedent, among the head words of earlier "
        "mentions or among all words. Heads were chosen on one half of the documents and measured on the other."
    )
    rules = ("blind guess", "nearest mention", "same head word", "four sieves")
    columns = ("mentions", "candidates", "head", "accuracy", *rules, "papers' way", "count")
    return Part(
        "coreference", "Coreference", note, columns, rows, "coreference.csv", ("coreference",), frozenset({0, 1})
    )


def _rare_words(study: Study) -> Part | None:
    table = study.tables.get("rare_words")
    if table is None:
        return None
    kinds = [str(kind) for kind in dict.fromkeys(table["kind"])]
    rows = []
    for kind in kinds:
        best = study.heads[study.heads["statistic"] == kind].nlargest(1, "value")
        for row in best.to_dict("records"):
            rows.append(
                [
                    Cell(plain(kind, 20), kind),
                    Cell("the head that does it most", "a"),
                    _head(study, _place(row)),
                    _measured(row["value"], row["low"], row["high"]),
                    _count(row["count"]),
                ]
            )
        for row in table[table["kind"] == kind].to_dict("records"):
            guess = plain(row["baseline"], 40)
            answer = _measured(row["value"], row["low"], row["high"])
            rows.append([Cell(plain(kind, 20), kind), Cell(guess, guess), Cell(NONE), answer, _count(row["count"])])
    note = (
        "In what share of the sentences most words point at the rarest word, or at one of the two rarest, and how "
        "often simple guesses would be right. The head was picked on the sentences it is measured on."
    )
    columns = ("question", "answer by", "head", "right", "sentences")
    return Part("rare-words", "Rare words", note, columns, rows, "rare_words.csv", ("rare-words",), frozenset({0, 1}))


def _place(row: dict[Any, Any]) -> Place | None:
    """None where no head was chosen."""
    if _is_missing(row["layer"]) or _is_missing(row["head"]):
        return None
    return str(row["stack"]), int(row["layer"]), int(row["head"])


def _head(study: Study, place: Place | None) -> Cell:
    if place is None:
        return Cell(NONE)
    stack, layer, head = place
    address = f"{layer}.{head}"
    label = address if len(stacks_of(study)) == 1 else f"{plain(stack)}.{address}"
    return Cell(label, layer + head / 1000, label)


def _measured(value: Any, low: Any, high: Any) -> Cell:
    if _is_missing(value):
        return Cell(NONE)
    interval = "" if _is_missing(low) or _is_missing(high) else f" [{low:.3f}, {high:.3f}]"
    return Cell(f"{value:.3f}{interval}".replace("-", "−"), float(value))


def _number(value: Any, after: str = "", *, sign: bool = False) -> Cell:
    if _is_missing(value):
        return Cell(NONE)
    return Cell(f"{value:{'+' if sign else ''}.3f}".replace("-", "−") + after, float(value))


def _count(value: Any) -> Cell:
    return Cell(NONE) if _is_missing(value) else Cell(f"{int(value):,}".replace(",", "\u202f"), float(value))


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))
