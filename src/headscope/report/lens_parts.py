"""The page's parts on other lenses: side by side, separators as a no-op, mixing, and agreement with exact removal."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from headscope.analysis.separators import NAMES, verdicts
from headscope.report.cards import words_of
from headscope.report.cells import DECIMALS, Cell, Part, measured, number
from headscope.report.finding import ceiling_of
from headscope.report.grids import plain, recorded, stacks_of
from headscope.report.lens_conclusion import conclusion_of
from headscope.statistics.effective_lengths import UP_TO
from headscope.study.schema.names import RAW, StatisticName, through_lens
from headscope.tables import STACKS

if TYPE_CHECKING:
    import pandas as pd

    from headscope.study.study import Study

MASSES = (
    "special",
    "cls",
    "sep",
    "punctuation",
    "confidence",
    "raw-correlation",
    "row-total",
    "rank",
)
ONLY_IF_VARIES = (
    "row-total",
    "rank",
)  # they say something of a lens, not of a layer, where they are the same in all
FORMS = {  # of mixing.csv, in Kobayashi's order and words
    "weight": "weights",
    "norm": "norm",
    "weight-residual": "weights + residual",
    "norm-residual": "norm + residual",
    "norm-layernorm": "and LayerNorm",
}
FEWEST_LENGTHS = 4  # bins, below which there is no curve to see
PEAK = 3  # times an even share of the row, below which its largest share is no peak


def lens_parts(study: Study) -> Iterator[Part | None]:
    """Those whose rows or tables are there."""
    yield _side_by_side(study)
    yield _furthest(study)
    yield _examples(study)
    yield _separators(study)
    yield _lengths(study)
    yield _mixing(study)
    yield _agreement(study)
    yield _relevance(study)


def lenses_of(study: Study) -> list[str]:
    """The lenses that rows of the study were seen through, raw first."""
    names = map(str, dict.fromkeys(study.heads["statistic"]))
    lenses = dict.fromkeys(StatisticName.parse(name).lens for name in names)
    others = [lens for lens in lenses if lens]
    return [RAW, *others] if others else []


def forms_of(table: pd.DataFrame) -> dict[str, str]:
    """The forms of mixing.csv that a table has, with their words, in Kobayashi's order."""
    there = [str(form) for form in dict.fromkeys(table["form"])]
    return {
        form: FORMS.get(form, form)
        for form in sorted(there, key=lambda one: _place_among(one, tuple(FORMS)))
    }


def _place_among(name: str, names: tuple[str, ...]) -> int:
    return names.index(name) if name in names else len(names)


def _side_by_side(study: Study) -> Part | None:
    """A block a statistic, in it a row a layer: the mean over its heads of what each lens says."""
    lenses = lenses_of(study)
    if not lenses:
        return None
    means = study.heads.groupby(["stack", "layer", "statistic"])["value"].mean().to_dict()
    layers = list(dict.fromkeys(study.heads[["stack", "layer"]].itertuples(index=False, name=None)))
    layers.sort(key=lambda one: (stacks_of(study).index(one[0]), one[1]))
    rows = []
    for statistic in MASSES:
        names = [through_lens(statistic, lens) for lens in lenses]
        of_layers = [[means.get((*place, name), math.nan) for name in names] for place in layers]
        if statistic in ONLY_IF_VARIES:
            of_layers = _varying(of_layers)
        known = [value for values in of_layers for value in values if not math.isnan(value)]
        decimals = 0 if all(value == round(value) for value in known) else DECIMALS
        rows += [
            [
                Cell(statistic, statistic),
                _layer(study, *place),
                *(number(value, decimals=decimals) for value in values),
            ]
            for place, values in zip(layers, of_layers, strict=True)
            if not all(map(math.isnan, values))
        ]
    note = (
        "The mean over a layer's heads, one block for each statistic. Effective attention is what of it can change a "
        "head's output; norm weighs it by the length of the values it moves; gradient by what the loss would lose with "
        "it. Through effective attention shares may be below 0 and do not sum to 1. What rows sum to (row-total) and "
        "the rank of the values stand here only where they vary from layer to layer; heads.csv has all. The table of "
        "heads shows every statistic through every lens: choose one such as entropy@norm. "
    )
    note += _told(study)
    columns = ("statistic", "layer", *lenses)
    return Part(
        "lenses", "Other lenses", note, columns, rows, "heads.csv", ("lens-",), frozenset({0})
    )


