"""The parts of the page about words: relations, coreference, rare words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headscope.report.head_cells import count_cell, head_cell, place_of
from headscope.report.scale import signed
from headscope.report.study_access import recorded
from headscope.report.table_cells import NONE, Cell, Part, is_missing, measured, number
from headscope.report.text import plain

if TYPE_CHECKING:
    from headscope.study.study import Study

ENOUGH_DOCUMENTS = 20  # below, intervals from resampled documents are too narrow


def relations(study: Study) -> Part | None:
    table = study.tables.get("relations")
    if table is None:
        return None
    rows = [
        [
            Cell(plain(row["relation"], 60), plain(row["relation"], 60)),
            Cell(plain(row["direction"], 20), plain(row["direction"], 20)),
            head_cell(study, place_of(row)),
            measured(row["accuracy"], row["low"], row["high"]),
            number(row["accuracy"] - row["baseline"], sign=True),
            number(row["baseline"], _offset(row["baseline_offset"])),
            number(row["same_data_best_accuracy"], _papers_head(row)),
            number(row["control"]),
            count_cell(row["count"]),
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
    columns = (
        "relation",
        "direction",
        "head",
        "accuracy",
        "gain",
        "baseline",
        "papers' way",
        "control",
        "pairs",
    )
    figures = ("relations", "arcs")
    words = frozenset({0, 1})
    return Part(
        "relations", "Relations between words", note, columns, rows, "relations.csv", figures, words
    )


def _offset(value: Any) -> str:
    return "" if is_missing(value) else f" at {signed(value)}"


def _papers_head(row: dict[Any, Any]) -> str:
    layer, head = row["same_data_best_layer"], row["same_data_best_head"]
    return "" if is_missing(layer) else f" by {int(layer)}.{int(head)}"


def coreference(study: Study) -> Part | None:
    table = study.tables.get("coreference")
    if table is None:
        return None
    rows = [
        [
            Cell(plain(row["kind"], 20), plain(row["kind"], 20)),
            Cell(plain(row["candidates"], 20), plain(row["candidates"], 20)),
            head_cell(study, place_of(row)),
            measured(row["accuracy"], row["low"], row["high"]),
            *(number(row.get(name)) for name in ("chance", "nearest", "head_match", "rules")),
            number(row.get("same_data_best_accuracy")),
            count_cell(row["count"]),
        ]
        for row in table.to_dict("records")
    ]
    note = (
        "How often a mention's head word looks most at the head word of an antecedent, among the head words of earlier "
        "mentions or among all words. Heads were chosen on one half of the documents and measured on the other; count "
        "is over both halves."
    )
    documents = recorded(study.record, "coreference", "documents")
    if isinstance(documents, int) and documents < ENOUGH_DOCUMENTS:
        note += f" These are only {documents} documents: intervals from so few are too narrow."
    rules = ("blind guess", "nearest mention", "same head word", "four sieves")
    columns = ("mentions", "candidates", "head", "accuracy", *rules, "papers' way", "count")
    return Part(
        "coreference",
        "Coreference",
        note,
        columns,
        rows,
        "coreference.csv",
        ("coreference",),
        frozenset({0, 1}),
    )


def rare_words(study: Study) -> Part | None:
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
                    head_cell(study, place_of(row)),
                    measured(row["value"], row["low"], row["high"]),
                    count_cell(row["count"]),
                ]
            )
        for row in table[table["kind"] == kind].to_dict("records"):
            guess = plain(row["baseline"], 40)
            answer = measured(row["value"], row["low"], row["high"])
            rows.append(
                [
                    Cell(plain(kind, 20), kind),
                    Cell(guess, guess),
                    Cell(NONE),
                    answer,
                    count_cell(row["count"]),
                ]
            )
    note = (
        "In what share of the sentences most words point at the rarest word, or at one of the two rarest, and how "
        "often simple guesses would be right. The head was picked on the sentences it is measured on."
    )
    columns = ("question", "answer by", "head", "right", "sentences")
    return Part(
        "rare-words",
        "Rare words",
        note,
        columns,
        rows,
        "rare_words.csv",
        ("rare-words",),
        frozenset({0, 1}),
    )
