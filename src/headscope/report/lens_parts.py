"""The page's parts on other lenses: side by side, separators as a no-op, mixing, and agreement with exact removal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from headscope.report.cells import Cell, Part, measured, number
from headscope.report.grids import plain, recorded, stacks_of
from headscope.report.scale import bare_name
from headscope.study.separators import NAMES, verdicts
from headscope.tables import STACKS

if TYPE_CHECKING:
    from headscope.study.study import Study

MASSES = ("special", "cls", "sep", "punctuation", "confidence", "raw-correlation", "row-total", "rank")


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
    names = [bare_name(str(name)).partition("@")[2] for name in dict.fromkeys(study.heads["statistic"])]
    others = list(dict.fromkeys(name for name in names if name))
    return ["raw", *others] if others else []


def _side_by_side(study: Study) -> Part | None:
    """A row a layer: the mean over its heads of what each lens says."""
    lenses = lenses_of(study)
    if not lenses:
        return None
    columns = [
        (statistic, lens, statistic if lens == "raw" else f"{statistic}@{lens}")
        for statistic in MASSES
        for lens in lenses
    ]
    known = set(study.heads["statistic"])
    columns = [one for one in columns if one[2] in known]
    means = study.heads.groupby(["stack", "layer", "statistic"])["value"].mean().to_dict()
    layers = list(dict.fromkeys(study.heads[["stack", "layer"]].itertuples(index=False, name=None)))
    layers.sort(key=lambda one: (stacks_of(study).index(one[0]), one[1]))
    rows = [[_layer(study, *place), *(number(means.get((*place, name))) for _, _, name in columns)] for place in layers]
    note = (
        "The mean over a layer's heads. Effective attention is what of it can change a head's output; norm weighs it "
        "by the length of the values it moves; gradient by what the loss would lose with it. Through effective "
        "attention shares may be below 0 and do not sum to 1. The table of heads shows every statistic through every "
        "lens: choose one such as entropy@norm. "
    )
    note += _told(study)
    headings = ("layer", *(f"{statistic} {lens}" for statistic, lens, _ in columns))
    return Part("lenses", "Other lenses", note, headings, rows, "heads.csv", ("lens-",))


def _told(study: Study) -> str:
    """What the record says of the loss and of sequences that were too short."""
    told = ""
    if recorded(study.record, "lenses", "loss_means"):
        told += f"The loss: {plain(recorded(study.record, 'lenses', 'loss_means'), 300)}. "
    for lens in lenses_of(study):
        short, all_of = (recorded(study.record, "lenses", lens, key) for key in ("short", "sequences"))
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
    return Part("lens-heads", "Where lenses disagree", note, columns, rows, "lens_heads.csv", (), frozenset({1, 2}))


def _examples(study: Study) -> Part | None:
    table = study.tables.get("lens_examples")
    if table is None:
        return None
    rows = []
    for row in table.to_dict("records"):
        words = json.loads(row["words"])
        text = " ".join(f"«{word}»" if i == row["query"] else word for i, word in enumerate(words))
        through = f"{words[row['lens_key']]} {row['lens_weight']:.2f}, raw {row['lens_key_raw']:.2f}"
        raw = f"{words[row['raw_key']]} {row['raw_weight']:.2f}, through it {row['raw_key_through']:.2f}"
        lens = Cell(plain(row["lens"], 30), row["lens"])
        told = [Cell(plain(one, 400)) for one in (text, raw, through)]
        rows.append([_head(study, row), lens, *told, number(row["apart"])])
    note = (
        "Of the heads above, in three texts the row where lens and weights are furthest apart, if there is one among "
        "those where they point to different tokens: the token «that looks», "
        "the token with its largest weight, and the one that is largest through the lens; numbers are shares of a row. "
        "Apart: half the sum of the differences, from 0 to 1. The clearest cases, not usual ones."
    )
    columns = ("head", "lens", "text", "raw", "through the lens", "apart")
    heading = "Where lenses disagree: examples"
    words_in = frozenset({1, 2, 3, 4})
    return Part("lens-examples", heading, note, columns, rows, "lens_examples.csv", (), words_in)


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
            *(measured(*(of[m][end] for end in ("value", "low", "high"))) if m in of else Cell("–") for m in measures),
        ]
        for (stack, layer, kind), of in sorted(cells.items(), key=lambda item: (item[0][0], item[0][2], item[0][1]))
    ]
    note = " ".join(verdict.sentence for verdict in verdicts(table))
    note += (
        " The columns: attention to the tokens, and over that on other tokens the mean of |∂loss/∂A|, of |A·∂loss/∂A| "
        "and of the gradient less its row's mean."
    )
    headings = ("layer", "tokens", "attention", "gradient", "weighted", "centred")
    heading = "Is attention to separators a no-op?"
    return Part("no-op", heading, note, headings, rows, "gradients.csv", ("no-op",), frozenset({1}))


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
            *(measured(*(of[n][end] for end in ("value", "low", "high"))) if n in of else Cell("–") for n in lengths),
        ]
        for (stack, layer), of in cells.items()
    ]
    note = (
        "Pearson's correlation of effective attention with the raw weights, a mean over the heads of a layer, in texts "
        "of up to so many tokens. How much of the fall length alone would bring is not known from it."
    )
    headings = ("layer", *(f"≤ {length}" for length in lengths))
    heading = "How effective attention leaves the raw one as texts grow"
    return Part("lengths", heading, note, headings, rows, "effective_lengths.csv", ("effective-lengths",))


def _mixing(study: Study) -> Part | None:
    table = study.tables.get("mixing")
    if table is None:
        return None
    forms = [str(form) for form in dict.fromkeys(table["form"])]
    cells: dict[tuple[str, int], dict[str, Any]] = {}
    for row in table.to_dict("records"):
        cells.setdefault((row["stack"], row["layer"]), {})[row["form"]] = row
    rows = [
        [
            _layer(study, stack, layer),
            *(measured(*(of[f][end] for end in ("value", "low", "high"))) if f in of else Cell("–") for f in forms),
        ]
        for (stack, layer), of in cells.items()
    ]
    note = (
        "The share of other tokens in what a layer adds up for a token: by weights alone, by the length of what the "
        "heads move, with the residual, and behind the LayerNorm where one follows."
    )
    return Part("mixing", "How much each layer mixes tokens", note, ("layer", *forms), rows, "mixing.csv", ("mixing",))


def _agreement(study: Study) -> Part | None:
    table = study.tables.get("lenses")
    if table is None:
        return None
    rows = [
        [
            Cell(plain(row["stack"], 20), row["stack"]),
            Cell(plain(row["statistic"], 30), row["statistic"]),
            Cell(plain(row["lens"], 30), row["lens"]),
            measured(row["correlation"], row["low"], row["high"]),
            number(row["ceiling"]),
        ]
        for row in table.to_dict("records")
    ]
    note = (
        "Spearman's correlation over heads of each statistic, through each lens, with the exact change of loss when a "
        "head is removed; intervals over resampled heads. The ceiling is what the true importances would reach among "
        "the heads of that stack, by split halves of the examples; –: the exact changes are all noise."
    )
    columns = ("stack", "statistic", "lens", "correlation", "ceiling")
    heading = "Do lenses agree with exact removal?"
    return Part("lens-agreement", heading, note, columns, rows, "lenses.csv", ("agree-lens",), frozenset({0, 1, 2}))


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
            *(measured(*(of[p][end] for end in ("value", "low", "high"))) if p in of else Cell("–") for p in parts),
        ]
        for (stack, layer), of in sorted(cells.items(), key=lambda item: (STACKS.index(item[0][0]), item[0][1]))
    ]
    note = (
        "What the model says, shared out among what it was made of, in parts of it. What leaves a layer is what enters "
        "it, what biases add, what the source gives and what is lost; of it, heads is what came through attention. "
        "Layer −1 is the embeddings, the last one what comes after all layers."
    )
    heading = "Where relevance goes"
    return Part("relevance", heading, note, ("layer", *parts), rows, "relevance_layers.csv", ("relevance-layers",))


def _layer(study: Study, stack: str, layer: int) -> Cell:
    counted = str(layer).replace("-", "−")  # relevance begins before the first one
    text = counted if len(stacks_of(study)) == 1 else f"{plain(stack, 20)} {counted}"
    return Cell(text, float(STACKS.index(stack) * 1000 + layer))


def _head(study: Study, row: dict[Any, Any]) -> Cell:
    address = f"{row['layer']}.{row['head']}"
    text = address if len(stacks_of(study)) == 1 else f"{plain(row['stack'], 20)}.{address}"
    return Cell(text, row["layer"] + row["head"] / 1000, text)
