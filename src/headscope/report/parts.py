"""The parts of the page that are tables: roles, which heads matter, relations, coreference, rare words."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from headscope.importances.deltas import LOSS, METRIC
from headscope.importances.significance import ALPHA
from headscope.report.cards import Place, roles_by_head
from headscope.report.cells import NONE, Cell, Part, decimals_for, is_missing, measured, number
from headscope.report.grids import plain, recorded, stacks_of
from headscope.report.lens_parts import lens_parts
from headscope.report.mask_parts import learned_masks, mask_table
from headscope.report.scale import signed
from headscope.tables import STACKS

if TYPE_CHECKING:
    import pandas as pd

    from headscope.study.study import Study

ENOUGH_DOCUMENTS = 20  # below, intervals from resampled documents are too narrow
MATTER = "Which heads matter"


def parts_of(study: Study) -> list[Part]:
    """Those whose tables are there and not empty."""
    makers = [_roles, _front, _fixing, learned_masks, mask_table, _significance, _all_but_one, _agreement]
    makers += [_relations, _coreference, _rare_words]
    made = [*(make(study) for make in makers), *lens_parts(study)]
    return [part for part in made if part is not None and part.rows]


def _roles(study: Study) -> Part | None:
    roles = roles_by_head(study)
    rows = [
        [
            _head(study, place),
            Cell(role.name, role.name),
            measured(role.value, role.low, role.high),
            number(role.baseline),
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


def _significance(study: Study) -> Part | None:
    """A row a head: what its removal changes, the largest change of loss first."""
    table = study.tables.get("significance")
    if table is None or not len(table):
        return None
    records = table.to_dict("records")
    of_metric = {_place(row): row for row in records if row["statistic"] == METRIC}
    of_loss = sorted((row for row in records if row["statistic"] == LOSS), key=lambda row: _size(row["value"]))
    loss, metric = (decimals_for(table[table["statistic"] == name]["value"]) for name in (LOSS, METRIC))
    rows = [
        [
            _head(study, _place(row)),
            measured(row["value"], row["low"], row["high"], loss),
            *_tested(row),
            *_metric_cells(of_metric.get(_place(row)), metric),
            _count(row["count"]),
            _count(row["settled_at"]),
        ]
        for row in of_loss
    ]
    tests = {
        name: sorted({plain(row["test"], 20) for row in records if row["statistic"] == name}) for name in (LOSS, METRIC)
    }
    note = (
        f"Task: {_of_importance(study, 'task')}; metric: {_of_importance(study, 'metric')}. Ablated minus intact when "
        "the head is removed alone, the largest change of loss first. p is after Holm's correction over all heads "
        f"(loss: {' and '.join(tests[LOSS])}; metric: {' and '.join(tests[METRIC])}); a star means that it is below "
        f"{ALPHA:g}, nothing else. Settled: after so many examples the verdict on the loss never changed again."
    )
    columns = (
        "head",
        "change of loss",
        "p",
        "loss ★",
        "change of metric",
        "p (metric)",
        "metric ★",
        "examples",
        "settled",
    )
    figures = ("ablation", "masking", *(() if "agreement" in study.tables else ("agreement",)))
    return Part("significance", MATTER, note, columns, rows, "significance.csv", figures)


def _metric_cells(row: dict[Any, Any] | None, decimals: int) -> tuple[Cell, Cell, Cell]:
    if row is None:
        return Cell(NONE), Cell(NONE), Cell(NONE)
    return measured(row["value"], row["low"], row["high"], decimals), *_tested(row)


def _tested(row: dict[Any, Any]) -> tuple[Cell, Cell]:
    """The adjusted p-value, and a star where it is significant."""
    is_significant = row["is_significant"] in (True, "True")
    return _p(row["p_adjusted"]), Cell("★" if is_significant else "", float(is_significant))


def _all_but_one(study: Study) -> Part | None:
    table = study.tables.get("all_but_one")
    if table is None or not len(table):
        return None
    loss, metric = decimals_for(table["loss"]), decimals_for(table["metric"])
    rows = [
        [
            Cell(plain(row["site"], 30), place),
            _named(study, row["left"]),
            measured(row["loss"], row["loss_low"], row["loss_high"], loss),
            measured(row["metric"], row["metric_low"], row["metric_high"], metric),
            _p(row["p_adjusted"]),
            _named(study, row["same_data_left"]),
            number(row["same_data_metric"], decimals=metric),
            _count(row["count"]),
        ]
        for place, row in enumerate(by_site(table).to_dict("records"))
    ]
    note = (
        "All heads of a layer but one are removed. The head that is left was chosen by loss on one half of the "
        f"examples; its changes of loss and of {_of_importance(study, 'metric')} are those on the other half, and p is "
        "that of the metric, after Holm's correction over layers. Michel's tables choose and report on the same "
        "examples: that is in the columns named for it, and part of it is luck."
    )
    columns = (
        "layer",
        "left",
        "change of loss",
        "change of metric",
        "p",
        "left, same data",
        "metric, same data",
        "examples",
    )
    return Part(
        "all-but-one",
        f"{MATTER}: all but one",
        note,
        columns,
        rows,
        "all_but_one.csv",
        ("all-but-one",),
        frozenset({0}),
    )


def by_site(table: pd.DataFrame) -> pd.DataFrame:
    """Rows with a `site` such as `encoder.3`, by stack and layer."""

    def order(site: str) -> tuple[int, str, int]:
        stack, _, layer = str(site).rpartition(".")
        return STACKS.index(stack) if stack in STACKS else len(STACKS), stack, int(layer)

    return table.sort_values("site", key=lambda sites: sites.map(order), kind="stable")


def _front(study: Study) -> Part | None:
    table = study.tables.get("front")
    if table is None or not len(table):
        return None
    several = table["draw"].nunique() > 1
    table = table.assign(repair=table["repair"].fillna(""))  # an empty cell of a csv is read as nothing
    mended = table["repair"].nunique() > 1
    rows = [
        [
            Cell(f"{int(row['removed'])}{' (cut)' if row['is_chosen'] else ''}", int(row["removed"])),
            *([Cell(str(int(row["draw"])), int(row["draw"]))] if several else []),
            *([Cell(plain(row["repair"], 20), plain(row["repair"], 20))] if mended else []),
            Cell("on it" if row["is_front"] else "dominated", float(row["is_front"])),
            _count(row["parameters"]),
            measured(row["time"], row["time_low"], row["time_high"]),
            number(row["selection_metric"], decimals=4),
            measured(row["metric"], row["metric_low"], row["metric_high"], 4),
            measured(row["metric_change"], row["change_low"], row["change_high"], 4),
            measured(row["loss_change"], row["loss_low"], row["loss_high"], 4),
        ]
        for row in table.to_dict("records")
    ]
    splits = [recorded(study.record, "pruning", side, "split") for side in ("selected_on", "reported_on")]
    timed = recorded(study.record, "pruning", "timed")
    note = (
        f"Sets of heads were chosen on {plain(splits[0] or 'one split', 30)} and are reported on "
        f"{plain(splits[1] or 'another', 30)}: the metric, its change and that of the loss against the whole model, "
        "example by example, with 95 % intervals. Time is measured on this machine"
        f"{', of ' + plain(timed, 60) if timed else ''}, over the whole model's. A row is dominated where another one "
        "has no more heads and parameters, a metric as high and no time that is longer beyond the intervals, and is "
        "better in one of these; the others are the front."
    )
    if recorded(study.record, "pruning", "in_steps"):
        note += " Heads went in steps, and each was trained after it was cut."
    if removed := recorded(study.record, "pruning", "removed"):
        note += f" These heads are cut: {plain(removed, 1000)}."
    columns = (
        "removed",
        *(["draw"] if several else []),
        *(["repair"] if mended else []),
        "front",
        "parameters",
        "time",
        "metric, chosen on",
        "metric",
        "change of metric",
        "change of loss",
    )
    return Part("front", "What can be cut", note, columns, rows, "front.csv", ("front",))


def _fixing(study: Study) -> Part | None:
    table = study.tables.get("fixing")
    if table is None or not len(table):
        return None
    rows = [
        [
            Cell(plain(row["named"], 30) + (" (saved)" if row["is_chosen"] else ""), place),
            Cell(str(int(row["fixed"])), int(row["fixed"])),
            _count(row["parameters"]),
            measured(row["time"], row["time_low"], row["time_high"]),
            number(row["selection_metric"], decimals=4),
            measured(row["metric"], row["metric_low"], row["metric_high"], 4),
            measured(row["metric_change"], row["change_low"], row["change_high"], 4),
            measured(row["loss_change"], row["loss_low"], row["loss_high"], 4),
        ]
        for place, row in enumerate(table.to_dict("records"))
    ]
    how, timed = (recorded(study.record, "fixing", name) or "" for name in ("how", "timed"))
    note = (
        f"Heads that attend by fixed patterns: first ever more of them, then the layers one by one. {plain(how, 300)} "
        f"Reported on {plain(recorded(study.record, 'fixing', 'judged_on') or 'another split', 90)}: changes are "
        "paired with the whole model, example by example, with 95 % intervals. Time is measured on this machine"
        f"{', of ' + plain(timed, 60) if timed else ''}, over the whole model's."
    )
    columns = (
        "fixed",
        "heads",
        "parameters",
        "time",
        "metric, chosen on",
        "metric",
        "change of metric",
        "change of loss",
    )
    return Part("fixing", "What can be fixed", note, columns, rows, "fixing.csv", ("fixing",), frozenset({0}))


def _agreement(study: Study) -> Part | None:
    table = study.tables.get("agreement")
    if table is None or not len(table):
        return None
    rows = [
        [
            Cell(plain(row["importance"], 30), plain(row["importance"], 30)),
            measured(row["correlation"], row["low"], row["high"]),
            number(row["ceiling"]),
            Cell(f"{int(row['overlap'])} of {int(row['bottom'])}", float(row["overlap"])),
            number(row["by_chance"], decimals=1),
            number(row["rank_spread"], decimals=1),
        ]
        for row in table.sort_values("correlation", ascending=False, kind="stable").to_dict("records")
    ]
    note = (
        "How each cheap importance ranks heads against exact removal: Spearman's correlation over heads, with its "
        "interval over resamples of the examples. The ceiling is what the true importances would reach, given how "
        "noisy the exact ones are; an importance of the same examples shares their noise and can lie above it. "
        "Overlap: how many of the least important heads are the same ones, and what chance would give. Rank spread: "
        "the mean width of the 95 % interval of a head's rank (0 where an importance is one number a head)."
    )
    columns = ("importance", "correlation", "ceiling", "overlap", "by chance", "rank spread")
    figures = ("agreement",)
    return Part(
        "agreement", f"{MATTER}: cheap importances", note, columns, rows, "agreement.csv", figures, frozenset({0})
    )


def _relations(study: Study) -> Part | None:
    table = study.tables.get("relations")
    if table is None:
        return None
    rows = [
        [
            Cell(plain(row["relation"], 60), plain(row["relation"], 60)),
            Cell(plain(row["direction"], 20), plain(row["direction"], 20)),
            _head(study, _place(row)),
            measured(row["accuracy"], row["low"], row["high"]),
            number(row["accuracy"] - row["baseline"], sign=True),
            number(
                row["baseline"], "" if is_missing(row["baseline_offset"]) else f" at {signed(row['baseline_offset'])}"
            ),
            number(row["same_data_best_accuracy"], _papers_head(row)),
            number(row["control"]),
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


def _offset(value: Any) -> str:
    return "" if is_missing(value) else f" at {signed(value)}"


def _papers_head(row: dict[Any, Any]) -> str:
    layer, head = row["same_data_best_layer"], row["same_data_best_head"]
    return "" if is_missing(layer) else f" by {int(layer)}.{int(head)}"


def _coreference(study: Study) -> Part | None:
    table = study.tables.get("coreference")
    if table is None:
        return None
    rows = [
        [
            Cell(plain(row["kind"], 20), plain(row["kind"], 20)),
            Cell(plain(row["candidates"], 20), plain(row["candidates"], 20)),
            _head(study, _place(row)),
            measured(row["accuracy"], row["low"], row["high"]),
            *(number(row.get(name)) for name in ("chance", "nearest", "head_match", "rules")),
            number(row.get("same_data_best_accuracy")),
            _count(row["count"]),
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
                    measured(row["value"], row["low"], row["high"]),
                    _count(row["count"]),
                ]
            )
        for row in table[table["kind"] == kind].to_dict("records"):
            guess = plain(row["baseline"], 40)
            answer = measured(row["value"], row["low"], row["high"])
            rows.append([Cell(plain(kind, 20), kind), Cell(guess, guess), Cell(NONE), answer, _count(row["count"])])
    note = (
        "In what share of the sentences most words point at the rarest word, or at one of the two rarest, and how "
        "often simple guesses would be right. The head was picked on the sentences it is measured on."
    )
    columns = ("question", "answer by", "head", "right", "sentences")
    return Part("rare-words", "Rare words", note, columns, rows, "rare_words.csv", ("rare-words",), frozenset({0, 1}))


def _place(row: dict[Any, Any]) -> Place | None:
    """None where no head was chosen."""
    if is_missing(row["layer"]) or is_missing(row["head"]):
        return None
    return str(row["stack"]), int(row["layer"]), int(row["head"])


def _head(study: Study, place: Place | None) -> Cell:
    if place is None:
        return Cell(NONE)
    stack, layer, head = place
    address = f"{layer}.{head}"
    label = address if len(stacks_of(study)) == 1 else f"{plain(stack)}.{address}"
    return Cell(label, layer + head / 1000, label)


def _named(study: Study, name: Any) -> Cell:
    """The head of a name as in `encoder.3.2` or `3.2`."""
    stack, layer, head = ["", *str(name).split(".")][-3:]
    return _head(study, (stack or stacks_of(study)[0], int(layer), int(head)))


def _p(value: Any) -> Cell:
    """Three decimals, or a power of ten where that would be 0."""
    if is_missing(value):
        return Cell(NONE)
    return Cell(f"{value:.3f}" if value >= 0.001 or value == 0 else f"{value:.0e}".replace("-", "−"), float(value))


def _size(value: Any) -> float:
    """To sort the largest first, whatever their sign, and what is missing last."""
    return math.inf if is_missing(value) else -abs(value)


def _of_importance(study: Study, key: str) -> str:
    return plain(recorded(study.record, "importance", key) or f"the {key}", 40)


def _count(value: Any) -> Cell:
    return Cell(NONE) if is_missing(value) else Cell(f"{int(value):,}".replace(",", "\u202f"), float(value))