def _varying(of_layers: list[list[float]]) -> list[list[float]]:
    """[layer][lens]; a lens that says the same of all layers, as written, is left out (NaN)."""
    varies = [
        len({f"{value:.{DECIMALS}f}" for value in column}) > 1
        for column in zip(*of_layers, strict=True)
    ]
    return [
        [value if is_kept else math.nan for value, is_kept in zip(row, varies, strict=True)]
        for row in of_layers
    ]


def _told(study: Study) -> str:
    """What the record says of the loss and of sequences that were too short."""
    told = ""
    if recorded(study.record, "lenses", "loss_means"):
        told += f"The loss: {plain(recorded(study.record, 'lenses', 'loss_means'), 300)}. "
    for lens in lenses_of(study):
        short, all_of = (
            recorded(study.record, "lenses", lens, key) for key in ("short", "sequences")
        )
        if isinstance(short, int) and isinstance(all_of, int) and short:
            told += (
                f"{lens}: {short} of {all_of} maps of a layer are of texts no longer than a head is wide, where all of "
                "attention is effective; there it is the raw one. "
            )
    return told.strip()


def _furthest(study: Study) -> Part | None:
    table = study.tables.get("lens_heads")
    if table is None:
        return None
    rows = [
        [
            _head(study, row),
            Cell(plain(row["statistic"], 30), row["statistic"]),
            Cell(plain(row["lens"], 30), row["lens"]),
            measured(row["raw"], row["raw_low"], row["raw_high"]),
            measured(row["through"], row["through_low"], row["through_high"]),
            Cell(f"{row['raw_rank']:.0%} → {row['rank']:.0%}", abs(row["apart"])),
        ]
        for row in table.to_dict("records")
    ]
    note = (
        "For each lens the head that it ranks most unlike raw attention, beyond what the intervals leave open, of all "
        "heads and statistics: a pick, so expect less of it on other texts. A head's card shows it at work."
    )
    columns = ("head", "statistic", "lens", "raw", "through the lens", "rank among heads")
    return Part(
        "lens-heads",
        "Where lenses disagree",
        note,
        columns,
        rows,
        "lens_heads.csv",
        (),
        frozenset({1, 2}),
    )


def _examples(study: Study) -> Part | None:
    table = study.tables.get("lens_examples")
    if table is None:
        return None
    rows = []
    for row in table.to_dict("records"):
        words = words_of(row["words"])
        raw_peaks, peaks = (_has_peak(row, weight) for weight in ("raw_weight", "lens_weight"))
        marks = {"query": row["query"], "key": row["raw_key"] if raw_peaks else -1}
        marks |= {"through": row["lens_key"] if peaks else -1}
        marked = tuple(
            (word, " ".join(m for m, at in marks.items() if at == i))
            for i, word in enumerate(words)
        )
        raw = f"{words[row['raw_key']]} {_size(row['raw_weight'])}, through it {_size(row['raw_key_through'])}"
        through = f"{words[row['lens_key']]} {_size(row['lens_weight'])}, raw {_size(row['lens_key_raw'])}"
        told = (
            raw if raw_peaks else _spread(row["raw_weight"]),
            through if peaks else _spread(row["lens_weight"]),
        )
        lens, text = Cell(plain(row["lens"], 30), row["lens"]), Cell(" ".join(words), marked=marked)
        rows.append(
            [
                _head(study, row),
                lens,
                text,
                *(Cell(plain(one, 400)) for one in told),
                number(row["apart"]),
            ]
        )
    note = (
        "Of the heads above, in three texts the row where lens and weights are furthest apart, if there is one among "
        "those where they point to different tokens. Numbers are shares of a row; it is spread evenly where no token "
        f"has {PEAK} times an even share. Apart: half the sum of the differences, from 0 to 1. "
        "The clearest cases, not usual ones."
    )
    columns = ("head", "lens", "text", "raw", "through the lens", "apart")
    heading = "Where lenses disagree: examples"
    words_in = frozenset({1, 2, 3, 4})
    marks_told = (
        ("the token that looks", "query"),
        ("largest weight", "key"),
        ("largest through the lens", "through"),
    )
    return Part(
        "lens-examples", heading, note, columns, rows, "lens_examples.csv", (), words_in, marks_told
    )


def _has_peak(row: dict[Any, Any], weight: str) -> bool:
    """Whether the row's largest share stands out; it is taken to where the study does not say how many keys it had."""
    keys = row.get("keys", math.nan)
    return bool(math.isnan(keys) or abs(row[weight]) >= PEAK / keys)


def _spread(largest: float) -> str:
    return f"spread evenly (at most {_size(abs(largest))})"


def _size(share: float) -> str:
    return f"{share:.2f}".replace("-", "−")


def _separators(study: Study) -> Part | None:
    table = study.tables.get("gradients")
    if table is None:
        return None
    cells: dict[tuple[str, int, str], dict[str, Any]] = {}
    for row in table.to_dict("records"):
        if row["class"] in NAMES:
            cells.setdefault((row["stack"], row["layer"], row["class"]), {})[row["measure"]] = row
    measures = ("attention", "gradient-ratio", "weighted-ratio", "centred-ratio")
    rows = [
        [
            _layer(study, stack, layer),
            Cell(NAMES[kind], kind),
            *(
                measured(*(of[m][end] for end in ("value", "low", "high")))
                if m in of
                else Cell("–")
                for m in measures
            ),
        ]
        for (stack, layer, kind), of in sorted(
            cells.items(), key=lambda item: (item[0][0], item[0][2], item[0][1])
        )
    ]
    told = verdicts(table)
    lead = " ".join(verdict.sentence for verdict in told)
    note = " ".join(verdict.numbers for verdict in told if verdict.numbers)
    note += (
        " The columns: attention to the tokens, and over that on other tokens the mean of |∂loss/∂A|, of |A·∂loss/∂A| "
        "and of the gradient less its row's mean."
    )
    headings = ("layer", "tokens", "attention", "gradient", "weighted", "centred")
    heading = "Is attention to separators, or to another sink, a no-op?"
    return Part(
        "no-op",
        heading,
        note.strip(),
        headings,
        rows,
        "gradients.csv",
        ("no-op",),
        frozenset({1}),
        lead=lead,
    )


def lengths_covered(study: Study) -> str:
    """Which lengths the texts have, and how to see others, where they fill too few bins for a curve; else nothing."""
    table = study.tables.get("effective_lengths")
    bins = [] if table is None else sorted({int(length) for length in table["up_to"]})
    if not bins or len(bins) >= FEWEST_LENGTHS:
        return ""
    shortest = max((length for length in UP_TO if length < bins[0]), default=0) + 1
    return (
        f"These texts have only {shortest} to {bins[-1]} tokens; to see the curve over other lengths, run "
        "examples/effective_by_length.py."
    )


def width_of_heads(study: Study, stack: str) -> int | None:
    """As the record has it; in an older study it is the largest rank of the values."""
    known = recorded(study.record, "lenses", "effective", "width", stack)
    if isinstance(known, int):
        return known
    heads = study.heads
    ranks = heads[(heads["stack"] == stack) & (heads["statistic"] == "rank@effective")][
        "value"
    ].dropna()
    return round(float(ranks.max())) if len(ranks) else None


def _lengths(study: Study) -> Part | None:
    table = study.tables.get("effective_lengths")
    if table is None:
        return None
    lengths = sorted(set(table["up_to"]))
    cells: dict[tuple[str, int], dict[int, Any]] = {}
    for row in table.to_dict("records"):
        cells.setdefault((row["stack"], row["layer"]), {})[row["up_to"]] = row
    rows = [
        [
            _layer(study, stack, layer),
            *(
                measured(*(of[n][end] for end in ("value", "low", "high")))
                if n in of
                else Cell("–")
                for n in lengths
            ),
        ]
        for (stack, layer), of in cells.items()
    ]
    note = (
        "Pearson's correlation of effective attention with the raw weights, a mean over the heads of a layer, in texts "
        "of up to so many tokens. How much of the fall length alone would bring is not known from it."
    )
    if len(lengths) == 1:  # there is no figure whose caption says it
        note += f" {lengths_covered(study)}"
    headings = ("layer", *(f"≤ {length}" for length in lengths))
    heading = "How effective attention leaves the raw one as texts grow"
    return Part(
        "lengths", heading, note, headings, rows, "effective_lengths.csv", ("effective-lengths",)
    )


def _mixing(study: Study) -> Part | None:
    table = study.tables.get("mixing")
    if table is None:
        return None
    forms = forms_of(table)
    cells: dict[tuple[str, int], dict[str, Any]] = {}
    for row in table.to_dict("records"):
        cells.setdefault((row["stack"], row["layer"]), {})[row["form"]] = row
    rows = [
        [
            _layer(study, stack, layer),
            *(
                measured(*(of[f][end] for end in ("value", "low", "high")))
                if f in of
                else Cell("–")
                for f in forms
            ),
        ]
        for (stack, layer), of in cells.items()
    ]
    note = (
        "The share of other tokens in what a layer adds up for a token: by weights alone, by the length of what the "
        "heads move, with the residual, and behind the LayerNorm where one follows."
    )
    columns = ("layer", *forms.values())
    return Part(
        "mixing", "How much each layer mixes tokens", note, columns, rows, "mixing.csv", ("mixing",)
    )


def _agreement(study: Study) -> Part | None:
    """A row a statistic and lens, the strongest correlation first; the conclusion stands before the table."""
    table = study.tables.get("lenses")
    conclusion = conclusion_of(study)
    if table is None or conclusion is None:
        return None
    is_many = table["stack"].nunique() > 1
    has_ceilings = table["ceiling"].nunique(dropna=False) > 1
    order = table["correlation"].abs().sort_values(ascending=False, kind="stable").index
    rows = [
        [
            *([Cell(plain(row["stack"], 20), row["stack"])] if is_many else []),
            Cell(plain(row["statistic"], 30), row["statistic"]),
            Cell(plain(row["lens"], 30), row["lens"]),
            measured(row["correlation"], row["low"], row["high"]),
            *([number(ceiling_of(row))] if has_ceilings else []),
        ]
        for row in table.loc[order].to_dict("records")
    ]
    note = (
        "Spearman's correlation over heads of each statistic, through each lens, with the exact change of loss when a "
        "head is removed; intervals over heads, which are resampled. The ceiling is what the true importances would "
        "reach among the heads of that stack, by split halves of the examples"
    )
    note += "; –: the exact changes are all noise." if has_ceilings else "."
    if "agreement" in study.tables:
        note += (
            " The table of cheap importances resamples examples instead, for these very heads; other heads of such a "
            "model are asked here, so that the same correlation has another interval."
        )
    columns = ("statistic", "lens", "correlation [interval over heads]")
    columns = (*(("stack",) if is_many else ()), *columns, *(("ceiling",) if has_ceilings else ()))
    heading = "Do lenses agree with exact removal?"
    words = frozenset(range(3 if is_many else 2))
    lead = f"{conclusion.sentence}."
    return Part(
        "lens-agreement",
        heading,
        note,
        columns,
        rows,
        "lenses.csv",
        ("agree-lens",),
        words,
        lead=lead,
    )


def _relevance(study: Study) -> Part | None:
    """A row a stack and layer, from the embeddings to the model's head."""
    table = study.tables.get("relevance_layers")
    if table is None:
        return None
    parts = [str(part) for part in dict.fromkeys(table["part"])]
    cells: dict[tuple[str, int], dict[str, Any]] = {}
    for row in table.to_dict("records"):
        cells.setdefault((row["stack"], row["layer"]), {})[row["part"]] = row
    rows = [
        [
            _layer(study, stack, layer),
            *(
                measured(*(of[p][end] for end in ("value", "low", "high")))
                if p in of
                else Cell("–")
                for p in parts
            ),
        ]
        for (stack, layer), of in sorted(
            cells.items(), key=lambda item: (STACKS.index(item[0][0]), item[0][1])
        )
    ]
    note = (
        "What the model says, shared out among what it was made of, in parts of it. What leaves a layer is what enters "
        "it, what biases add, what the source gives and what is lost; of it, heads is what came through attention. "
        "Layer −1 is the embeddings, the last one what comes after all layers."
    )
    heading = "Where relevance goes"
    return Part(
        "relevance",
        heading,
        note,
        ("layer", *parts),
        rows,
        "relevance_layers.csv",
        ("relevance-layers",),
    )


def _layer(study: Study, stack: str, layer: int) -> Cell:
    counted = str(layer).replace("-", "−")  # relevance begins before the first one
    text = counted if len(stacks_of(study)) == 1 else f"{plain(stack, 20)} {counted}"
    return Cell(text, float(STACKS.index(stack) * 1000 + layer))


def _head(study: Study, row: dict[Any, Any]) -> Cell:
    address = f"{row['layer']}.{row['head']}"
    text = address if len(stacks_of(study)) == 1 else f"{plain(row['stack'], 20)}.{address}"
    return Cell(text, row["layer"] + row["head"] / 1000, text)
